package ranges

import (
	"cmp"
	"context"
	"math"
	"slices"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/placement"
	"inferplan/planner/gear/trials"
	"inferplan/planner/lists"
	"inferplan/solver/tolerance"
)

// Limits of climbing: gears of a range that fail in a row, requests of all runs (or multiples of the measured
// ones), and the chance that a fresh stream misses the SLO, at the confidence of trials.
const (
	maxClimbFails    = 2
	maxClimbRequests = 1_000_000
	maxClimbRepeats  = 20
	maxMissChance    = .05
)

// ClimbRanges makes a plan on measured rates more accurate by climbing: range by range it takes more accurate gears
// (cascades with their split over devices). Such a gear could not hold the range's upper edge forever, but measured
// rates may stay below that edge or pass it quickly. So only simulation can admit it, on streams of requests at these
// rates, evenly spaced and at random. The returned plan has the accuracy and the weights that the streams showed.
//
// The plan is returned as it is if its measured rates cannot be simulated, or if it need not be more accurate: it
// reaches its target or, with anyPlan, any plan will do. seed is that of the streams.
func ClimbRanges(ctx context.Context, plan *trials.Plan, seed uint64, anyPlan bool) (*trials.Plan, error) {
	p := plan.Problem
	wantsMoreAccuracy := p.MissesTarget(plan.Accuracy) || p.TargetAccuracy == 0 && !anyPlan
	if !p.SimulatesMeasured() || !wantsMoreAccuracy {
		return plan, nil
	}

	// Climb on the rates, or on a sample if they are many.
	if p.HasManyRequests() {
		climbed, _, err := ClimbBySample(ctx, plan, p, sampleWindows(p), seed)
		return trials.PlanOrError(ctx, climbed, err)
	}
	climber := newClimber(p, plan, seed)
	err := climber.climbAll(ctx)
	return trials.PlanOrError(ctx, climber.climbedPlan(plan), err)
}

// ClimbBySample raises the gears (cascades) of a plan on sample, the problem with a part of its measured rates, and
// repeats these steps on all rates, those of problem p, as far as they keep the SLO there. It returns the plan and the
// number of steps that all rates refuse. If the sample shows that the plan stays below its target, or an error comes
// first, it returns the plan as it is.
func ClimbBySample(ctx context.Context, plan *trials.Plan, p, sample *cascades.Problem, seed uint64) (climbed *trials.Plan, refusedSteps int, err error) {
	partial := newClimber(sample, plan, seed)
	if err := partial.climbAll(ctx); err != nil || p.MissesTarget(plan.Accuracy+partial.gateResult.Accuracy-partial.planResult.Accuracy) {
		return plan, 0, err
	}
	full := newClimber(p, plan, seed)
	err = full.repeatSteps(ctx, partial.steps)
	return full.climbedPlan(plan), len(partial.steps) - len(full.steps), err
}

// gearClimber raises the gears of a plan on its placement, range by range.
type gearClimber struct {
	simulator     *trials.Simulator
	layout        *placement.Layout
	streams       int                       // number of random streams, each of which must keep the SLO
	front         []placement.LoadedCascade // by rising load
	gears         []trials.PlannedGear      // by range
	gateStream    int                       // stream on which gears are tried first: the one that failed last
	planResult    trials.MeasuredResult     // of the plan, on the first stream
	gateResult    trials.MeasuredResult     // of the gears, on the gate stream
	streamsResult *trials.MeasuredResult    // of the gears, on all streams; nil if none was raised
	steps         []climbStep               // from the plan to the gears
}

// newClimber returns a climber, which raises the gears of a plan (one cascade per range of rates) on simulated streams
// at the measured rates of problem p: those of the plan's problem, or a sample of them. On a sample one random stream
// suffices, because the steps are repeated on all rates. seed is that of the streams.
func newClimber(p *cascades.Problem, plan *trials.Plan, seed uint64) *gearClimber {
	l := plan.Placement.Layout
	c := &gearClimber{simulator: trials.NewSimulator(p, l.Configs, l.Chains, seed), layout: placement.NewLayout(l.Space.WithLimits(p), l.Configs, l.Chains), streams: trials.StreamCount(p), gears: plan.Gears, gateStream: noGate}
	if c.simulator.RunCount = plan.Placement.Simulator.RunCount; p != plan.Problem {
		c.streams = 1
	}
	return c
}

// noGate is the gate stream before anything was run.
const noGate = trials.EvenStream - 1

