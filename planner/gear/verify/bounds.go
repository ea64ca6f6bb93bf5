package verify

import (
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/planner/recompute"
)

// checkBounds recomputes, for each range of rates, the accuracy that no cascades over the same thresholds exceed, and
// reports bounds of the plan that differ: the concave envelope of accuracy over cost, which is the most that mixtures
// of cascades reach. Memory does not lower it. On several kinds of devices the bound lies between the most that each
// kind reaches alone and what all devices would reach if each model ran where it is fastest. g is the plan evaluated
// with today's documents.
//
// A plan only has the models that some gear asks, and the workload names the others. Without a workload the envelope
// lacks these, so it may be too low. Then only bounds of the plan below it are reported.
func (c *gearChecker) checkBounds(g *gearsToday) {
	kinds := c.deviceKinds()
	if len(kinds) == 0 {
		return
	}
	slo := c.gear.SLOUS.D()
	if c.gear.SLOScope == formats.ScopeRequests { // single requests may be late, so any cascade may serve them
		slo = math.MaxInt64
	}

	// The envelope of each kind alone. counts are today's devices or, if devices were minimised, those that the plan was made for.
	devices, counts := 0.0, c.deviceCounts(g)
	var kindEnvelopes []costEnvelope
	for k, kind := range kinds {
		pool := c.Pool(kind)
		envelope := c.mixtureEnvelope(c.gear.SLOUS.D(), false, kind)
		if pool == nil || envelope == nil && len(kinds) == 1 {
			return
		}
		if !c.minimisesDevices() {
			counts[k] = float64(pool.Count)
		}
		counts[k] = math.Round(counts[k])
		devices += counts[k]
		kindEnvelopes = append(kindEnvelopes, envelope)
	}

	// The envelope of all kinds together, with models in stages if the plan's bound counts them.
	envelope := kindEnvelopes[0]
	withStages, mayBeLate := c.boundHasStages(), slo > c.gear.SLOUS.D()
	isOtherEnvelope := len(kinds) > 1 || withStages || mayBeLate
	if isOtherEnvelope {
		if envelope = c.mixtureEnvelope(slo, withStages, kinds...); envelope == nil {
			return
		}
	}

	// The plan's bound must not exceed it, unless it lacks something that the bound counts: models that no gear asks (there is no
	// workload), stages, or plans on measured rates, which need not hold the upper edges. The rates are only read when the plan
	// is made again.
	lacksStages := isOtherEnvelope && !withStages && c.hasStages()
	isOverMeasuredRates := mayBeLate && c.gear.Weights == "measured"
	checksUpper := c.cascade != nil && !lacksStages && !isOverMeasuredRates

	// Compare the bound of each range with both, at the device seconds that a request may take at its upper edge. If inputs have
	// changed since the plan was made, a difference is a warning only.
	report := c.AddError
	if g.inputsChanged {
		report = c.AddWarning
	}
	for i := range c.gear.Gears {
		r := &c.gear.Gears[i]
		upperBound, lowerBound := math.Inf(1), math.Inf(-1)
		if checksUpper {
			upperBound = envelope.accuracyAt(devices / r.ToQPS)
		}
		for k := range kindEnvelopes {
			lowerBound = max(lowerBound, kindEnvelopes[k].accuracyAt(counts[k]/r.ToQPS))
		}
		checkRangeBound(r, fmt.Sprintf("gear.gears[%d].bound", i), lowerBound, upperBound, report)
	}
	c.checkObjectiveBound(kindEnvelopes, counts, report)
}

// checkRangeBound reports the stated bound on the accuracy of range r if it is above upperBound, which no cascades
// reach, or below lowerBound, which some mixture of cascades reaches. path is the field of the bound in the plan, and
// report adds the finding.
func checkRangeBound(r *formats.Gear, path string, lowerBound, upperBound float64, report reportFunc) {
	switch {
	case r.Bound > upperBound+tolerance:
		report("bound", path, fmt.Sprint(r.Bound), fmt.Sprintf("at most %.6g", upperBound), "no cascades over these thresholds reach the bound at %.6g requests per second", r.ToQPS)
	case r.Bound < lowerBound-tolerance:
		report("bound", path, fmt.Sprint(r.Bound), fmt.Sprintf("%.6g", lowerBound), "a mixture of cascades exceeds the bound at %.6g requests per second", r.ToQPS)
	}
}

// reportFunc adds a finding: an error or a warning.
type reportFunc func(constraint, where, found, expected, format string, args ...any)

// reachableAccuracy returns an accuracy, weighted over all ranges, for which some devices of one kind have time, and a
// text for findings that says by which cascades it is reached: one for each range or, if the SLO is over all requests
// together, mixtures, because the plan's bounds are of mixtures then. envelope has the accuracy of mixtures by cost. If
// single cascades reach no more than the limit, the accuracy is negative infinity.
func (c *gearChecker) reachableAccuracy(kind string, envelope costEnvelope, devices, limit float64) (accuracy float64, means string) {
	if c.gear.SLOScope == formats.ScopeRequests {
		return c.weightedAccuracy(envelope, devices), "a mixture of cascades that keep the SLO"
	}
	return c.bestSingleCascades(kind, int(devices), limit), "one cascade per range, on a placement with the time for each,"
}

