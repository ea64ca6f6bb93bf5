package verify

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
)

// Check returns the findings for a plan of applications. If there are none, the whole plan holds and
// nothing has changed.
func Check(t *kind.Today) []kind.Finding {
	c := newChecker(t)
	if c.plan == nil {
		c.Fail("kind", "flow", "nothing", "the section of a plan of kind flow", "the plan has no applications")
		return c.Findings
	}
	if c.plan.Workflow() {
		c.workflows()
		return c.Findings
	}

	// Check the structure first. Times and rates can only be computed for a sound plan.
	c.applications()
	sound := c.Sound()
	c.Pools(true)
	c.Requests()
	if !sound {
		return c.Findings
	}
	c.hold()
	c.devices()
	for i := range c.plan.Applications {
		c.application(i)
	}

	// Each model must carry what the applications need of it.
	for i := range c.Plan.Deployment {
		m := c.Plan.Deployment[i].Model
		if has, ok := c.rps[m]; ok && has < c.need[m]*(1-rounding) {
			c.Fail("rps", fmt.Sprintf("deployment[%d]", i), fmt.Sprintf("%.6g rps", has), fmt.Sprintf("%.6g rps", c.need[m]), "the devices of %s do not carry what the applications need of it", m)
		}
	}
	c.scaling()
	c.objective()
	return c.Findings
}

// workloadApplication returns the application of that name in today's workload, with defaults filled in. If
// there is none, it returns nil.
func (c *checker) asked(name string) *formats.Application {
	for _, a := range formats.ApplicationsOf(c.Workload) {
		if a.Name == name {
			a = a.WithDefaults()
			return &a
		}
	}
	return nil
}

// checkApplications checks that plan and workload have the same applications with the same graphs of
// modules.
func (c *checker) applications() {
	if c.Workload == nil {
		return
	}
	for i := range c.plan.Applications {
		a, at := &c.plan.Applications[i], fmt.Sprintf("flow.applications[%d]", i)
		w := c.asked(a.Model)
		if w == nil {
			c.Fail("application", at+".model", strconv.Quote(a.Model), "an application of the workload", "the workload no longer asks for %s", a.Model)
			continue
		}
		same := slices.EqualFunc(a.Modules, w.Modules, func(m, o formats.Module) bool {
			return m.Name == o.Name && slices.Equal(m.After, o.After) &&
				slices.ContainsFunc(o.Models(), func(v formats.Variant) bool { return v.Model == m.Model }) &&
				slices.EqualFunc(m.Branches, o.Branches, func(x, y formats.Branch) bool {
					return slices.Equal(x.To, y.To) && x.Probability == y.Probability
				})
		})
		if !same {
			c.Fail("application", at+".modules", fmt.Sprintf("%d modules", len(a.Modules)), "the modules of the workload", "the workload has another graph of %s", a.Model)
		}
	}
	c.served()
}

// checkAllServed checks that every application of the workload is in the plan.
func (c *checker) served() {
	for _, w := range formats.ApplicationsOf(c.Workload) {
		if !slices.ContainsFunc(c.plan.Applications, func(a formats.FlowApplication) bool { return a.Model == w.Name }) {
			c.Fail("application", "flow.applications", "no "+strconv.Quote(w.Name), "every application of the workload", "the workload asks for %s, the plan does not serve it", w.Name)
		}
	}
}

