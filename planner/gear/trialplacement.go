package gear

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// maxFilledShare is the part of the remaining time of a device that a split with shorter batches may use.
const maxFilledShare = .7

// loadedCascade is a cascade on a placement with a split of its work. Loads are in seconds per request.
type loadedCascade struct {
	cascade             *Cascade
	deviceLoad, maxLoad float64     // of the busiest device, and of the busiest device or NIC
	shares              [][]float64 // by model and replica
}

// trialPlacement is a placement on which cascades are tried.
type trialPlacement struct {
	layout        *deviceLayout
	simulator     *gearSimulator
	history       *trialHistory
	maxAccuracies []float64 // by range: the accuracy that the fluid model allows
	partialPlan   *Outcome  // the plan so far, ranges in order
}

// planRanges makes the plan of one placement: it gives every range of rates the most accurate cascade that
// passes a trial (simulated runs at the upper edge). A gear that fails at a rate also fails at a higher one, so
// each range starts where the range below ended. It returns an InfeasibleError as soon as the remaining ranges
// cannot reach the target and exceed minAccuracy. progress is called after every range that is done. It may be nil.
func (d *trialPlacement) planRanges(ctx context.Context, minAccuracy float64, progress func(done, ranges int)) (*Outcome, error) {
	p := d.layout.space.problem
	plan := &Outcome{Problem: p, Configs: d.layout.configs, Chains: d.layout.chains, placement: d}
	d.partialPlan = plan
	next := 0 // in the order by accuracy, the most accurate cascade that was not ruled out
	for r := range p.RangeEdges {
		var err error
		if next, err = d.findGear(ctx, next, minAccuracy); err != nil {
			return nil, err
		}
		if progress != nil {
			progress(r+1, len(p.RangeEdges))
		}
	}

	// Check the whole plan.
	if err := d.lightenLastRange(ctx, plan, minAccuracy); err != nil {
		return nil, err
	}
	if d.isRefused(plan.Accuracy, minAccuracy) {
		return nil, &InfeasibleError{TargetAccuracy: p.TargetAccuracy, BestAccuracy: plan.Accuracy}
	}
	return plan, nil
}

// isRefused reports whether a plan of at most some accuracy is not good enough. If the SLO is over all requests, none
// is refused, because late ranges may still be allowed.
func (d *trialPlacement) isRefused(accuracy, minAccuracy float64) bool {
	p := d.layout.space.problem
	return !p.OverRequests && (p.missesTarget(accuracy) || minAccuracy > 0 && accuracy <= minAccuracy)
}

// findGear adds the gear of the next range of rates to the partial plan: the most accurate cascade that passes
// a trial at the range's upper edge, from index next on in the order by accuracy. It returns the index of that
// cascade. Cascades that a failed one rules out are not tried. It returns an InfeasibleError if no cascade
// passes, or no plan would be good enough any more.
func (d *trialPlacement) findGear(ctx context.Context, next int, minAccuracy float64) (int, error) {
	space, p, plan := d.layout.space, d.layout.space.problem, d.partialPlan
	r := len(plan.Gears)
	edge := p.RangeEdges[r]
	var lastTrial *Trial
	var failedCascades []failedCascade
	isHopeless := func(cascade int, maxLoad float64) bool {
		return maxLoad*edge > 1 || slices.ContainsFunc(failedCascades, func(f failedCascade) bool { return f.rulesOut(&space.cascades[cascade], maxLoad) })
	}
	for ; next < len(space.byAccuracy); next++ {
		// Skip the cascade if the bound of its load, or a failed cascade, rules it out.
		cascade := space.byAccuracy[next]
		if isHopeless(cascade, d.layout.loadLowerBound(cascade)) {
			continue
		}

		// Give up if no plan with at most this accuracy is good enough.
		if reachable := d.maxPlanAccuracy(plan, r, plannedAccuracy(p, &space.cascades[cascade])); d.isRefused(reachable, minAccuracy) {
			return 0, &InfeasibleError{TargetAccuracy: p.TargetAccuracy, BestAccuracy: reachable}
		}

		// Split its work, and try it.
		s, err := d.layout.loadCascade(ctx, cascade)
		if err != nil {
			return 0, err
		}
		if isHopeless(cascade, s.maxLoad) {
			continue
		}
		trial, err := d.tryCascade(ctx, cascade, s, edge)
		if err != nil {
			return 0, err
		}

		// Take it if it passes.
		plan.FrontSize++
		if lastTrial = &trial; trial.Passed {
			plan.Gears = append(plan.Gears, newGear(p, s, edge, trial))
			plan.Accuracy += p.RangeWeights[r] * plan.Gears[r].Accuracy
			return next, nil
		}
		failedCascades = append(failedCascades, failedCascade{&space.cascades[cascade], s.maxLoad})
	}
	return 0, d.layout.infeasibleRange(ctx, r, lastTrial)
}

