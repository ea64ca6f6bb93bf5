package check

import (
	"fmt"
	"math"

	"inferplan/formats"
)

// gearObjective checks the plan's value against its gears.
func (c *checker) gearObjective(g *gears) {
	o, p := &c.plan.Objective, c.plan.Gear
	accuracy, bound, slowest := 0.0, 0.0, formats.Micros(0)
	for i := range p.Gears {
		r := &p.Gears[i]
		accuracy += r.Weight * r.Accuracy
		bound += r.Weight * r.Bound
		slowest = max(slowest, r.LatencyUS)
		if r.Accuracy > r.Bound+1e-9 {
			c.fail("bound", fmt.Sprintf("gear.gears[%d].bound", i), fmt.Sprint(r.Bound), fmt.Sprintf("at least %v", r.Accuracy), "the gear's accuracy is above its own bound")
		}
	}
	if p.Accuracy > 0 && accuracy < p.Accuracy-rounding {
		c.fail("accuracy", "gear.accuracy_slo", fmt.Sprint(p.Accuracy), fmt.Sprintf("at most %.6g", accuracy), "the gears' accuracies and weights do not reach the accuracy asked for")
	}
	value := o.Value
	switch o.Name {
	case "accuracy":
		value = accuracy
		if o.Bound != nil && math.Abs(bound-*o.Bound) > rounding {
			c.fail("objective", "objective.bound", fmt.Sprint(*o.Bound), fmt.Sprint(bound), "the gears' bounds and weights do not give this bound")
		}
	case "latency":
		value = slowest.D().Seconds() * 1e3
	default: // devices, or what they cost
		n := c.gearDevices()
		if n < 1 || math.Abs(n-math.Round(n)) > rounding {
			c.fail("objective", "objective.value", fmt.Sprint(o.Value), "a whole number of devices", "the objective is the number of devices, or that times their price or power")
			return
		}
		for m, devices := range g.devices {
			last := 0
			for _, on := range devices {
				for _, at := range on.on {
					last = max(last, at.device)
				}
			}
			if float64(last) > n-1+rounding {
				c.fail("objective", "objective.value", fmt.Sprint(o.Value), fmt.Sprintf("device %d as well", last), "%s stands on more devices than the objective counts", c.plan.Models[m].Model)
				return
			}
		}
	}
	if math.Abs(value-o.Value) > rounding*max(1, value) {
		c.fail("objective", "objective.value", fmt.Sprint(o.Value), fmt.Sprint(value), "the gears do not give this objective")
	}
}

// gearDevices is the number of devices that the plan was made for: all of the
// pool, but where they were to be few.
func (c *checker) gearDevices() float64 {
	return c.devicesAt(c.plan.Objective.Value)
}

func (c *checker) devicesAt(value float64) float64 {
	pool := &c.plan.Pools[0]
	switch c.plan.Objective.Name {
	case "gpus":
		return value
	case "cost":
		return value / pool.USDPerHour
	case "power":
		return value / pool.Watts
	}
	return float64(pool.Count)
}

// gearLate sums the lateness of the gears of a plan whose SLO is over all
// requests.
func (c *checker) gearLate() {
	g := c.plan.Gear
	if g.Over != formats.OverRequests {
		return
	}
	percentile, err := formats.ParsePercentile(g.Percentile)
	if err != nil {
		return // named already
	}
	late := 0.0
	for i := range g.Gears {
		late += g.Gears[i].Weight * g.Gears[i].Late
	}
	if late > 1-percentile+rounding {
		c.fail("slo", "gear.gears", fmt.Sprintf("%.4g of the requests late", late), fmt.Sprintf("at most %.4g", 1-percentile), "the gears' lateness and weights do not keep the SLO over all requests")
	}
}