// climbAll raises the gears (cascades) of one range of rates after another, that of the most requests first, until none
// can be raised. First it simulates the plan as it is; if that misses the SLO, nothing is raised.
func (c *gearClimber) climbAll(ctx context.Context) error {
	p := c.simulator.Problem
	var err error
	if c.front, err = c.layout.FeasibleFront(ctx, 0, -1); err != nil {
		return err
	}

	// What the plan shows.
	c.gateStream = 0
	if c.gateResult, err = c.simulator.RunMeasured(ctx, c.gears, c.gateStream, 1-p.Percentile); err != nil || !c.gateResult.KeepsSLO(p) {
		return err
	}
	c.planResult = c.gateResult
	byWeight := lists.Indexes(len(p.RangeEdges)) // the range of the most requests first
	slices.SortStableFunc(byWeight, func(a, b int) int { return cmp.Compare(p.RangeWeights[b], p.RangeWeights[a]) })

	// Raise one range after another.
	for raisedAny := true; raisedAny; {
		raisedAny = false
		for _, r := range byWeight {
			path, err := c.climbPath(ctx, r)
			if err != nil {
				return err
			}
			passedSteps, err := c.climbHighest(ctx, path)
			if err != nil {
				return err
			}
			raisedAny = raisedAny || passedSteps > 0
		}
	}
	return nil
}

// climbStep is a set of gears in which one range was given a more accurate one, with the result on the gate
// stream.
type climbStep struct {
	rangeIndex int
	gears      []trials.PlannedGear
	result     trials.MeasuredResult
}

// climbPath returns ever more accurate gears for range r, as steps that each keep the SLO on the gate stream (the one
// that failed last, or the first before any has) and gain accuracy. The climber itself is not changed. Cascades are
// tried along the front, by rising accuracy, in steps that double after each success. A longer step that fails goes
// back to the first cascade that it skipped. The path ends after maxClimbFails failures of single steps in a row, or at
// the limit of simulated requests.
func (c *gearClimber) climbPath(ctx context.Context, r int) (path []climbStep, err error) {
	p, current, bestResult := c.simulator.Problem, &c.gears[r], c.gateResult
	// first is the least accurate cascade of the front that is left to try: here the first above the present gear. The comparison
	// never finds an equal one, so the search ends where the cascades begin that are more accurate.
	first, _ := slices.BinarySearchFunc(c.front, current.Cascade.CorrectCount, func(s placement.LoadedCascade, correct int32) int {
		if s.Cascade.CorrectCount <= correct {
			return -1
		}
		return 1
	})

	// Skip cascades that gain too little.
	for first < len(c.front) && p.RangeWeights[r]*(cascades.PlannedAccuracy(p, c.front[first].Cascade)-current.Accuracy) < trials.MinAccuracyGain {
		first++
	}

	// Try cascades, with growing steps, until some fail in a row. k is the one to try: the step-th of those from first on. All
	// runs together may have maxClimbRequests requests, or maxClimbRepeats times the measured ones if that is more.
	maxRequests := max(maxClimbRequests, maxClimbRepeats*int(lists.Total(p.MeasuredRates)))
	step, failures := 1, 0
	for k := first; k < len(c.front) && failures < maxClimbFails && c.simulator.MeasuredRequests < maxRequests; {
		gears := slices.Clone(c.gears)
		gears[r] = trials.NewGear(p, &c.front[k], p.RangeEdges[r], trials.Trial{})
		result, err := c.simulator.RunMeasured(ctx, gears, c.gateStream, 1-p.Percentile)
		if err != nil {
			return nil, err
		}
		switch ok := result.KeepsSLO(p) && result.Accuracy > bestResult.Accuracy+trials.MinAccuracyGain; {
		case ok:
			path, bestResult, failures = append(path, climbStep{r, gears, result}), result, 0
			first, step = k+1, 2*step
		case step > 1:
			step = 1 // go back to the first cascade that the step skipped
		default:
			failures++
			first = k + 1
		}
		if k = first + step - 1; k >= len(c.front) { // the step leads past the end
			step, k = 1, first
		}
	}
	return path, nil
}

// climbHighest makes the last gears of a path that keep the SLO on all streams the climber's own gears, and returns the
// number of steps of the path up to them. A path has ever more accurate gears. It tries the whole path first and then
// bisects. If it returns an error, it has taken the best gears that were seen to keep the SLO.
//
// A stream that gears fail on becomes the gate stream, on which later paths are tried first. A climber without a gate
// (noGate) gets none: repeatSteps makes paths without trying them on a gate first, so every stream must be run.
func (c *gearClimber) climbHighest(ctx context.Context, path []climbStep) (passedSteps int, err error) {
	low, gate := 0, c.gateStream // the first `low` steps keep the SLO, and more than `high` do not
	for high, middle := len(path), len(path)-1; low < high && err == nil; middle = (low + high) / 2 {
		var result *trials.MeasuredResult // nil if a stream fails
		var failedStream int
		if result, failedStream, err = c.runAllStreams(ctx, &path[middle]); result != nil {
			c.streamsResult, low = result, middle+1
		} else {
			high, gate = middle, failedStream
		}
	}

	// Take the last step that passed, even if a later run ended with an error.
	if low > 0 {
		c.gears, c.gateResult = path[low-1].gears, path[low-1].result
		c.steps = append(c.steps, path[:low]...)
	}

	// The stream that failed becomes the gate. Its result is that of the present gears, run to the end: any share may be late.
	if err == nil && gate != c.gateStream && c.gateStream != noGate {
		c.gateStream = gate
		const maxLateShare = 1
		c.gateResult, err = c.simulator.RunMeasured(ctx, c.gears, gate, maxLateShare)
	}
	return low, err
}