// lightenLastRange gives the last range a cascade with less load if the plan loses less than nextPlacementGain
// by it, and the lighter cascade passes a trial. The last range also serves all rates above it, and under
// overload a lighter cascade answers more requests in time.
func (d *trialPlacement) lightenLastRange(ctx context.Context, plan *Outcome, minAccuracy float64) error {
	p := d.layout.space.problem
	r := len(p.RangeEdges) - 1
	maxCorrect := plan.Gears[r].Cascade.CorrectCount
	front, err := d.layout.cascadeFront(ctx, maxCorrect-int32(math.Ceil(min(1, nextPlacementGain/p.RangeWeights[r])*float64(p.PlanningSamples.N))), maxCorrect)
	if err != nil {
		return err
	}

	// Try the cascades of the front, the most accurate first, until one passes or costs too much accuracy.
	for _, i := range slices.Backward(front) {
		loss := p.RangeWeights[r] * (plan.Gears[r].Accuracy - plannedAccuracy(p, &d.layout.space.cascades[i]))
		if loss == 0 || loss >= nextPlacementGain || p.missesTarget(plan.Accuracy-loss) || plan.Accuracy-loss <= minAccuracy {
			return nil
		}
		s, err := d.layout.loadCascade(ctx, i)
		if err != nil {
			return err
		}
		if s.maxLoad*p.RangeEdges[r] > 1 {
			continue
		}
		trial, err := d.tryCascade(ctx, i, s, p.RangeEdges[r])
		if err != nil {
			return err
		}
		if trial.Passed {
			plan.Gears[r] = newGear(p, s, p.RangeEdges[r], trial)
			plan.Accuracy -= loss
			return nil
		}
	}
	return nil
}

// failedCascade is a cascade that failed its trial, with the load of the busiest device or NIC.
type failedCascade struct {
	cascade *Cascade
	maxLoad float64
}

// rulesOut reports whether another cascade need not be tried after f failed a trial at the same rate: it asks
// all models of f, and either each for as many samples or with more load. A cascade of other models may still
// pass, because it may use other devices than those on which requests were late.
func (f failedCascade) rulesOut(other *Cascade, maxLoad float64) bool {
	position, reachesFewer := 0, false
	for k, m := range f.cascade.Models {
		for position < len(other.Models) && other.Models[position] < m {
			position++
		}
		if position == len(other.Models) || other.Models[position] != m {
			return false
		}
		reachesFewer = reachesFewer || other.ReachCounts[position] < f.cascade.ReachCounts[k]
	}
	return !reachesFewer || maxLoad > f.maxLoad*(1+1e-9)
}

// trialVerdict holds the SLOs that a cascade passed and failed in trials, on a placement at a rate. A cascade that passes also
// passes with a longer SLO, and one that fails also fails with a shorter one.
type trialVerdict struct {
	failingSLO, passingSLO   time.Duration // the longest SLO that failed and the shortest that passed; 0 if none did
	passing                  loadedCascade // with the split that passed
	passedTrial, failedTrial Trial         // the trials at these SLOs
}

