package check

import (
	"cmp"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/planner/recompute"
)

// BetweenRuns is the relative standard deviation of the rates of one plan by profiles of one machine
// that were measured at different times. It is used for profiles that do not say their own.
const BetweenRuns = 0.015

// priorFreedom is the number of degrees of freedom of the known spread, beside that of the profiles at
// hand (Smyth 2004, "Linear models and empirical Bayes methods", section 3: a moderated t-test).
const knownSpread = 3

// minProfiles is the number of profiles on a side from which on no single one of them decides.
const enoughRuns = 3

// falseAlarmRate is how often a plan may fail though nothing has changed, over all its models
// together.
const alarms = 0.025

// profileSets holds the profiles of the promise and of today. With several on a side, the plan is
// evaluated by each.
type profiles struct {
	old, now []*formats.Profile // current has at least one
	same     bool               // the plan was promised by the profile of today
	busy     bool               // times are CPU times, see useCPUTimes
	steady   bool               // times are as of one speed of the machine, see removeDrift
	common   bool               // with driftRemoved: all models changed relative to the reference
	machine  []kind.Sample      // speed of the machine before and now, if driftRemoved
}

// chanceModel says by how much figures of times differ by chance: two profiles of an unchanged model
// never agree.
type noise struct {
	spread float64 // relative standard deviation of the figure of one profile
	alpha  float64 // false alarm rate of one figure, one-sided
	a, b   int     // numbers of profiles
	known  bool    // the spread of the profiles at hand does not count
}

// chanceOf returns the chance model of a plan's figures. The variance of a profile is that of its
// medians, by their half widths, and that between runs.
func (p *profiles) noise(plan *formats.Plan) noise {
	n := noise{alpha: alarms, a: max(1, len(p.old)), b: len(p.now)}
	if p.same {
		return n
	}
	switch {
	case p.common: // all models together are worse by more than chance
		n.known = true
	case p.steady: // each model has its own chance
		n.alpha /= float64(max(1, len(plan.Deployment)))
	}

	// Average the variances of all profiles.
	sum, all := 0.0, slices.Concat(p.old, p.now)
	for _, one := range all {
		between, within := p.between(plan, one), recompute.HalfWidth(plan, one)/surely
		// The spread between runs, as it was measured, contains the usual half widths.
		if p.steady {
			sum += max(between*between, within*within/batches(one))
			continue
		}
		sum += between*between + within*within
	}
	n.spread = math.Sqrt(sum / float64(len(all)))
	return n
}

// quantile95 is the normal quantile of the half widths, whose intervals hold with 95 %.
const surely = 1.96

// spreadBetweenRuns returns the relative standard deviation from run to run.
func (p *profiles) between(plan *formats.Plan, one *formats.Profile) float64 {
	switch {
	case p.busy:
		return BusyBetweenRuns
	case p.common:
		return CommonBetweenRuns
	case p.steady:
		return SteadyBetweenRuns
	}
	return betweenRuns(plan, one)
}

// significance returns the difference of two sides beyond which it is no chance, and the probability
// that they differ as much as worse by chance.
func (n *noise) differ(old, now []float64, worse float64) (least, p float64) {
	if n.spread == 0 {
		return 0, 0
	}

	// Pool the known spread with that of the sides (moderated t-test).
	free, squares := float64(knownSpread), knownSpread*n.spread*n.spread
	for _, side := range [][]float64{old, now} {
		if !n.known && len(side) > 1 && stat.Mean(side, nil) > 0 {
			free += float64(len(side) - 1)
			squares += math.Pow(stat.StdDev(side, nil)/stat.Mean(side, nil), 2) * float64(len(side)-1)
		}
	}
	scale := math.Sqrt(squares / free * (1/float64(n.a) + 1/float64(n.b)))
	if free == knownSpread { // one profile on each side has no spread of its own
		return distuv.UnitNormal.Quantile(1-n.alpha) * scale, distuv.UnitNormal.Survival(worse / scale)
	}
	t := distuv.StudentsT{Sigma: 1, Nu: free}
	return t.Quantile(1-n.alpha) * scale, t.Survival(worse / scale)
}

// meanBatchSizes returns the mean number of batch sizes that a profile has for a model.
func batches(p *formats.Profile) float64 {
	all := 0
	for i := range p.Models {
		all += len(p.Models[i].Measurements)
	}
	return max(1, float64(all)/float64(max(1, len(p.Models))))
}

// kindSpread returns the spread between runs of the plan's device kind that varies most.
func betweenRuns(plan *formats.Plan, profile *formats.Profile) float64 {
	spread := 0.0
	for i := range plan.Pools {
		at := slices.IndexFunc(profile.Devices, func(d formats.ProfileDevice) bool { return d.Device == plan.Pools[i].Device })
		if at < 0 || profile.Devices[at].BetweenRuns == nil {
			return BetweenRuns
		}
		spread = max(spread, profile.Devices[at].BetweenRuns.Spread)
	}
	return spread
}

// middleProfile returns the index of the profile by which the plan's work is the median. It stands for
// today.
func middle(plan *formats.Plan, list []*formats.Profile) int {
	order := make([]int, len(list))
	work := make([]time.Duration, len(list))
	for i, p := range list {
		order[i], work[i] = i, recompute.Work(plan, p)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(work[a], work[b]) })
	return order[(len(order)-1)/2]
}

// minDifference returns by how much figures must differ so that it is no chance, if the profiles have no
// spread of their own.
func (n *noise) least() float64 {
	d, _ := n.differ(nil, nil, 0)
	return d
}

// makeComparable gives the profiles of both sides the same cuts, the same clock and the same speed of the
// machine. It returns notes about the changes.
func (p *profiles) comparable(plan *formats.Plan) (notes []string) {
	if note := p.recut(); note != "" {
		notes = append(notes, note)
	}
	p.calmed(plan)
	p.steadied(plan)
	return notes
}

// figureValues holds the values of one figure, one by each profile.
type runs struct{ old, now []float64 }

// median returns the median of some values.
func center(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// collect collects the values of one figure.
func (r *runs) of(s *kind.Sample, now, old [][]kind.Sample) {
	values := func(lists [][]kind.Sample) (out []float64) {
		for _, list := range lists {
			for i := range list {
				if list[i].Metric == s.Metric && list[i].What == s.What {
					out = append(out, list[i].New)
				}
			}
		}
		return out
	}
	r.now, r.old = values(now), values(old)
}
