package verify

import (
	"fmt"
	"math"

	"inferplan/formats"
	"inferplan/formats/document"
)

// checkObjective checks that the plan's gears give the stated value of its objective (accuracy, milliseconds of latency,
// or number or price of devices), and that the value and its bounds do not contradict each other. It adds contradictions
// to the findings.
func (c *gearChecker) checkObjective(g *gearsToday) {
	objective, section := &c.Plan.Objective, c.gear
	c.checkHeldOut()

	// Sums over the gears.
	accuracy, bound, slowest := 0.0, 0.0, document.Micros(0)
	for i := range section.Gears {
		plannedGear := &section.Gears[i]
		accuracy += plannedGear.Weight * plannedGear.Accuracy
		bound += plannedGear.Weight * plannedGear.Bound
		slowest = max(slowest, plannedGear.LatencyUS)
		if plannedGear.Accuracy > plannedGear.Bound+1e-9 {
			c.AddError("bound", fmt.Sprintf("gear.gears[%d].bound", i), fmt.Sprint(plannedGear.Bound), fmt.Sprintf("at least %v", plannedGear.Accuracy), "the gear's accuracy is above its own bound")
		}
	}
	if section.Accuracy > 0 && accuracy < section.Accuracy-tolerance {
		c.AddError("accuracy", "gear.accuracy_slo", fmt.Sprint(section.Accuracy), fmt.Sprintf("at most %.6g", accuracy), "the gears' accuracies and weights do not reach the accuracy asked for")
	}

	// The value, by the objective.
	value := 0.0
	switch objective.Name {
	case "accuracy":
		value = accuracy
		// The plan's bound may be below the sum of its gears' bounds, because these allow more: mixtures of cascades in a range, and
		// in each range all the late requests that ranges share if the SLO is over all requests. It may not be above the sum, unless
		// that SLO is at measured rates: the gears' bounds are of ranges that hold their upper edges, and such a plan need not.
		if c.isOverMeasured() {
			bound = 1 // no accuracy is above 1
		}
		if objective.Bound != nil && (*objective.Bound > bound+tolerance || *objective.Bound < value-tolerance) {
			c.AddError("objective", "objective.bound", fmt.Sprint(*objective.Bound), fmt.Sprintf("%.6g to %.6g", value, bound), "the gears' accuracies, bounds and weights do not allow this bound")
		}
	case "latency":
		value = slowest.D().Seconds() * 1e3
	default:
		var ok bool
		if value, ok = c.devicesValue(g); !ok {
			return
		}
	}

	// What trials rule out lies between the value that the plan has and the bound that no plan passes.
	if t := section.TriedBound; t > 0 && objective.Bound != nil && (t < min(objective.Value, *objective.Bound)-tolerance || t > max(objective.Value, *objective.Bound)+tolerance) {
		c.AddError("bound", "gear.tried_bound", fmt.Sprint(t), fmt.Sprintf("from %v to %v", min(objective.Value, *objective.Bound), max(objective.Value, *objective.Bound)), "what trials rule out is not between the objective and its bound")
	}

	// The value.
	if math.Abs(value-objective.Value) > tolerance*max(1, value) {
		c.AddError("objective", "objective.value", fmt.Sprint(objective.Value), fmt.Sprint(value), "the gears do not give this objective")
	}
}

// devicesValue returns the value of an objective that minimises devices: the number of devices that the plan was made
// for (deviceCounts), or their price. With a single kind the stated value gives that number. So it adds an error and
// returns false if that is no whole number, or fewer devices than models stand on. With several kinds the numbers are
// those of the devices that models stand on, so they are right by themselves.
func (c *gearChecker) devicesValue(g *gearsToday) (value float64, ok bool) {
	o, counts := &c.Plan.Objective, c.deviceCounts(g)
	isSingleKind := len(counts) == 1
	if n := counts[0]; isSingleKind && (n < 1 || math.Abs(n-math.Round(n)) > tolerance) {
		c.AddError("objective", "objective.value", fmt.Sprint(o.Value), "a whole number of devices", "the objective is the number of devices, or that times their price or power")
		return 0, false
	}
	for m := range g.replicas {
		// Devices are numbered from 0, so the last of n devices is n-1.
		if lastDevice := g.lastDevice(m, c.Plan.Pools[0].Device); isSingleKind && float64(lastDevice) > counts[0]-1+tolerance {
			c.AddError("objective", "objective.value", fmt.Sprint(o.Value), fmt.Sprintf("device %d as well", lastDevice), "%s stands on more devices than the objective counts", c.Plan.Deployment[m].Model)
			return 0, false
		}
	}
	for k := range counts {
		value += counts[k] * c.devicePrice(k)
	}
	return value, true
}