// trialHistory holds what the trials of a search share: the seed of all streams, the verdicts by placement, cascade
// and rate, and the number of simulated runs.
type trialHistory struct {
	seed     uint64
	verdicts map[string]*trialVerdict
	runCount int
}

// newTrialHistory returns a history without trials. The seed is that of all streams.
func newTrialHistory(seed uint64) *trialHistory {
	return &trialHistory{seed: seed, verdicts: map[string]*trialVerdict{}}
}

// tryCascade tries a cascade at a rate in simulation, unless trials with another SLO have decided already: what
// passes a shorter SLO passes a longer one. If it passes, s gets the split that passed.
func (d *trialPlacement) tryCascade(ctx context.Context, cascade int, s *loadedCascade, rate float64) (t Trial, err error) {
	known, slo := d.knownVerdict(cascade, rate), d.layout.space.problem.SLO
	switch {
	case known.passingSLO > 0 && slo >= known.passingSLO:
		*s = known.passing
		return known.passedTrial, nil
	case slo <= known.failingSLO:
		return known.failedTrial, nil
	}
	if t, err = d.trySplits(ctx, cascade, s, rate); err != nil {
		return t, err
	}
	if t.Passed {
		known.passingSLO, known.passing, known.passedTrial = slo, *s, t
	} else {
		known.failingSLO, known.failedTrial = slo, t
	}
	return t, nil
}

// knownVerdict returns the verdict of earlier trials of a cascade at a rate, on devices with the same models,
// stages and largest batches. If there were none, it returns an empty verdict to be filled in.
func (d *trialPlacement) knownVerdict(i int, rate float64) *trialVerdict {
	cascade := &d.layout.space.cascades[i]
	key := fmt.Sprint(d.layout.configs, cascade.Models, cascade.Levels, rate)
	for i := range d.layout.chains {
		key += " " + d.layout.chains[i].key()
	}
	for _, batch := range d.layout.space.maxBatch {
		for _, m := range cascade.Models {
			key += fmt.Sprint(" ", batch[m])
		}
	}
	if d.history.verdicts[key] == nil {
		d.history.verdicts[key] = &trialVerdict{}
	}
	return d.history.verdicts[key]
}

// trySplits tries a cascade at a rate with several splits of its work over the devices until one passes: the
// one of least load, the one with short batches, and, below the highest rate, the one with every model on few
// devices. s gets the split that passes.
func (d *trialPlacement) trySplits(ctx context.Context, cascade int, s *loadedCascade, rate float64) (Trial, error) {
	t, err := d.simulator.tryCascade(ctx, s, rate)
	if t.Passed || err != nil {
		return t, err
	}

	// Short batches.
	shortBatches, err := d.layout.shortBatchSplit(ctx, cascade, s.maxLoad, 1/rate)
	if err != nil {
		return t, err
	}
	if shortBatches != nil && !slices.EqualFunc(shortBatches.shares, s.shares, slices.Equal[[]float64]) {
		if t, err = d.simulator.tryCascade(ctx, shortBatches, rate); t.Passed || err != nil {
			*s = *shortBatches
			return t, err
		}
	}

	// Few devices per model.
	concentrated := *s
	if edges := d.layout.space.problem.RangeEdges; rate >= edges[len(edges)-1] {
		return t, nil // this gear also serves all higher rates, and under overload the even split answers more
	}
	if concentrated.shares = d.layout.concentratedSplit(cascade, s.shares); concentrated.shares == nil {
		return t, nil
	}
	concentratedTrial, err := d.simulator.tryCascade(ctx, &concentrated, rate)
	if concentratedTrial.Passed {
		*s = concentrated
		return concentratedTrial, err
	}
	return t, err
}

