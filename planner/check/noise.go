package check

import (
	"cmp"
	"math"
	"slices"
	"time"

	"golang.org/x/perf/benchmath"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/planner/recompute"
)

// BetweenRuns is the relative standard deviation of what one plan carries by
// profiles of one machine taken at different times, for profiles that do not tell
// their own.
const BetweenRuns = 0.015

// enoughRuns is from how many profiles a side on their own spread decides.
const enoughRuns = 3

// surely is the normal quantile of a one-sided error of 2.5 %.
const surely = 1.96

// profiles are the profiles of today and of the promise. With several a side, the
// plan is held against each.
type profiles struct {
	old, now []*formats.Profile // now: at least one
	same     bool               // the plan was promised by the profile of today
	busy     bool               // CPU times of a busy machine, see calmed
}

// chance is how much worse a figure of times may be by chance: two profiles of an
// unchanged model never agree. Relative.
//
// A side's variance is what its profiles leave open, by the half widths of their
// medians, and what changes between runs, over the number of profiles.
func (p *profiles) chance(plan *formats.Plan) float64 {
	if p.same {
		return 0
	}
	return surely * math.Sqrt(p.variance(plan, p.old)+p.variance(plan, p.now))
}

func (p *profiles) variance(plan *formats.Plan, list []*formats.Profile) float64 {
	least := BetweenRuns
	if p.busy {
		least = BusyBetweenRuns
	}
	if len(list) == 0 { // the promise's profile is gone
		return least * least
	}
	sum := 0.0
	for _, one := range list {
		between, within := betweenRuns(plan, one), recompute.HalfWidth(plan, one)/surely
		if p.busy {
			between = max(between, least)
		}
		sum += between*between + within*within
	}
	return sum / float64(len(list)*len(list))
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

// runs are the values of one figure, a profile each.
type runs struct {
	old, now []float64
	busy     bool // what differs by less than chance is never sure
}

// differ is the chance that figures of several profiles a side are so far apart
// though nothing has changed (Welch's t-test). ok is false with too few of them.
func (r *runs) differ() (p float64, ok bool) {
	if len(r.old) < enoughRuns || len(r.now) < enoughRuns {
		return 0, false
	}
	if constant(r.old) && constant(r.now) { // no test has an answer without variance
		if r.old[0] == r.now[0] {
			return 1, true
		}
		return 0, true
	}
	sample := func(v []float64) *benchmath.Sample {
		return benchmath.NewSample(slices.Clone(v), &benchmath.DefaultThresholds)
	}
	return benchmath.AssumeNormal.Compare(sample(r.old), sample(r.now)).P, true
}

func constant(v []float64) bool { return slices.Min(v) == slices.Max(v) }

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