// checkApplication checks the promises for one application: SLO, weight, rate, accuracy, longest path and
// margin.
func (c *checker) application(i int) {
	a, at := &c.plan.Applications[i], fmt.Sprintf("flow.applications[%d]", i)
	slo := a.SLOUS
	if w := c.asked(a.Model); w != nil {
		if today := document.Micros(w.SLO.Duration); today > 0 && c.Plan.Options.SLO("slo").IsZero() && today != slo {
			c.Warn("slo", at+".slo_us", slo.D().String(), today.D().String(), "the SLO of %s has changed", a.Model)
			slo = today
		}
		if w.Weight != a.Weight {
			c.Warn("weight", at+".weight", fmt.Sprint(a.Weight), fmt.Sprint(w.Weight), "the weight of %s has changed", a.Model)
		}
		if w.RPS > 0 && c.Plan.Objective.Name != "throughput" && a.RPS < w.RPS*(1-rounding) {
			c.Fail("min_rps", at+".rps", fmt.Sprint(a.RPS), fmt.Sprint(w.RPS), "the plan carries less of %s than the workload asks for", a.Model)
		}
		c.accuracy(a, w, at)
	}
	if took := c.longest(i); took+a.MarginUS.D() > slo.D() {
		c.Fail("slo", at+".slo_us", took.String(), fmt.Sprintf("at most %v less the margin of %v", slo.D(), a.MarginUS.D()), "the longest path of %s takes too long", a.Model)
		c.Findings[len(c.Findings)-1].Excess = took.Seconds()/(slo.D()-a.MarginUS.D()).Seconds() - 1
	}
	if want := c.Plan.Options.Number("margin") * float64(a.SLOUS); math.Abs(want-float64(a.MarginUS)) > 1000 {
		c.Fail("margin", at+".margin_us", a.MarginUS.String(), document.Micros(want).String(), "the margin of %s is not that of the options", a.Model)
	}
}

// checkAccuracy checks that the chosen variants reach the accuracy floor of today's workload.
func (c *checker) accuracy(a *formats.FlowApplication, w *formats.Application, at string) {
	product := 1.0
	for k := range a.Modules {
		if k >= len(w.Modules) {
			return
		}
		for _, v := range w.Modules[k].Models() {
			if v.Model == a.Modules[k].Model && v.Accuracy > 0 {
				product *= v.Accuracy
			}
		}
	}
	if product < w.Accuracy*(1-rounding) {
		c.Fail("accuracy", at+".modules", fmt.Sprintf("%.6g", product), fmt.Sprintf("at least %.6g", w.Accuracy), "the variants of %s are less accurate than asked", a.Model)
	}
}

// checkObjective checks the value of the plan's objective, and that it is on the right side of its bound.
func (c *checker) objective() {
	o := &c.Plan.Objective
	if o.Bound != nil {
		switch up := o.Name == "throughput"; {
		case up && o.Value > *o.Bound*(1+1e-9):
			c.Fail("objective", "objective.bound", fmt.Sprint(*o.Bound), fmt.Sprintf("at least %v", o.Value), "the value is above its own bound")
		case !up && o.Value < *o.Bound*(1-1e-9):
			c.Fail("objective", "objective.bound", fmt.Sprint(*o.Bound), fmt.Sprintf("at most %v", o.Value), "the value is below its own bound")
		}
	}

	// Compute the value again, from the rates or from the devices.
	value, of := c.price(o.Name), "devices"
	if o.Name == "throughput" {
		value, of = c.factor(), "rates of the applications"
	}
	if math.Abs(value-o.Value) > rounding*value {
		c.Fail("objective", "objective.value", fmt.Sprint(o.Value), fmt.Sprint(value), "the %s do not give this objective", of)
	}
}

// minWeightedRate returns the least rate of an application over its weight.
func (c *checker) factor() float64 {
	least := math.Inf(1)
	for i := range c.plan.Applications {
		least = min(least, c.plan.Applications[i].RPS/c.plan.Applications[i].Weight)
	}
	return least
}

// devicePrice returns the price of the plan's devices in the unit of an objective.
func (c *checker) price(objective string) float64 {
	sum := 0.0
	if c.plan.Workflow() { // whose models share the devices
		counts := groups{c}.counts()
		for i := range c.Plan.Pools {
			sum += float64(counts[c.Plan.Pools[i].Device]) * priceOf(&c.Plan.Pools[i], objective)
		}
		return sum
	}
	for i := range c.Plan.Deployment {
		for _, l := range c.Plan.Deployment[i].Pipelines {
			s := &l.Stages[0]
			for _, pool := range c.Plan.Pools {
				if pool.Device != s.Device {
					continue
				}
				sum += float64(s.Replicas) / float64(s.Share) * priceOf(&pool, objective)
			}
		}
	}
	return sum
}

// priceOf returns the price of one device of a pool in the unit of an objective.
func priceOf(pool *formats.Pool, objective string) float64 {
	return map[string]float64{"cost": pool.USDPerHour, "power": pool.Watts, "gpus": 1}[objective]
}