// maxPlanAccuracy returns the most accuracy that a plan can reach, by weight, if its ranges from rangeIndex on
// are at most as accurate as given. Higher ranges are never more accurate than lower ones, and none exceeds
// what the placement allows without queueing.
func (d *trialPlacement) maxPlanAccuracy(plan *Outcome, rangeIndex int, accuracy float64) float64 {
	total := plan.Accuracy
	for ; rangeIndex < len(d.layout.space.problem.RangeEdges); rangeIndex++ {
		if rangeIndex < len(d.maxAccuracies) && d.maxAccuracies[rangeIndex] < accuracy {
			accuracy = d.maxAccuracies[rangeIndex]
		}
		total += d.layout.space.problem.RangeWeights[rangeIndex] * accuracy
	}
	return total
}

// newGear returns a loaded cascade as the gear of a range with the given upper edge.
func newGear(p *Problem, s *loadedCascade, edge float64, t Trial) PlannedGear {
	return PlannedGear{Cascade: *s.cascade, MinQueue: 1, Shares: s.shares, BusiestLoad: s.deviceLoad * edge, Trial: t, Accuracy: plannedAccuracy(p, s.cascade)}
}

// plannedAccuracy returns the share of the planning samples that a cascade answers correctly.
func plannedAccuracy(p *Problem, c *Cascade) float64 {
	return float64(c.CorrectCount) / float64(p.PlanningSamples.N)
}

// newTrialPlacement returns a layout as a placement to try cascades on. maxAccuracies has, by range, the accuracy that
// the fluid model allows it. It may be nil.
func newTrialPlacement(l *deviceLayout, history *trialHistory, maxAccuracies []float64) *trialPlacement {
	simulator := newSimulator(l.space.problem, l.configs, l.chains, history.seed)
	simulator.runCount = &history.runCount
	return &trialPlacement{layout: l, simulator: simulator, history: history, maxAccuracies: maxAccuracies}
}

// loadCascade returns a cascade with the split of its work over the devices that loads the busiest one least.
// If the layout lacks one of its models, the loads are infinite.
func (l *deviceLayout) loadCascade(ctx context.Context, cascade int) (*loadedCascade, error) {
	s, err := l.bestSplit(ctx, cascade)
	if err != nil || s.groupShares == nil {
		return &loadedCascade{deviceLoad: math.Inf(1), maxLoad: math.Inf(1)}, err
	}
	return &loadedCascade{&l.space.cascades[cascade], s.deviceLoad, s.maxLoad, l.replicaShares(s)}, nil
}

// shortBatchSplit returns a cascade with a split of its work that keeps batches short. It may load the busiest
// device more than the least possible maxLoad: by a part of what that leaves free below loadLimit, at which the
// device is always busy. If no such split exists, it returns nil.
func (l *deviceLayout) shortBatchSplit(ctx context.Context, cascade int, maxLoad, loadLimit float64) (*loadedCascade, error) {
	s, err := l.solveSplit(ctx, cascade, maxLoad+maxFilledShare*(loadLimit-maxLoad))
	if err != nil || s.groupShares == nil || s.maxLoad >= loadLimit {
		return nil, err
	}
	return &loadedCascade{&l.space.cascades[cascade], s.deviceLoad, s.maxLoad, l.replicaShares(s)}, nil
}

// feasibleFront returns the cascades, with more than minCorrect correct answers, that no other one beats in
// accuracy with less load and that devices and network cards have time for at a rate, by rising load and
// accuracy.
func (l *deviceLayout) feasibleFront(ctx context.Context, rate float64, minCorrect int32) (list []loadedCascade, err error) {
	front, err := l.cascadeFront(ctx, minCorrect, math.MaxInt32)
	if err != nil {
		return nil, err
	}
	for _, cascade := range front {
		if l.loadLowerBound(cascade)*rate > 1 {
			break
		}
		s, err := l.loadCascade(ctx, cascade)
		if err != nil || s.maxLoad*rate > 1 {
			return list, err
		}
		list = append(list, *s)
	}
	return list, nil
}

