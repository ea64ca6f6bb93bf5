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
type boundChecker struct{ *gearChecker }

// checkBounds checks the accuracy bound that the plan states for each range of request rates, when a plan is
// checked against today's profile. It recomputes two limits from the envelope: the highest accuracy that mixtures
// of cascades (models asked in turn until one is certain) reach by the device time they cost. Memory is ignored,
// which can only raise the limits.
//
// With one kind of devices both limits are the same. With several, a bound may not be below what one kind reaches
// alone, and not above what all devices reach if each model ran where it is fastest. Models that no gear asks are
// missing in the plan; without them a recomputed limit can only be too low.
func (c boundChecker) checkBounds(g *gearsToday) {
	kinds := c.deviceKinds()
	if len(kinds) == 0 {
		return
	}
	slo := c.gear.SLOUS.D()
	if c.gear.SLOScope == formats.ScopeRequests { // a late request may take any time
		slo = math.MaxInt64
	}

	// The envelope of each kind alone.
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

	// The envelope of all kinds together. checksUpper says that the plan's bound must not exceed it.
	envelope, checksUpper := kindEnvelopes[0], c.cascade != nil
	if parts := c.boundHasStages(); len(kinds) > 1 || parts || slo > c.gear.SLOUS.D() {
		if envelope = c.mixtureEnvelope(slo, parts, kinds...); envelope == nil {
			return
		}
		checksUpper = checksUpper && (parts || !c.hasStages())
	}
	if slo > c.gear.SLOUS.D() && c.gear.Weights == "measured" {
		checksUpper = false // one cascade need not hold the highest rate; the gate reads the rates when it plans again
	}

	// Compare the bound of each range with both.
	report := c.AddError
	if g.inputsChanged {
		report = c.AddWarning
	}
	for i := range c.gear.Gears {
		gear := &c.gear.Gears[i]
		upperBound, lowerBound := envelope.accuracyAt(devices/gear.ToQPS), math.Inf(-1)
		for k := range kindEnvelopes {
			lowerBound = max(lowerBound, kindEnvelopes[k].accuracyAt(counts[k]/gear.ToQPS))
		}
		path := fmt.Sprintf("gear.gears[%d].bound", i)
		switch {
		case checksUpper && gear.Bound > upperBound+tolerance:
			report("bound", path, fmt.Sprint(gear.Bound), fmt.Sprintf("at most %.6g", upperBound), "no cascades over these thresholds reach the bound at %.6g requests per second", gear.ToQPS)
		case gear.Bound < lowerBound-tolerance:
			report("bound", path, fmt.Sprint(gear.Bound), fmt.Sprintf("%.6g", lowerBound), "a mixture of cascades exceeds the bound at %.6g requests per second", gear.ToQPS)
		}
	}
	c.checkObjectiveBound(kindEnvelopes, counts, report)
}

// reachableAccuracy returns an accuracy that so many devices of one kind reach for certain, and a text that says
// how, for the message. It need not be the best: if it is above limit, the plan's bound is refuted. Under an SLO
// over all requests the plan's bounds are of mixtures of cascades, otherwise of one cascade per range of rates.
func (c boundChecker) reachableAccuracy(kind string, envelope costEnvelope, devices, limit float64) (accuracy float64, means string) {
	if c.gear.SLOScope == formats.ScopeRequests {
		return c.weightedAccuracy(envelope, devices), "a mixture of cascades that keep the SLO"
	}
	return c.bestSingleCascades(kind, int(devices), limit), "one cascade per range, on a placement with the time for each,"
}

// checkObjectiveBound checks the bound of the plan's objective, for each kind of devices alone. kindEnvelopes and
// counts have the envelope (the best accuracy by cost) and the number of devices of each kind. If the objective is
// the accuracy, the bound must not be below what can be reached. For another objective (latency or devices),
// nothing just below the bound may reach the plan's accuracy. report records a finding, as an error or a warning.
func (c boundChecker) checkObjectiveBound(kindEnvelopes []costEnvelope, counts []float64, report func(constraint, where, found, expected, format string, args ...any)) {
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

	// Latency, or devices and their price.
	slo, limit := time.Duration(*o.Bound*1e6)-1, c.gear.Accuracy+tolerance
	for k, kind := range kinds {
		reached, means, below := 0.0, "a mixture of cascades", fmt.Sprintf("within %v", slo)
		if o.Name == "latency" {
			reached = c.weightedAccuracy(c.mixtureEnvelope(slo, false, kind), counts[k])
		} else {
			n := math.Ceil(*o.Bound/c.devicePrice(k)*(1-1e-9)) - 1
			if len(kinds) > 1 {
				n = min(n, float64(c.Plan.Pools[k].Count))
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

// weightedAccuracy returns the accuracy that mixtures of cascades reach at most on so many devices, weighted over
// the ranges of request rates. It is negative infinity if some range has too few devices for any cascade, even a
// range of weight 0.
func (c boundChecker) weightedAccuracy(envelope costEnvelope, devices float64) float64 {
	if len(envelope) == 0 {
		return math.Inf(-1)
	}
	sum := 0.0
	for i := range c.gear.Gears {
		// The least positive weight keeps a range of weight 0 from turning infinity into no number.
		gear := &c.gear.Gears[i]
		if gear.Weight > 0 || envelope.accuracyAt(devices/gear.ToQPS) < 0 {
			sum += max(gear.Weight, 1e-300) * envelope.accuracyAt(devices/gear.ToQPS)
		}
	}
	return sum
}

// boundHasStages returns whether the plan's bound also allowed models that are cut into stages on several devices:
// the exact algorithm does if the options allow stages, and there are several kinds of devices or a model of the
// family does not fit on one device.
func (c boundChecker) boundHasStages() bool {
	if c.Plan.Options.WholeNumber("max-partitions") < 2 || c.Plan.Algorithm != "exact" {
		return false
	}
	kinds := c.deviceKinds()
	if len(kinds) > 1 || c.cascade == nil {
		return len(kinds) > 1
	}
	pool := c.Pool(kinds[0])
	return pool != nil && pool.Memory > 0 && slices.ContainsFunc(c.cascade.Family, func(n string) bool {
		return c.ProfileModel(n) != nil && c.modelMemory(n, kinds[0]) > int64(pool.Memory)
	})
}

// minTimesInStages returns the least time of a model that is cut into stages over some kinds of devices: seconds
// per sample in the best batch that takes at most slo, and the time of a single sample. The cuts are where that is
// fastest, and each stage runs where it is fastest, whatever fits there. If blocks were not measured, both are
// infinite.
func (c boundChecker) minTimesInStages(model string, slo time.Duration, kinds []string) (perSample float64, singleSample time.Duration) {
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
