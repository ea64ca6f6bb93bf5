package ranges

import (
	"cmp"
	"context"
	"math"
	"slices"

	"inferplan/planner/gear/cascades"
)

// If there are many measured rates, climbing uses a sample of windows, each windowLengthSLOs SLOs long, with about
// maxSampledRequests requests together.
const (
	windowLengthSLOs   = 10
	maxSampledRequests = 200_000
)

// sampleWindows returns the problem with a sample of its measured rates, if there are many. Windows are taken at
// equal steps of their order by rate, the busiest included, so all rates occur about as often as before. They stay
// in order of time.
func sampleWindows(p *cascades.Problem) *cascades.Problem {
	if !p.HasManyRequests() {
		return p
	}
	windows := slices.Collect(slices.Chunk(p.MeasuredRates, int(math.Ceil(windowLengthSLOs*p.SLO.Seconds()))))
	byRate := cascades.Indices(len(windows))
	slices.SortStableFunc(byRate, func(a, b int) int { return cmp.Compare(cascades.Sum(windows[b]), cascades.Sum(windows[a])) })
	var sampled []int
	for k := 0; k < len(byRate); k += int(math.Ceil(cascades.Sum(p.MeasuredRates) / maxSampledRequests)) {
		sampled = append(sampled, byRate[k])
	}
	slices.Sort(sampled)
	q := *p
	q.MeasuredRates = nil
	for _, w := range sampled {
		q.MeasuredRates = append(q.MeasuredRates, windows[w]...)
	}
	return &q
}

// RepeatSteps repeats the steps of a climb, which was made on a sample of the measured rates, on all rates, as
// far as these allow them. If they refuse a step, it and the later steps of its range are left out.
func (c *gearClimber) RepeatSteps(ctx context.Context, steps []climbStep) error {
	for len(steps) > 0 {
		path, gears := make([]climbStep, len(steps)), c.gears
		for k, step := range steps {
			gears = slices.Clone(gears)
			gears[step.rangeIndex] = step.gears[step.rangeIndex]
			path[k] = climbStep{rangeIndex: step.rangeIndex, gears: gears}
		}
		passedSteps, err := c.climbHighest(ctx, path)
		if err != nil || passedSteps == len(steps) {
			return err
		}
		refusedRange := steps[passedSteps].rangeIndex
		steps = slices.DeleteFunc(steps[passedSteps:], func(step climbStep) bool { return step.rangeIndex == refusedRange })
	}
	return nil
}