// cascadeFront returns the cascades with more than minCorrect and up to maxCorrect correct answers that no other
// of these beats with less load, by rising load. Solved programs bound the other loads from below. Once all
// cascades on the front of these bounds have been solved, it is the front of the loads: a cascade that its bound
// excludes is also excluded by its load.
func (l *deviceLayout) cascadeFront(ctx context.Context, minCorrect, maxCorrect int32) ([]int, error) {
	space := l.space
	loadBounds := make([]float64, len(space.cascades))
	for {
		// Take the load if it is known, else its bound.
		for i := range space.cascades {
			loadBounds[i] = math.Inf(1)
			if correct := space.cascades[i].CorrectCount; correct <= minCorrect || correct > maxCorrect {
				continue
			}
			loadBounds[i] = l.loadLowerBound(i)
			if s, ok := l.splits[i]; ok {
				loadBounds[i] = s.maxLoad
			}
		}

		// Solve the programs of the cascades on this front.
		front, solvedMore := ParetoFront(loadBounds, space.cascades), false
		for _, i := range front {
			if _, ok := l.splits[i]; ok {
				continue
			}
			solvedMore = true
			if _, err := l.bestSplit(ctx, i); err != nil {
				return nil, err
			}
		}
		if !solvedMore {
			return front, nil
		}
	}
}

// infeasibleRange returns the error that range r has no gear. It names the lightest of the cascades that the
// placement has the models for.
func (l *deviceLayout) infeasibleRange(ctx context.Context, r int, lastTrial *Trial) error {
	space, cascade, devices := l.space, l.lightestCascade(), 0
	if cascade < 0 {
		return &InfeasibleError{Range: r, RangeEdge: space.problem.RangeEdges[r], NoneUsable: true}
	}
	s, err := l.loadCascade(ctx, cascade)
	if err != nil {
		return err
	}
	infeasible, maxRate := noGearError(space.problem, r, &space.cascades[cascade], s.maxLoad, lastTrial), space.problem.RangeEdges[len(space.problem.RangeEdges)-1]
	for k := range space.problem.Kinds {
		devices += space.problem.Kinds[k].Devices
	}
	if lastTrial == nil {
		infeasible.Devices = int(math.Ceil(float64(devices) * maxRate * s.maxLoad))
	}
	return infeasible
}

// lightestCascade returns the cascade that takes the least device time, among those whose models the placement
// has. If there is none, it returns -1.
func (l *deviceLayout) lightestCascade() int {
	lightest, minWork := -1, math.Inf(1)
	costs := l.cheapestCosts(slices.Repeat([]float64{1}, len(l.deviceGroups)), nil)
	for i := range l.space.cascades {
		work := 0.0
		for _, m := range l.space.cascades[i].Models {
			if share := l.space.reachShares[i][m]; share > 0 {
				work += share * costs[m]
			}
		}
		if work < minWork {
			lightest, minWork = i, work
		}
	}
	return lightest
}

// noGearError returns the error that range r has no gear. c is the lightest cascade, of which the busiest
// device works load seconds per request, and lastTrial the last trial, or nil if there was none.
func noGearError(p *Problem, r int, c *Cascade, load float64, lastTrial *Trial) *InfeasibleError {
	infeasible := &InfeasibleError{Range: r, RangeEdge: p.RangeEdges[r], Model: p.Models[c.Models[0]].Name, MaxQPS: 1 / load}
	if lastTrial != nil {
		infeasible.LatencyMS, infeasible.Unstable, infeasible.TooManyRequests, infeasible.FailsHeldOut = max(0, float64(max(lastTrial.Latency, lastTrial.HeldOutLatency))/1e6), !lastTrial.Stable, lastTrial.tooManyRequests, lastTrial.failsHeldOut
	}
	return infeasible
}
