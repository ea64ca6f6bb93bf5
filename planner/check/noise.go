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

// BetweenRuns is the relative standard deviation of what one plan carries by
// profiles of one machine taken at different times, for profiles that do not tell
// their own.
const BetweenRuns = 0.015

// knownSpread is by how many degrees of freedom the spread that is known beforehand
// counts, beside that of the profiles at hand (Smyth 2004, "Linear models and empirical
// Bayes methods", section 3: a moderated t-test).
const knownSpread = 3

// enoughRuns is from how many profiles a side on no single one of them decides.
const enoughRuns = 3

// alarms is how often a plan may fail though nothing has changed, all its models
// together.
const alarms = 0.025

// profiles are the profiles of today and of the promise. With several a side, the
// plan is held against each.
type profiles struct {
	old, now []*formats.Profile // now: at least one
	same     bool               // the plan was promised by the profile of today
	busy     bool               // CPU times of a busy machine, see calmed
	steady   bool               // times as of one speed of the machine, see steadied
	common   bool               // with it: all models moved away from the reference
	machine  []kind.Sample      // how fast the machine was, where steady
}

// noise is by how much figures of times differ by chance: two profiles of an unchanged
// model never agree.
type noise struct {
	spread float64 // relative standard deviation of one profile
	alpha  float64 // of one figure, one side
	a, b   int     // profiles
	known  bool    // the sides' own spread tells nothing more
}

// noise is that of a plan's figures. A profile's variance is what the half widths of
// its medians leave open, and what changes between runs.
func (p *profiles) noise(plan *formats.Plan) noise {
	n := noise{alpha: alarms, a: max(1, len(p.old)), b: len(p.now)}
	if p.same {
		return n
	}
	switch {
	case p.common: // all models together are worse by more than chance already
		n.known = true
	case p.steady: // each model by its own chance
		n.alpha /= float64(max(1, len(plan.Deployment)))
	}
	sum, all := 0.0, slices.Concat(p.old, p.now)
	for _, one := range all {
		between, within := p.between(plan, one), recompute.HalfWidth(plan, one)/surely
		if p.steady { // what was measured there holds what the half widths usually leave open
			sum += max(between*between, within*within/batches(one))
			continue
		}
		sum += between*between + within*within
	}
	n.spread = math.Sqrt(sum / float64(len(all)))
	return n
}

// surely is the normal quantile of the half widths, whose intervals hold 95 %.
const surely = 1.96

// between is the spread from run to run.
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

// differ is by how much two sides have to differ so that it is no chance, and how
// probable it is that they are as much worse as they are by chance.
func (n *noise) differ(old, now []float64, worse float64) (least, p float64) {
	if n.spread == 0 {
		return 0, 0
	}
	free, squares := float64(knownSpread), knownSpread*n.spread*n.spread
	for _, side := range [][]float64{old, now} {
		if !n.known && len(side) > 1 && stat.Mean(side, nil) > 0 {
			free += float64(len(side) - 1)
			squares += math.Pow(stat.StdDev(side, nil)/stat.Mean(side, nil), 2) * float64(len(side)-1)
		}
	}
	scale := math.Sqrt(squares / free * (1/float64(n.a) + 1/float64(n.b)))
	if free == knownSpread { // the profiles tell nothing beside what is known
		return distuv.UnitNormal.Quantile(1-n.alpha) * scale, distuv.UnitNormal.Survival(worse / scale)
	}
	t := distuv.StudentsT{Sigma: 1, Nu: free}
	return t.Quantile(1-n.alpha) * scale, t.Survival(worse / scale)
}

// batches is how many batch sizes a profile holds of a model, on average.
func batches(p *formats.Profile) float64 {
	all := 0
	for i := range p.Models {
		all += len(p.Models[i].Measurements)
	}
	return max(1, float64(all)/float64(max(1, len(p.Models))))
}

// betweenRuns is the spread of the plan's device kind that changes most from run to
// run.
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

// middle is the place of the profile by which the plan's work takes neither longest
// nor shortest: it stands for today.
func middle(plan *formats.Plan, list []*formats.Profile) int {
	order := make([]int, len(list))
	work := make([]time.Duration, len(list))
	for i, p := range list {
		order[i], work[i] = i, recompute.Work(plan, p)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(work[a], work[b]) })
	return order[(len(order)-1)/2]
}

// least is by how much figures have to differ so that it is no chance, where the
// profiles tell nothing of it themselves.
func (n *noise) least() float64 {
	d, _ := n.differ(nil, nil, 0)
	return d
}

// comparable makes the profiles of both sides tell of the same: the same cuts, the
// same clock, and a machine that is as fast. Its notes say what that changed.
func (p *profiles) comparable(plan *formats.Plan) (notes []string) {
	if note := p.recut(); note != "" {
		notes = append(notes, note)
	}
	p.calmed(plan)
	p.steadied(plan)
	return notes
}

// runs are the values of one figure, a profile each.
type runs struct{ old, now []float64 }

// center is what several profiles say of a figure together.
func center(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// of collects the values of one figure.
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
