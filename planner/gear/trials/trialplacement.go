package trials

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/placement"
	"inferplan/planner/gear/planspace"
	"inferplan/planner/lists"
)

// Placement is a placement on which cascades are tried.
type Placement struct {
	Layout        *placement.Layout
	Simulator     *Simulator
	history       *History
	maxAccuracies []float64 // by range: the accuracy that the fluid model allows
	partialPlan   *Plan     // the plan so far, ranges in order
}

// PlanRanges makes the plan of one placement: it gives every range of rates the most accurate cascade that passes a
// trial (simulated runs at the upper edge). A gear that fails at a rate also fails at a higher one, so each range
// starts at the cascade where the range below ended. It returns an InfeasibleError if a range has no gear, or as soon
// as the plan cannot reach the target and exceed minAccuracy any more (0 if any plan will do; see isRefused). progress
// is called after every range that is done. It may be nil. partialPlan has the gears so far if the search is
// interrupted.
func (d *Placement) PlanRanges(ctx context.Context, minAccuracy float64, progress func(done, ranges int)) (*Plan, error) {
	p := d.Layout.Space.Problem
	plan := d.NewPlan()
	d.partialPlan = plan // findGear adds the gears to it
	next := 0            // in the order by accuracy, the most accurate cascade that was not ruled out
	for r := range p.RangeEdges {
		var err error
		if next, err = d.findGear(ctx, next, minAccuracy); err != nil {
			return nil, err
		}
		if progress != nil {
			progress(r+1, len(p.RangeEdges))
		}
	}

	if d.isRefused(plan.Accuracy, minAccuracy) {
		return nil, &cascades.InfeasibleError{TargetAccuracy: p.TargetAccuracy, BestAccuracy: plan.Accuracy}
	}
	return plan, nil
}

// isRefused reports whether a plan of at most some accuracy is not good enough: it misses the target, or does not
// exceed minAccuracy, where 0 admits any plan. If the SLO is over all requests together, none is refused, because late
// ranges may still be allowed.
func (d *Placement) isRefused(accuracy, minAccuracy float64) bool {
	p := d.Layout.Space.Problem
	return !p.OverRequests && (p.MissesTarget(accuracy) || minAccuracy > 0 && accuracy <= minAccuracy)
}

// findGear adds the gear of the next range of rates to the partial plan: the most accurate cascade that passes a trial
// (simulated runs) at the range's upper edge, from index next on in the order by falling accuracy. It returns the index
// of that cascade. Cascades that a failed one rules out are not tried. It returns an InfeasibleError if no cascade
// passes, or no plan would be good enough any more.
func (d *Placement) findGear(ctx context.Context, next int, minAccuracy float64) (int, error) {
	space, p, plan := d.Layout.Space, d.Layout.Space.Problem, d.partialPlan
	r := len(plan.Gears)
	edge := p.RangeEdges[r]
	var lastTrial *Trial
	var failedCascades []failedCascade
	// isHopeless reports whether the devices have no time for a cascade of a load (seconds per request), or a failed one rules it
	// out.
	isHopeless := func(cascade int, maxLoad float64) bool {
		return maxLoad*edge > 1 || slices.ContainsFunc(failedCascades, func(f failedCascade) bool { return f.rulesOut(&space.Cascades[cascade], maxLoad) })
	}
	for ; next < len(space.ByAccuracy); next++ {
		// Skip the cascade if the bound of its load, or a failed cascade, rules it out.
		cascade := space.ByAccuracy[next]
		if isHopeless(cascade, d.Layout.LoadLowerBound(cascade)) {
			continue
		}

		// Give up if no plan with at most this accuracy is good enough.
		if reachable := d.maxPlanAccuracy(plan, r, cascades.PlannedAccuracy(p, &space.Cascades[cascade])); d.isRefused(reachable, minAccuracy) {
			return 0, &cascades.InfeasibleError{TargetAccuracy: p.TargetAccuracy, BestAccuracy: reachable}
		}

		// Split its work, and try it.
		s, err := d.Layout.LoadCascade(ctx, cascade)
		if err != nil {
			return 0, err
		}
		if isHopeless(cascade, s.MaxLoad) {
			continue
		}
		trial, err := d.TryCascade(ctx, cascade, s, edge)
		if err != nil {
			return 0, err
		}

		// Take it if it passes.
		if lastTrial = &trial; trial.Passed {
			plan.AddGear(NewGear(p, s, edge, trial))
			return next, nil
		}
		failedCascades = append(failedCascades, failedCascade{&space.Cascades[cascade], s.MaxLoad})
	}
	return 0, infeasibleRange(ctx, d.Layout, r, lastTrial)
}

// failedCascade is a cascade that failed its trial, with the load of the busiest device or NIC.
type failedCascade struct {
	cascade *cascades.Cascade
	maxLoad float64
}