// checkHeldOut checks the stated accuracy of the whole plan on the held-out samples: that it is the mean of its gears'
// by weight, and that its confidence interval holds it and is not below the requested accuracy.
func (c *gearChecker) checkHeldOut() {
	section := c.gear
	if section.AccuracyHeldOut == nil {
		return
	}
	sum := 0.0
	for i := range section.Gears {
		if h := section.Gears[i].AccuracyHeldOut; h != nil {
			sum += section.Gears[i].Weight * *h
		}
	}
	if math.Abs(sum-*section.AccuracyHeldOut) > tolerance {
		c.AddError("accuracy", "gear.accuracy_held_out", fmt.Sprint(*section.AccuracyHeldOut), fmt.Sprint(sum), "the gears' held-out accuracies and weights give another one")
	}
	if h := section.HeldOutInterval; h == nil || h[0] > sum+tolerance || h[1] < sum-tolerance || h[0] < section.Accuracy-tolerance {
		c.AddError("accuracy", "gear.accuracy_held_out_interval", fmt.Sprint(h), fmt.Sprintf("around %.6g, from %.6g", sum, section.Accuracy), "the interval of the samples held out does not keep the accuracy asked for")
	}
}

// deviceCounts returns the numbers of devices, by pool of the plan, that the plan was made for. If devices are
// minimised, they are not all of the pool: with one kind the objective counts them, and with several kinds they are
// those up to the last one that holds a model.
func (c *gearChecker) deviceCounts(g *gearsToday) []float64 {
	var counts []float64
	for k := range c.Plan.Pools {
		pool := &c.Plan.Pools[k]
		n := float64(pool.Count)
		switch {
		case !c.minimisesDevices():
		case len(c.Plan.Pools) == 1:
			n = c.Plan.Objective.Value / c.devicePrice(0)
		default:
			n = 0
			for m := range g.replicas {
				n = max(n, float64(g.lastDevice(m, pool.Device)+1))
			}
		}
		counts = append(counts, n)
	}
	return counts
}

// lastDevice returns the highest number, within a kind of devices, of a device that runs a model (an index in the plan)
// or a stage of it, or -1 if none does.
func (g *gearsToday) lastDevice(model int, kind string) int {
	last := -1
	for _, replica := range g.replicas[model] {
		for _, stage := range replica.stages {
			if stage.kind == kind {
				last = max(last, stage.device)
			}
		}
	}
	return last
}

// minimisesDevices reports whether the objective is the number or the price of devices.
func (c *gearChecker) minimisesDevices() bool {
	return c.Plan.Objective.Name != "accuracy" && c.Plan.Objective.Name != "latency"
}

// devicePrice returns what a device of a pool counts in the objective.
func (c *gearChecker) devicePrice(pool int) float64 {
	switch c.Plan.Objective.Name {
	case "cost":
		return c.Plan.Pools[pool].USDPerHour
	case "power":
		return c.Plan.Pools[pool].Watts
	}
	return 1
}

// checkLateShare checks, for an SLO over all requests together, that the gears (cascades of ranges of rates) have no
// more late requests, by weight, than the percentile allows, and adds an error if they have. With another scope of the
// SLO it does nothing.
func (c *gearChecker) checkLateShare() {
	g := c.gear
	if g.SLOScope != formats.ScopeRequests {
		return
	}
	percentile, err := document.ParsePercentile(g.Percentile)
	if err != nil {
		return // a bad percentile is reported already
	}
	lateShare := 0.0
	for i := range g.Gears {
		lateShare += g.Gears[i].Weight * g.Gears[i].LateShare
	}
	if lateShare > 1-percentile+tolerance {
		c.AddError("slo", "gear.gears", fmt.Sprintf("%.4g of the requests late", lateShare), fmt.Sprintf("at most %.4g", 1-percentile), "the gears' lateness and weights do not keep the SLO over all requests")
	}
}
