package verify

import (
	"fmt"
	"math"

	"inferplan/formats"
	"inferplan/formats/document"
)

// checkObjective checks the plan's objective: that its gears give the value (accuracy, latency or devices), and
// that value and bounds do not contradict each other.
func (c *gearChecker) checkObjective(g *gearsToday) {
	o, p := &c.Plan.Objective, c.gear
	c.checkHeldOut()

	// Sums over the gears.
	accuracy, bound, slowest := 0.0, 0.0, document.Micros(0)
	for i := range p.Gears {
		r := &p.Gears[i]
		accuracy += r.Weight * r.Accuracy
		bound += r.Weight * r.Bound
		slowest = max(slowest, r.LatencyUS)
		if r.Accuracy > r.Bound+1e-9 {
			c.AddError("bound", fmt.Sprintf("gear.gears[%d].bound", i), fmt.Sprint(r.Bound), fmt.Sprintf("at least %v", r.Accuracy), "the gear's accuracy is above its own bound")
		}
	}
	if p.Accuracy > 0 && accuracy < p.Accuracy-tolerance {
		c.AddError("accuracy", "gear.accuracy_slo", fmt.Sprint(p.Accuracy), fmt.Sprintf("at most %.6g", accuracy), "the gears' accuracies and weights do not reach the accuracy asked for")
	}

	// The value, by the objective.
	value := 0.0
	switch o.Name {
	case "accuracy":
		value = accuracy
		// Ranges have one cascade each, on one placement. Over all requests they share the late requests, but each
		// range's bound allows all of them. So the plan's bound may be below those of the gears. On measured rates
		// ranges need not hold the edges that their bounds are about.
		if c.isOverMeasured() {
			bound = 1
		}
		if o.Bound != nil && (*o.Bound > bound+tolerance || *o.Bound < value-tolerance) {
			c.AddError("objective", "objective.bound", fmt.Sprint(*o.Bound), fmt.Sprintf("%.6g to %.6g", value, bound), "the gears' accuracies, bounds and weights do not allow this bound")
		}
	case "latency":
		value = slowest.D().Seconds() * 1e3
	default:
		var ok bool
		if value, ok = c.devicesValue(g); !ok {
			return
		}
	}

	// Bounds by trials, and the value.
	if t := p.TriedBound; t > 0 && o.Bound != nil && (t < min(o.Value, *o.Bound)-tolerance || t > max(o.Value, *o.Bound)+tolerance) {
		c.AddError("bound", "gear.tried_bound", fmt.Sprint(t), fmt.Sprintf("from %v to %v", min(o.Value, *o.Bound), max(o.Value, *o.Bound)), "what trials rule out is not between the objective and its bound")
	}
	if math.Abs(value-o.Value) > tolerance*max(1, value) {
		c.AddError("objective", "objective.value", fmt.Sprint(o.Value), fmt.Sprint(value), "the gears do not give this objective")
	}
}

// devicesValue returns the number of devices, or their price. It returns false if the objective counts no whole
// number of devices, or fewer than models stand on.
func (c *gearChecker) devicesValue(g *gearsToday) (value float64, ok bool) {
	o, counts := &c.Plan.Objective, c.deviceCounts(g)
	if n := counts[0]; len(counts) == 1 && (n < 1 || math.Abs(n-math.Round(n)) > tolerance) {
		c.AddError("objective", "objective.value", fmt.Sprint(o.Value), "a whole number of devices", "the objective is the number of devices, or that times their price or power")
		return 0, false
	}
	for m := range g.replicas {
		if lastDevice := g.lastDevice(m, c.Plan.Pools[0].Device); len(counts) == 1 && float64(lastDevice) > counts[0]-1+tolerance {
			c.AddError("objective", "objective.value", fmt.Sprint(o.Value), fmt.Sprintf("device %d as well", lastDevice), "%s stands on more devices than the objective counts", c.Plan.Deployment[m].Model)
			return 0, false
		}
	}
	for k := range counts {
		value += counts[k] * c.devicePrice(k)
	}
	return value, true
}

// checkHeldOut checks the accuracy of the whole plan on the held-out samples: against its gears, and against the
// requested accuracy.
func (c *gearChecker) checkHeldOut() {
	p := c.gear
	if p.AccuracyHeldOut == nil {
		return
	}
	sum := 0.0
	for i := range p.Gears {
		if h := p.Gears[i].AccuracyHeldOut; h != nil {
			sum += p.Gears[i].Weight * *h
		}
	}
	if math.Abs(sum-*p.AccuracyHeldOut) > tolerance {
		c.AddError("accuracy", "gear.accuracy_held_out", fmt.Sprint(*p.AccuracyHeldOut), fmt.Sprint(sum), "the gears' held-out accuracies and weights give another one")
	}
	if h := p.HeldOutInterval; h == nil || h[0] > sum+tolerance || h[1] < sum-tolerance || h[0] < p.Accuracy-tolerance {
		c.AddError("accuracy", "gear.accuracy_held_out_interval", fmt.Sprint(h), fmt.Sprintf("around %.6g, from %.6g", sum, p.Accuracy), "the interval of the samples held out does not keep the accuracy asked for")
	}
}

// deviceCounts returns the numbers of devices, by pool, that the plan was made for. If devices are minimised, they
// are not all of them: with one kind the objective counts them, with several kinds they are those up to the last
// one that holds a model.
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

// lastDevice returns the highest number of a device of a kind that runs a model, or -1 if none does.
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

// checkLateShare checks, for an SLO over all requests, that the gears together have no more late requests, by
// weight, than the percentile allows.
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
