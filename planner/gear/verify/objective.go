package verify

import (
	"fmt"
	"math"

	"inferplan/formats"
	"inferplan/formats/document"
)

// checkObjective checks the plan's value and bound against its gears.
func (c *checker) objective(g *gears) {
	o, p := &c.Plan.Objective, c.gear
	c.heldOut()

	// Sums over the gears.
	accuracy, bound, slowest := 0.0, 0.0, document.Micros(0)
	for i := range p.Gears {
		r := &p.Gears[i]
		accuracy += r.Weight * r.Accuracy
		bound += r.Weight * r.Bound
		slowest = max(slowest, r.LatencyUS)
		if r.Accuracy > r.Bound+1e-9 {
			c.Fail("bound", fmt.Sprintf("gear.gears[%d].bound", i), fmt.Sprint(r.Bound), fmt.Sprintf("at least %v", r.Accuracy), "the gear's accuracy is above its own bound")
		}
	}
	if p.Accuracy > 0 && accuracy < p.Accuracy-rounding {
		c.Fail("accuracy", "gear.accuracy_slo", fmt.Sprint(p.Accuracy), fmt.Sprintf("at most %.6g", accuracy), "the gears' accuracies and weights do not reach the accuracy asked for")
	}

	// The value, by the objective.
	value := 0.0
	switch o.Name {
	case "accuracy":
		value = accuracy
		// Ranges have one cascade each, on one placement. Over all requests they share the late requests, but each
		// range's bound allows all of them. So the plan's bound may be below those of the gears. On measured rates
		// ranges need not hold the edges that their bounds are about.
		if c.overMeasured() {
			bound = 1
		}
		if o.Bound != nil && (*o.Bound > bound+rounding || *o.Bound < value-rounding) {
			c.Fail("objective", "objective.bound", fmt.Sprint(*o.Bound), fmt.Sprintf("%.6g to %.6g", value, bound), "the gears' accuracies, bounds and weights do not allow this bound")
		}
	case "latency":
		value = slowest.D().Seconds() * 1e3
	default: // devices, or their price
		counts := c.counts(g)
		if n := counts[0]; len(counts) == 1 && (n < 1 || math.Abs(n-math.Round(n)) > rounding) {
			c.Fail("objective", "objective.value", fmt.Sprint(o.Value), "a whole number of devices", "the objective is the number of devices, or that times their price or power")
			return
		}
		for m := range g.devices {
			if last := g.last(m, c.Plan.Pools[0].Device); len(counts) == 1 && float64(last) > counts[0]-1+rounding {
				c.Fail("objective", "objective.value", fmt.Sprint(o.Value), fmt.Sprintf("device %d as well", last), "%s stands on more devices than the objective counts", c.Plan.Deployment[m].Model)
				return
			}
		}
		for k := range counts {
			value += counts[k] * c.price(k)
		}
	}

	// Bounds by trials, and the value.
	if t := p.TriedBound; t > 0 && o.Bound != nil && (t < min(o.Value, *o.Bound)-rounding || t > max(o.Value, *o.Bound)+rounding) {
		c.Fail("bound", "gear.tried_bound", fmt.Sprint(t), fmt.Sprintf("from %v to %v", min(o.Value, *o.Bound), max(o.Value, *o.Bound)), "what trials rule out is not between the objective and its bound")
	}
	if math.Abs(value-o.Value) > rounding*max(1, value) {
		c.Fail("objective", "objective.value", fmt.Sprint(o.Value), fmt.Sprint(value), "the gears do not give this objective")
	}
}

// checkHeldOut checks the accuracy of the whole plan on the held-out samples: against its gears, and against the
// requested accuracy.
func (c *checker) heldOut() {
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
	if math.Abs(sum-*p.AccuracyHeldOut) > rounding {
		c.Fail("accuracy", "gear.accuracy_held_out", fmt.Sprint(*p.AccuracyHeldOut), fmt.Sprint(sum), "the gears' held-out accuracies and weights give another one")
	}
	if h := p.HeldOutInterval; h == nil || h[0] > sum+rounding || h[1] < sum-rounding || h[0] < p.Accuracy-rounding {
		c.Fail("accuracy", "gear.accuracy_held_out_interval", fmt.Sprint(h), fmt.Sprintf("around %.6g, from %.6g", sum, p.Accuracy), "the interval of the samples held out does not keep the accuracy asked for")
	}
}

// deviceCounts returns the numbers of devices, by pool, that the plan was made for. If devices are minimised, they
// are not all of them: with one kind the objective counts them, with several kinds they are those up to the last
// one that holds a model.
func (c *checker) counts(g *gears) []float64 {
	var out []float64
	for k := range c.Plan.Pools {
		pool := &c.Plan.Pools[k]
		n := float64(pool.Count)
		switch {
		case !c.fewest():
		case len(c.Plan.Pools) == 1:
			n = c.Plan.Objective.Value / c.price(0)
		default:
			n = 0
			for m := range g.devices {
				n = max(n, float64(g.last(m, pool.Device)+1))
			}
		}
		out = append(out, n)
	}
	return out
}

// lastDevice returns the highest number of a kind's devices that runs a model, or -1 if none does.
func (g *gears) last(model int, kind string) int {
	last := -1
	for _, on := range g.devices[model] {
		for _, at := range on.on {
			if at.kind == kind {
				last = max(last, at.device)
			}
		}
	}
	return last
}

// minimisesDevices reports whether the objective is the number or the price of devices.
func (c *documents) fewest() bool {
	return c.Plan.Objective.Name != "accuracy" && c.Plan.Objective.Name != "latency"
}

// devicePrice returns what a device of a pool counts in the objective.
func (c *documents) price(pool int) float64 {
	switch c.Plan.Objective.Name {
	case "cost":
		return c.Plan.Pools[pool].USDPerHour
	case "power":
		return c.Plan.Pools[pool].Watts
	}
	return 1
}

// checkLateShare checks, for an SLO over all requests, that the late shares of the gears together keep it.
func (c *checker) lateness() {
	g := c.gear
	if g.Over != formats.OverRequests {
		return
	}
	percentile, err := document.ParsePercentile(g.Percentile)
	if err != nil {
		return // a bad percentile is reported already
	}
	late := 0.0
	for i := range g.Gears {
		late += g.Gears[i].Weight * g.Gears[i].Late
	}
	if late > 1-percentile+rounding {
		c.Fail("slo", "gear.gears", fmt.Sprintf("%.4g of the requests late", late), fmt.Sprintf("at most %.4g", 1-percentile), "the gears' lateness and weights do not keep the SLO over all requests")
	}
}
