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
	"inferplan/planner/lists"
	"inferplan/planner/recompute"
)

// BetweenRuns is the relative standard deviation of the rates of one plan by profiles of one machine
// that were measured at different times. It is used for profiles that do not say their own.
const BetweenRuns = 0.015

// priorFreedom is the number of degrees of freedom of the known spread, beside that of the profiles at
// hand (Smyth 2004, "Linear models and empirical Bayes methods", section 3: a moderated t-test).
const priorFreedom = 3

// minProfiles is the number of profiles on a side from which on no single one of them decides.
const minProfiles = 3

// falseAlarmRate is how often a plan may fail though nothing has changed, over all its models
// together.
const falseAlarmRate = 0.025

// profileSets holds the profiles of the promise and of today. With several on a side, the plan is
// evaluated by each.
type profileSets struct {
	promised, current []*formats.Profile // current has at least one
	sameProfile       bool               // the plan was promised by the profile of today
	cpuTimes          bool               // times are CPU times, see useCPUTimes
	driftRemoved      bool               // times are as of one speed of the machine, see removeDrift
	commonShift       bool               // with driftRemoved: all models together changed, relative to the reference, by more than chance
	machineFigures    []kind.FigurePair  // speed of the machine before and now, if driftRemoved
}

// chanceModel says by how much figures of times differ by chance: two profiles of an unchanged model
// never agree.
type chanceModel struct {
	spread                            float64 // relative standard deviation of the figure of one profile
	alpha                             float64 // false alarm rate of one figure, one-sided
	promisedProfiles, currentProfiles int     // numbers of profiles
	spreadIsKnown                     bool    // the spread of the profiles at hand does not count
}

// chanceOf returns the model of chance for a plan's figures. It says how much the figures by two profiles of unchanged models differ, as
// a part of the figure. The variance of a profile has two terms: one from the half widths of the 95 % intervals of its medians, and one from
// run to run. The model has the mean over all profiles. If the plan was promised by the profile of today, nothing differs by chance.
//
// If the drift of the machine's speed was taken off the profiles (driftRemoved), what is left is chance of each model by itself. But if all
// models changed together by more than chance (commonShift), every figure shows that common change, which has a spread of its own.
func (p *profileSets) chanceOf(plan *formats.Plan) chanceModel {
	n := chanceModel{alpha: falseAlarmRate, promisedProfiles: max(1, len(p.promised)), currentProfiles: len(p.current)}
	if p.sameProfile {
		return n
	}
	switch {
	case p.commonShift:
		n.spreadIsKnown = true // the spread of the profiles at hand does not count
	case p.driftRemoved:
		// Each model is one more chance of a false alarm, so each gets its part of the rate that all together may have.
		n.alpha /= float64(max(1, len(plan.Deployment)))
	}

	// Average the variances of all profiles.
	sum, everyProfile := 0.0, slices.Concat(p.promised, p.current)
	for _, profile := range everyProfile {
		betweenRuns, withinRun := p.spreadBetweenRuns(plan, profile), recompute.RelativeHalfWidth(plan, profile)/quantile95
		// Without drift, the spread between runs (SteadyBetweenRuns or CommonBetweenRuns) was measured on means over a model's batch
		// sizes, and contains the usual half widths. So the terms are not added: the larger one counts. The half widths are those of
		// single batch sizes; in a mean over n of these, their variance is an n-th.
		if p.driftRemoved {
			sum += max(betweenRuns*betweenRuns, withinRun*withinRun/meanBatchSizes(profile))
			continue
		}
		sum += betweenRuns*betweenRuns + withinRun*withinRun
	}
	n.spread = math.Sqrt(sum / float64(len(everyProfile)))
	return n
}

// quantile95 is the normal quantile of the half widths, whose intervals hold with 95 %.
const quantile95 = 1.96

// spreadBetweenRuns returns the standard deviation of a profile's times from run to run, as a part of them. It depends on how the
// profiles were made comparable: CPU times, times without the machine's drift, or raw times, for which the profile may say its own. The
// constants were measured.
func (p *profileSets) spreadBetweenRuns(plan *formats.Plan, profile *formats.Profile) float64 {
	switch {
	case p.cpuTimes:
		return BusyBetweenRuns
	case p.commonShift:
		return CommonBetweenRuns
	case p.driftRemoved:
		return SteadyBetweenRuns
	}
	return kindSpread(plan, profile)
}

