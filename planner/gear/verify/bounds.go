package verify

import (
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/planner/recompute"
)

// boundChecker recomputes the bounds of a plan.
type relaxation struct{ *checker }

// checkBounds recomputes what no cascades over the same thresholds exceed in each range: the concave envelope of
// accuracy over cost, which memory does not lower. On several kinds of devices the bound lies between what each
// kind reaches alone and what all devices would reach if each model ran where it is fastest. The plan alone does
// not have the models that no gear asks. Without them a computed bound can only be too low.
func (c relaxation) bounds(g *gears) {
	kinds := c.kinds()
	if len(kinds) == 0 {
		return
	}
	slo := c.gear.SLOUS.D()
	if c.gear.Over == formats.OverRequests { // a late request may take any time
		slo = math.MaxInt64
	}

	// The envelope of each kind alone.
	devices, counts := 0.0, c.counts(g)
	var alone []hull
	for k, kind := range kinds {
		pool := c.Pool(kind)
		e := c.envelope(c.gear.SLOUS.D(), false, kind)
		if pool == nil || e == nil && len(kinds) == 1 {
			return
		}
		if !c.fewest() {
			counts[k] = float64(pool.Count)
		}
		counts[k] = math.Round(counts[k])
		devices += counts[k]
		alone = append(alone, e)
	}

	// The envelope of all kinds together. checksUpper says that the plan's bound must not exceed it.
	e, limited := alone[0], c.cascade != nil
	if parts := c.inParts(); len(kinds) > 1 || parts || slo > c.gear.SLOUS.D() {
		if e = c.envelope(slo, parts, kinds...); e == nil {
			return
		}
		limited = limited && (parts || !c.chained())
	}
	if slo > c.gear.SLOUS.D() && c.gear.Weights == "measured" {
		limited = false // one cascade need not hold the highest rate; the gate reads the rates when it plans again
	}

	// Compare the bound of each range with both.
	report := c.Fail
	if g.moved {
		report = c.Warn
	}
	for i := range c.gear.Gears {
		r := &c.gear.Gears[i]
		free, least := e.at(devices/r.ToQPS), math.Inf(-1)
		for k := range alone {
			least = max(least, alone[k].at(counts[k]/r.ToQPS))
		}
		where := fmt.Sprintf("gear.gears[%d].bound", i)
		switch {
		case limited && r.Bound > free+rounding:
			report("bound", where, fmt.Sprint(r.Bound), fmt.Sprintf("at most %.6g", free), "no cascades over these thresholds reach the bound at %.6g requests per second", r.ToQPS)
		case r.Bound < least-rounding:
			report("bound", where, fmt.Sprint(r.Bound), fmt.Sprintf("%.6g", least), "a mixture of cascades exceeds the bound at %.6g requests per second", r.ToQPS)
		}
	}
	c.objectiveBound(alone, counts, report)
}

// reachableAccuracy returns an accuracy that so many devices of one kind have time for, and a text that says by
// what. It may be below the limit. A range has one cascade. If the SLO is over all requests, bounds are of
// mixtures.
func (c relaxation) reached(kind string, alone hull, devices, limit float64) (accuracy float64, by string) {
	if c.gear.Over == formats.OverRequests {
		return c.weighted(alone, devices), "a mixture of cascades that keep the SLO"
	}
	return c.singleGears(kind, int(devices), limit), "one cascade per range, on a placement with the time for each,"
}

// checkObjectiveBound checks the plan's bound. If the objective is the accuracy, the bound must not be below what
// can be reached. For another objective, nothing just below its bound may reach the plan's accuracy: not even a
// mixture, if it is the latency. On several kinds this is checked for each kind alone.
func (c relaxation) objectiveBound(alone []hull, counts []float64, report func(constraint, where, found, expected, format string, args ...any)) {
	o, kinds := &c.Plan.Objective, c.kinds()
	if o.Bound == nil {
		return
	}

	// The accuracy.
	if o.Name == "accuracy" {
		for k := range kinds {
			if reached, by := c.reached(kinds[k], alone[k], counts[k], *o.Bound+rounding); reached > *o.Bound+rounding {
				report("bound", "objective.bound", fmt.Sprint(*o.Bound), fmt.Sprintf("at least %.6g", reached), "%s exceeds the bound", by)
			}
		}
		return
	}

	// Latency, or devices and their price.
	slo, limit := time.Duration(*o.Bound*1e6)-1, c.gear.Accuracy+rounding
	for k, kind := range kinds {
		reached, by, below := 0.0, "a mixture of cascades", fmt.Sprintf("within %v", slo)
		if o.Name == "latency" {
			reached = c.weighted(c.envelope(slo, false, kind), counts[k])
		} else {
			n := math.Ceil(*o.Bound/c.price(k)*(1-1e-9)) - 1
			if len(kinds) > 1 {
				n = min(n, float64(c.Plan.Pools[k].Count))
			}
			reached, by = c.reached(kind, alone[k], n, limit)
			below = fmt.Sprintf("on %.0f devices", n)
		}
		if reached >= limit {
			report("bound", "objective.bound", fmt.Sprint(*o.Bound), "less", "%s reaches accuracy %.6g %s, below the bound", by, reached, below)
		}
	}
	if *o.Bound > o.Value+rounding*max(1, o.Value) {
		c.Fail("bound", "objective.bound", fmt.Sprint(*o.Bound), fmt.Sprintf("at most %v", o.Value), "the bound is above the objective that it bounds")
	}
}

// weightedAccuracy returns what mixtures of cascades reach at most, weighted over all ranges.
func (c relaxation) weighted(h hull, devices float64) float64 {
	if len(h) == 0 {
		return math.Inf(-1)
	}
	sum := 0.0
	for i := range c.gear.Gears {
		r := &c.gear.Gears[i]
		if r.Weight > 0 || h.at(devices/r.ToQPS) < 0 {
			sum += max(r.Weight, 1e-300) * h.at(devices/r.ToQPS)
		}
	}
	return sum
}

// boundHasStages reports whether the plan's bound counts members in stages: they were allowed, and there are
// several kinds of devices, or a member does not fit on one.
func (c relaxation) inParts() bool {
	if c.Plan.Options.Whole("max-partitions") < 2 || c.Plan.Algorithm != "exact" {
		return false
	}
	kinds := c.kinds()
	if len(kinds) > 1 || c.cascade == nil {
		return len(kinds) > 1
	}
	pool := c.Pool(kinds[0])
	return pool != nil && pool.Memory > 0 && slices.ContainsFunc(c.cascade.Family, func(n string) bool {
		return c.ProfileModel(n) != nil && c.weights(n, kinds[0]) > int64(pool.Memory)
	})
}

// minTimesInStages returns the least time of a model in stages over some kinds: seconds per sample in the best
// batch within a latency, and the time of a single sample. The model is cut wherever that is fastest, and every
// stage runs where it is fastest, whatever fits there. If blocks were not measured, both are infinite.
func (c relaxation) partly(model string, slo time.Duration, kinds []string) (per float64, one time.Duration) {
	pm := c.ProfileModel(model)
	per, one = math.Inf(1), time.Duration(math.MaxInt64)
	if len(pm.Blocks) < 2 {
		return per, one
	}
	most := 0
	for _, kind := range kinds {
		most = max(most, len(c.timesOf(model, kind)))
	}
	for b := 1; b <= most; b++ {
		took := recompute.Fastest(pm, kinds, b)
		if took == 0 {
			return per, one
		}
		if b == 1 {
			one = took
		}
		if took <= slo {
			per = min(per, took.Seconds()/float64(b))
		}
	}
	return per, one
}