// checkObjectiveBound checks the bound on the plan's objective. If the objective is the accuracy, the bound must not be
// below an accuracy that can be reached. For another objective, nothing just below its bound may reach the plan's
// target accuracy: with a shorter latency not even a mixture of cascades, and with fewer devices, or devices of a lower
// price, no cascades that reachableAccuracy finds. On several kinds of devices this is checked for each kind alone,
// with its envelope and count in kindEnvelopes and counts.
func (c *gearChecker) checkObjectiveBound(kindEnvelopes []costEnvelope, counts []float64, report reportFunc) {
	o, kinds := &c.Plan.Objective, c.deviceKinds()
	if o.Bound == nil {
		return
	}

	// The accuracy.
	if o.Name == "accuracy" {
		for k := range kinds {
			if reached, means := c.reachableAccuracy(kinds[k], kindEnvelopes[k], counts[k], *o.Bound+tolerance); reached > *o.Bound+tolerance {
				report("bound", "objective.bound", fmt.Sprint(*o.Bound), fmt.Sprintf("at least %.6g", reached), "%s exceeds the bound", means)
			}
		}
		return
	}

	// Other objectives: nothing just below the bound may reach the accuracy asked for.
	limit := c.gear.Accuracy + tolerance
	for k, kind := range kinds {
		var reached float64
		var means, below string
		if o.Name == "latency" { // the bound is in milliseconds: a nanosecond less
			slo := time.Duration(*o.Bound*1e6) - 1
			reached, means = c.weightedAccuracy(c.mixtureEnvelope(slo, false, kind), counts[k]), "a mixture of cascades"
			below = fmt.Sprintf("within %v", slo)
		} else { // the bound is a number or price of devices: the most devices of the kind that cost less, but for rounding
			n := math.Ceil(*o.Bound/c.devicePrice(k)*(1-1e-9)) - 1
			if len(kinds) > 1 {
				n = min(n, float64(c.Plan.Pools[k].Count)) // the bound is about all kinds, so it may be more than there are of one
			}
			reached, means = c.reachableAccuracy(kind, kindEnvelopes[k], n, limit)
			below = fmt.Sprintf("on %.0f devices", n)
		}
		if reached >= limit {
			report("bound", "objective.bound", fmt.Sprint(*o.Bound), "less", "%s reaches accuracy %.6g %s, below the bound", means, reached, below)
		}
	}
	if *o.Bound > o.Value+tolerance*max(1, o.Value) {
		c.AddError("bound", "objective.bound", fmt.Sprint(*o.Bound), fmt.Sprintf("at most %v", o.Value), "the bound is above the objective that it bounds")
	}
}

// weightedAccuracy returns the most accuracy that mixtures of cascades reach with some devices, by weight over all
// ranges of rates. envelope has the accuracy of mixtures by their cost per request. If some range cannot be served at
// all, it is negative infinity, even if the range has no weight.
func (c *gearChecker) weightedAccuracy(envelope costEnvelope, devices float64) float64 {
	if len(envelope) == 0 {
		return math.Inf(-1)
	}
	sum := 0.0
	for i := range c.gear.Gears {
		r := &c.gear.Gears[i]
		// A second has `devices` device seconds for ToQPS requests. The tiny weight makes an accuracy of negative infinity count.
		if accuracy := envelope.accuracyAt(devices / r.ToQPS); r.Weight > 0 || accuracy < 0 {
			sum += max(r.Weight, 1e-300) * accuracy
		}
	}
	return sum
}

// boundHasStages reports whether the plan's bound also counts members of the family that run in stages over several
// devices. It does so if the algorithm is the exact one and the plan's options allow stages, and if there are several
// kinds of devices, or a member does not fit on one.
func (c *gearChecker) boundHasStages() bool {
	if c.Plan.Options.WholeNumber("max-partitions") < 2 || c.Plan.Algorithm != "exact" {
		return false
	}
	kinds := c.deviceKinds()
	if len(kinds) > 1 {
		return true
	}
	if c.cascade == nil { // without a workload all members are not known
		return false
	}
	pool := c.Pool(kinds[0])
	hasLimit := pool != nil && pool.Memory > 0
	return hasLimit && slices.ContainsFunc(c.cascade.Family, func(n string) bool {
		return c.ProfileModel(n) != nil && c.modelMemory(n, kinds[0]) > int64(pool.Memory)
	})
}

// minTimesInStages returns the least time of a model in stages over some kinds of devices: seconds per sample in the
// best batch within a latency, and the time of a single sample. The model is cut wherever that is fastest, and every
// stage runs where it is fastest, whatever fits there, so no plan is faster. If blocks were not measured, both are
// infinite.
func (c *gearChecker) minTimesInStages(model string, slo time.Duration, kinds []string) (perSample float64, singleSample time.Duration) {
	pm := c.ProfileModel(model)
	perSample, singleSample = math.Inf(1), time.Duration(math.MaxInt64)
	if len(pm.Blocks) < 2 {
		return perSample, singleSample
	}
	maxBatch := 0
	for _, kind := range kinds {
		maxBatch = max(maxBatch, len(c.latenciesOn(model, kind)))
	}
	for b := 1; b <= maxBatch; b++ {
		batchTime := recompute.MinLatency(pm, kinds, b)
		if batchTime == 0 {
			return perSample, singleSample
		}
		if b == 1 {
			singleSample = batchTime
		}
		if batchTime <= slo {
			perSample = min(perSample, batchTime.Seconds()/float64(b))
		}
	}
	return perSample, singleSample
}