// runAllStreams simulates the gears of a step on all streams of measured rates (random arrivals, and even ones). The
// gate stream, on which steps are tried first, is not run again: the step has its result. It returns the worst tail
// latency and late share of the streams, and the means over the random ones of the accuracy and of each gear's share of
// requests. If a stream misses the SLO, or the late shares of the streams leave a chance of more than maxMissChance
// that one fresh stream does, the result is nil, and failedStream is the stream that shows it: the failed one, or the
// random one with the most late requests.
func (c *gearClimber) runAllStreams(ctx context.Context, step *climbStep) (worst *trials.MeasuredResult, failedStream int, err error) {
	p, worstStream := c.simulator.Problem, 0
	var random []trials.MeasuredResult
	var lateShares []float64 // by random stream
	worst = &trials.MeasuredResult{}

	// Run the streams. The even one has number -1, and the random ones follow from 0 on.
	for k := trials.EvenStream; k < c.streams; k++ {
		result := step.result
		if k != c.gateStream {
			if result, err = c.simulator.RunMeasured(ctx, step.gears, k, 1-p.Percentile); err != nil || !result.KeepsSLO(p) {
				return nil, k, err
			}
		}
		worst.TakeWorst(&result)
		if k == trials.EvenStream {
			continue
		}
		random, lateShares = append(random, result), append(lateShares, result.LateShare)
		if result.LateShare > lateShares[worstStream] {
			worstStream = k
		}
	}

	// A fresh stream may miss the SLO only with a small chance.
	const freshStreams = 1
	worst.Accuracy, worst.GearShares = trials.MeanOfStreams(random)
	if len(lateShares) > 1 && !tolerance.IndependentValues(lateShares).SeldomAbove(1-p.Percentile, freshStreams, maxMissChance, trials.TrialConfidence) {
		return nil, worstStream, nil
	}
	return worst, 0, nil
}

// climbedPlan returns the plan with the raised gears, and what all streams showed of them. If none was raised,
// it is the plan itself.
func (c *gearClimber) climbedPlan(plan *trials.Plan) *trials.Plan {
	if c.streamsResult == nil {
		return plan
	}
	climbed := *plan
	climbed.Gears = c.gears
	climbed.AdoptMeasured(c.simulator.Problem, c.streamsResult)
	return &climbed
}

// If there are many measured rates, climbing uses a sample of windows, each windowLengthSLOs SLOs long, with about
// maxSampledRequests requests together.
const (
	windowLengthSLOs   = 10
	maxSampledRequests = 200_000
)

// sampleWindows returns a copy of the problem with a sample of its measured rates of about maxSampledRequests requests,
// if they have many requests. Else it returns the problem. The sample consists of windows of some SLOs, taken at equal
// steps of their order by rate, the busiest included, so all rates occur about as often as before. They stay in order
// of time.
func sampleWindows(p *cascades.Problem) *cascades.Problem {
	if !p.HasManyRequests() {
		return p
	}
	windows := slices.Collect(slices.Chunk(p.MeasuredRates, int(math.Ceil(windowLengthSLOs*p.SLO.Seconds()))))
	byRate := lists.Indexes(len(windows))
	slices.SortStableFunc(byRate, func(a, b int) int { return cmp.Compare(lists.Total(windows[b]), lists.Total(windows[a])) })
	stride := int(math.Ceil(lists.Total(p.MeasuredRates) / maxSampledRequests)) // one window in so many is taken
	var sampled []int
	for k := 0; k < len(byRate); k += stride {
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

// repeatSteps repeats the steps of a climb, which was made on a sample of the measured rates, on all rates, as far as
// these keep the SLO. Each step gives one range a more accurate gear. If a step is refused, it and the later steps of
// its range are left out, and the others go on from the gears that have passed, which climbHighest makes the climber's
// own.
func (c *gearClimber) repeatSteps(ctx context.Context, steps []climbStep) error {
	for len(steps) > 0 {
		// The path from the present gears: of each step only the gear of its range is taken, as steps before it may be left out.
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