// significance returns two numbers by which a relative difference between a promised figure and today's is judged. minDifference is the
// difference that chance exceeds only at the false alarm rate. p is the probability that chance alone makes today's figure worse by the
// argument worse or more. promised and current have the figure by the profiles of each side, or are nil; with several profiles on a side their own spread
// counts too. n has the numbers of profiles on both sides. If nothing differs by chance, both results are 0.
func (n *chanceModel) significance(promised, current []float64, worse float64) (minDifference, p float64) {
	if n.spread == 0 {
		return 0, 0
	}

	// Average the variance of the known spread, which counts like priorFreedom degrees of freedom, with those of the sides, each with
	// its own degrees (a moderated t-test).
	freedom, squares := float64(priorFreedom), priorFreedom*n.spread*n.spread
	for _, side := range [][]float64{promised, current} {
		if !n.spreadIsKnown && len(side) > 1 && stat.Mean(side, nil) > 0 {
			freedom += float64(len(side) - 1)
			squares += math.Pow(stat.StdDev(side, nil)/stat.Mean(side, nil), 2) * float64(len(side)-1)
		}
	}

	// scale is the standard deviation of the difference between the means of both sides.
	scale := math.Sqrt(squares / freedom * (1/float64(n.promisedProfiles) + 1/float64(n.currentProfiles)))
	if freedom == priorFreedom { // one profile on each side has no spread of its own
		return distuv.UnitNormal.Quantile(1-n.alpha) * scale, distuv.UnitNormal.Survival(worse / scale)
	}
	t := distuv.StudentsT{Sigma: 1, Nu: freedom}
	return t.Quantile(1-n.alpha) * scale, t.Survival(worse / scale)
}

// meanBatchSizes returns the mean number of batch sizes that a profile has for a model.
func meanBatchSizes(p *formats.Profile) float64 {
	count := lists.Sum(len(p.Models), func(i int) int { return len(p.Models[i].Measurements) })
	return max(1, float64(count)/float64(max(1, len(p.Models))))
}

// kindSpread returns the relative standard deviation between runs that a profile states for a device kind, the largest over the kinds of
// the plan's pools. If the profile states none for one of these kinds, it returns BetweenRuns.
func kindSpread(plan *formats.Plan, profile *formats.Profile) float64 {
	spread := 0.0
	for i := range plan.Pools {
		device := slices.IndexFunc(profile.Devices, func(d formats.ProfileDevice) bool { return d.Device == plan.Pools[i].Device })
		if device < 0 || profile.Devices[device].BetweenRuns == nil {
			return BetweenRuns
		}
		spread = max(spread, profile.Devices[device].BetweenRuns.Spread)
	}
	return spread
}

// middleProfile returns the index of the profile by which the plan's work (the sum of its stages' times) is the median, the lower one of
// two. That profile stands for today.
func middleProfile(plan *formats.Plan, list []*formats.Profile) int {
	byWork := make([]int, len(list))
	work := make([]time.Duration, len(list))
	for i, p := range list {
		byWork[i], work[i] = i, recompute.TotalWork(plan, p)
	}
	slices.SortStableFunc(byWork, func(a, b int) int { return cmp.Compare(work[a], work[b]) })
	return byWork[(len(byWork)-1)/2]
}

// minDifference returns by how much figures must differ so that it is no chance, if the profiles have no
// spread of their own.
func (n *chanceModel) minDifference() float64 {
	d, _ := n.significance(nil, nil, 0)
	return d
}

// makeComparable gives the profiles of both sides the same cuts, the same clock and the same speed of the
// machine. It returns notes about the changes.
func (p *profileSets) makeComparable(plan *formats.Plan) (notes []string) {
	if note := p.useCutsOfPromise(); note != "" {
		notes = append(notes, note)
	}
	p.useCPUTimes(plan)
	p.removeDrift(plan)
	return notes
}

// figureValues holds the values of one figure, one by each profile.
type figureValues struct{ promised, current []float64 }

// median returns the median of some values.
func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// collect sets r to the values of one figure. current and promised hold a list of figures by each profile of today and by each promised
// one. Each list is an evaluation of a plan by that profile, as if it were that of today. So the value by the profile is New in both; Old
// is what the promised plan states. Figures are matched by metric and subject.
func (r *figureValues) collect(figure *kind.FigurePair, current, promised [][]kind.FigurePair) {
	values := func(lists [][]kind.FigurePair) (collected []float64) {
		for _, list := range lists {
			for i := range list {
				if list[i].Metric == figure.Metric && list[i].Subject == figure.Subject {
					collected = append(collected, list[i].New)
				}
			}
		}
		return collected
	}
	r.current, r.promised = values(current), values(promised)
}
