package gear

import (
	"cmp"
	"context"
	"math"
	"slices"
)

// If there are many measured rates, climbing uses a sample of windows, each windowLengthSLOs SLOs long, with about
// maxSampledRequests requests together.
const (
	windowSLOs = 10
	mostOfPart = 200_000
)

// sampleWindows returns the problem with a sample of its measured rates, if there are many. Windows are taken at
// equal steps of their order by rate, the busiest included, so all rates occur about as often as before. They stay
// in order of time.
func partOf(p *Problem) *Problem {
	if !p.many() {
		return p
	}
	windows := slices.Collect(slices.Chunk(p.Measured, int(math.Ceil(windowSLOs*p.SLO.Seconds()))))
	order := upTo(len(windows))
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(sum(windows[b]), sum(windows[a])) })
	var taken []int
	for k := 0; k < len(order); k += int(math.Ceil(sum(p.Measured) / mostOfPart)) {
		taken = append(taken, order[k])
	}
	slices.Sort(taken)
	q := *p
	q.Measured = nil
	for _, w := range taken {
		q.Measured = append(q.Measured, windows[w]...)
	}
	return &q
}

// repeatSteps repeats the steps of a climb on a sample of the rates, as far as all rates allow them. If they
// refuse a step, the steps of its range are left out.
func (c *climber) follow(ctx context.Context, steps []raised) error {
	for len(steps) > 0 {
		path, gears := make([]raised, len(steps)), c.gears
		for k, up := range steps {
			gears = slices.Clone(gears)
			gears[up.r] = up.gears[up.r]
			path[k] = raised{r: up.r, gears: gears}
		}
		passed, err := c.highest(ctx, path)
		if err != nil || passed == len(steps) {
			return err
		}
		refused := steps[passed].r
		steps = slices.DeleteFunc(steps[passed:], func(up raised) bool { return up.r == refused })
	}
	return nil
}