// rulesOut reports whether another cascade need not be tried after f failed a trial at the same rate. The other one
// must ask all models of f. Then it is ruled out if it sends each of them at least as many samples, or if its load,
// otherLoad in seconds per request, is higher. A cascade of other models may still pass, because it may use other
// devices than those on which requests were late.
func (f failedCascade) rulesOut(other *cascades.Cascade, otherLoad float64) bool {
	// Find each model of f in the other cascade. Both ask their models in the order of the family, so one walk suffices.
	position, sendsFewer := 0, false
	for k, m := range f.cascade.Models {
		for position < len(other.Models) && other.Models[position] < m {
			position++
		}
		if position == len(other.Models) || other.Models[position] != m {
			return false
		}
		sendsFewer = sendsFewer || other.ReachCounts[position] < f.cascade.ReachCounts[k]
	}
	hasMoreLoad := otherLoad > f.maxLoad*(1+1e-9) // by more than rounding
	return !sendsFewer || hasMoreLoad
}

// trialVerdict holds the SLOs that a cascade passed and failed in trials, on a placement at a rate. A cascade that passes also
// passes with a longer SLO, and one that fails also fails with a shorter one.
type trialVerdict struct {
	failingSLO, passingSLO   time.Duration           // the longest SLO that failed and the shortest that passed; 0 if none did
	passing                  placement.LoadedCascade // with the split that passed
	passedTrial, failedTrial Trial                   // the trials at these SLOs
}

// History holds what the trials of a search share: the seed of all streams, the verdicts by placement, cascade
// and rate, and the number of simulated runs.
type History struct {
	seed     uint64
	verdicts map[string]*trialVerdict
	RunCount int
}

// NewHistory returns a history without trials. The seed is that of all streams.
func NewHistory(seed uint64) *History {
	return &History{seed: seed, verdicts: map[string]*trialVerdict{}}
}

// TryCascade tries a cascade, by its index in the space, at a rate in simulation, unless trials with another SLO have
// decided already: a cascade that passes by a shorter SLO passes by a longer one. s has the split to try first. If the
// cascade passes, s becomes the split that passed. The verdict is added to the history.
func (d *Placement) TryCascade(ctx context.Context, cascade int, s *placement.LoadedCascade, rate float64) (t Trial, err error) {
	known, slo := d.knownVerdict(cascade, rate), d.Layout.Space.Problem.SLO
	switch {
	case known.passingSLO > 0 && slo >= known.passingSLO:
		// The devices of the trial may have been those of another placement, which differs in models that the cascade does not ask.
		shares := slices.Clone(s.Shares)
		for _, m := range known.passing.Cascade.Models {
			shares[m] = known.passing.Shares[m]
		}
		*s = known.passing
		s.Shares = shares
		return known.passedTrial, nil
	case slo <= known.failingSLO:
		return known.failedTrial, nil
	}
	if t, err = d.TrySplits(ctx, cascade, s, rate); err != nil {
		return t, err
	}
	if t.Passed {
		known.passingSLO, known.passing, known.passedTrial = slo, *s, t
	} else {
		known.failingSLO, known.failedTrial = slo, t
	}
	return t, nil
}

// knownVerdict returns the verdict of earlier trials of a cascade (an index of the space) at a rate, on devices that
// hold the same of its models, stages and largest batches. If there were none, it adds an empty verdict to the history
// and returns it, to be filled in.
func (d *Placement) knownVerdict(i int, rate float64) *trialVerdict {
	cascade := &d.Layout.Space.Cascades[i]
	key := fmt.Sprint(d.configsOf(cascade), cascade.Models, cascade.Levels, rate)
	for i := range d.Layout.Chains {
		key += " " + d.Layout.Chains[i].Key()
	}
	for _, batch := range d.Layout.Space.MaxBatch {
		for _, m := range cascade.Models {
			key += fmt.Sprint(" ", batch[m])
		}
	}
	if d.history.verdicts[key] == nil {
		d.history.verdicts[key] = &trialVerdict{}
	}
	return d.history.verdicts[key]
}

// configsOf returns the devices that serve a cascade, with those of its models that they hold: other models and devices
// have no part in its trials. If members run in stages, it returns all devices with all that they hold.
func (d *Placement) configsOf(cascade *cascades.Cascade) []planspace.Config {
	if len(d.Layout.Chains) > 0 {
		return d.Layout.Configs
	}
	var cascadeModels uint32
	for _, m := range cascade.Models {
		cascadeModels |= 1 << m
	}
	var configs []planspace.Config
	for _, c := range d.Layout.Configs {
		if c.ModelSet &= cascadeModels; c.ModelSet != 0 {
			configs = append(configs, c)
		}
	}
	return configs
}

// TrySplits tries a cascade (an index of the space) at a rate with several splits of its work over the devices until
// one passes: the one of least load, which s has, the one with short batches, and, below the highest rate, the one with
// every model on few devices (concentrated). s becomes the split that passes; it may also change if there is an error.
//
// If none passes, it returns the trial with short batches or, if there is no such split, that of least load. The trial
// of the concentrated split counts only if it passes.
func (d *Placement) TrySplits(ctx context.Context, cascade int, s *placement.LoadedCascade, rate float64) (Trial, error) {
	t, err := d.Simulator.TryCascade(ctx, s, rate)
	if t.Passed || err != nil {
		return t, err
	}

	// Short batches. At a load of 1/rate seconds per request a device is busy all the time.
	shortBatches, err := d.Layout.ShortBatchSplit(ctx, cascade, s.MaxLoad, 1/rate)
	if err != nil {
		return t, err
	}
	if shortBatches != nil && !slices.EqualFunc(shortBatches.Shares, s.Shares, slices.Equal[[]float64]) {
		if t, err = d.Simulator.TryCascade(ctx, shortBatches, rate); t.Passed || err != nil {
			*s = *shortBatches
			return t, err
		}
	}

	// Few devices per model.
	if edges := d.Layout.Space.Problem.RangeEdges; rate >= edges[len(edges)-1] {
		return t, nil // this gear also serves all higher rates, and under overload the even split answers more
	}
	concentrated := *s // with the loads of the even split, which the concentrated one has, too
	if concentrated.Shares = d.Layout.ConcentratedSplit(cascade, s.Shares); concentrated.Shares == nil {
		return t, nil
	}
	concentratedTrial, err := d.Simulator.TryCascade(ctx, &concentrated, rate)
	if concentratedTrial.Passed {
		*s = concentrated
		return concentratedTrial, err
	}
	return t, err
}

// maxPlanAccuracy returns the most accuracy, weighted over all ranges of rates, that the plan so far can reach if its
// ranges from rangeIndex on are at most as accurate as given. Higher ranges are never more accurate than lower ones,
// and none exceeds the accuracy that the placement allows without queueing.
func (d *Placement) maxPlanAccuracy(plan *Plan, rangeIndex int, accuracy float64) float64 {
	total := plan.Accuracy
	for ; rangeIndex < len(d.Layout.Space.Problem.RangeEdges); rangeIndex++ {
		if rangeIndex < len(d.maxAccuracies) && d.maxAccuracies[rangeIndex] < accuracy {
			accuracy = d.maxAccuracies[rangeIndex]
		}
		total += d.Layout.Space.Problem.RangeWeights[rangeIndex] * accuracy
	}
	return total
}

// NewPlacement returns a layout as a placement to try cascades on. maxAccuracies has, by range, the accuracy that
// the fluid model allows it. It may be nil.
func NewPlacement(l *placement.Layout, history *History, maxAccuracies []float64) *Placement {
	simulator := NewSimulator(l.Space.Problem, l.Configs, l.Chains, history.seed)
	simulator.RunCount = &history.RunCount
	return &Placement{Layout: l, Simulator: simulator, history: history, maxAccuracies: maxAccuracies}
}

// infeasibleRange returns the error that range r of rates has no gear (no cascade that holds its upper edge). It names
// the lightest of the cascades that the placement has the models for. If a cascade was tried, it has the figures of
// lastTrial. Else (lastTrial is nil) it names the number of devices that the lightest cascade's work needs at the
// highest rate of all ranges.
func infeasibleRange(ctx context.Context, l *placement.Layout, r int, lastTrial *Trial) error {
	space, cascade := l.Space, l.LightestCascade()
	if cascade < 0 {
		return &cascades.InfeasibleError{Range: r, RangeEdge: space.Problem.RangeEdges[r], NoneUsable: true}
	}
	s, err := l.LoadCascade(ctx, cascade)
	if err != nil {
		return err
	}
	infeasible := noGearError(space.Problem, r, &space.Cascades[cascade], s.MaxLoad, lastTrial)
	if lastTrial == nil {
		maxRate, devices := space.Problem.RangeEdges[len(space.Problem.RangeEdges)-1], 0
		devices += lists.Sum(len(space.Problem.Kinds), func(k int) int { return space.Problem.Kinds[k].Devices })
		// MaxLoad is in seconds of work per request on the busiest device, so maxRate * MaxLoad is how many times too few the devices
		// are.
		infeasible.Devices = int(math.Ceil(float64(devices) * maxRate * s.MaxLoad))
	}
	return infeasible
}

// noGearError returns the error that range r of rates has no gear. c is the lightest cascade, load the work of the
// busiest device with it in seconds per request, and lastTrial the last trial of the range, or nil if there was none.
func noGearError(p *cascades.Problem, r int, c *cascades.Cascade, load float64, lastTrial *Trial) *cascades.InfeasibleError {
	infeasible := &cascades.InfeasibleError{Range: r, RangeEdge: p.RangeEdges[r], Model: p.Models[c.Models[0]].Name, MaxQPS: 1 / load}
	if lastTrial != nil {
		longest := max(0, lastTrial.Latency, lastTrial.HeldOutLatency) // a run that was stopped early has -1
		infeasible.LatencyMS, infeasible.Unstable, infeasible.TooManyRequests, infeasible.FailsHeldOut = float64(longest)/1e6, !lastTrial.Stable, lastTrial.tooManyRequests, lastTrial.failsHeldOut
	}
	return infeasible
}
