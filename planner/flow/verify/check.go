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

// Check compares a plan of applications with today's documents (profile, cluster, workload) and returns the findings: each constraint or
// statement of the plan that does not hold any more. If there are none, the whole plan holds and nothing has changed.
func Check(t *kind.CheckInput) []kind.Finding {
	c := newChecker(t)
	if c.section == nil {
		c.AddError("kind", "flow", "nothing", "the section of a plan of kind flow", "the plan has no applications")
		return c.Findings
	}
	if c.section.Workflow() {
		c.checkWorkflows()
		return c.Findings
	}

	// Check the structure first. Times and rates can only be computed for a sound plan.
	c.checkApplications()
	sound := c.CheckStructure()
	c.CheckPools(true)
	c.CheckRequestCosts()
	if !sound {
		return c.Findings
	}
	c.computeToday()
	c.checkDevices()
	for i := range c.section.Applications {
		c.checkApplication(i)
	}

	// Each model must carry what the applications need of it.
	for i := range c.Plan.Deployment {
		m := c.Plan.Deployment[i].Model
		if carried, ok := c.capacity[m]; ok && carried < c.requiredRate[m]*(1-relativeTolerance) {
			c.AddError("rps", fmt.Sprintf("deployment[%d]", i), fmt.Sprintf("%.6g rps", carried), fmt.Sprintf("%.6g rps", c.requiredRate[m]), "the devices of %s do not carry what the applications need of it", m)
		}
	}
	c.checkScaling()
	c.checkObjective()
	return c.Findings
}

// workloadApplication returns the application of that name in today's workload, with defaults filled in. If
// there is none, it returns nil.
func (c *checker) workloadApplication(name string) *formats.Application {
	for _, a := range formats.ApplicationsOf(c.Workload) {
		if a.Name == name {
			a = a.WithDefaults()
			return &a
		}
	}
	return nil
}

// checkApplications checks that plan and workload have the same applications with the same graphs of modules: names, order, branches, and
// models that the workload allows. Differences are added to the findings.
func (c *checker) checkApplications() {
	if c.Workload == nil {
		return
	}
	for i := range c.section.Applications {
		a, docPath := &c.section.Applications[i], fmt.Sprintf("flow.applications[%d]", i)
		w := c.workloadApplication(a.Model)
		if w == nil {
			c.AddError("application", docPath+".model", strconv.Quote(a.Model), "an application of the workload", "the workload no longer asks for %s", a.Model)
			continue
		}
		sameModules := slices.EqualFunc(a.Modules, w.Modules, func(m, o formats.Module) bool {
			return m.Name == o.Name && slices.Equal(m.Predecessors, o.Predecessors) &&
				slices.ContainsFunc(o.Models(), func(v formats.Variant) bool { return v.Model == m.Model }) &&
				slices.EqualFunc(m.Branches, o.Branches, func(x, y formats.Branch) bool {
					return slices.Equal(x.Targets, y.Targets) && x.Probability == y.Probability
				})
		})
		if !sameModules {
			c.AddError("application", docPath+".modules", fmt.Sprintf("%d modules", len(a.Modules)), "the modules of the workload", "the workload has another graph of %s", a.Model)
		}
	}
	c.checkAllServed()
}

// checkAllServed checks that every application of the workload is in the plan.
func (c *checker) checkAllServed() {
	for _, w := range formats.ApplicationsOf(c.Workload) {
		if !slices.ContainsFunc(c.section.Applications, func(a formats.FlowApplication) bool { return a.Model == w.Name }) {
			c.AddError("application", "flow.applications", "no "+strconv.Quote(w.Name), "every application of the workload", "the workload asks for %s, the plan does not serve it", w.Name)
		}
	}
}

// checkApplication checks the promises for application i of the plan against today's workload: SLO, weight, rate, accuracy, longest path
// and margin. What does not hold is added to the findings. SLOUS and MarginUS count nanoseconds.
func (c *checker) checkApplication(i int) {
	a, docPath := &c.section.Applications[i], fmt.Sprintf("flow.applications[%d]", i)
	slo := a.SLOUS
	if w := c.workloadApplication(a.Model); w != nil {
		// Without the option slo, the plan's SLO came from the workload. An SLO that is a multiple has no duration to compare.
		fromWorkload := c.Plan.Options.SLO("slo").IsZero()
		if today := document.Micros(w.SLO.Duration); today > 0 && fromWorkload && today != slo {
			c.AddWarning("slo", docPath+".slo_us", slo.D().String(), today.D().String(), "the SLO of %s has changed", a.Model)
			slo = today
		}
		if w.Weight != a.Weight {
			c.AddWarning("weight", docPath+".weight", fmt.Sprint(a.Weight), fmt.Sprint(w.Weight), "the weight of %s has changed", a.Model)
		}
		if w.RPS > 0 && c.Plan.Objective.Name != "throughput" && a.RPS < w.RPS*(1-relativeTolerance) {
			c.AddError("min_rps", docPath+".rps", fmt.Sprint(a.RPS), fmt.Sprint(w.RPS), "the plan carries less of %s than the workload asks for", a.Model)
		}
		c.checkAccuracy(a, w, docPath)
	}
	// The longest path must fit into the SLO less the margin. Excess is the part by which it does not.
	if pathTime := c.longestPathTime(i); pathTime+a.MarginUS.D() > slo.D() {
		c.AddError("slo", docPath+".slo_us", pathTime.String(), fmt.Sprintf("at most %v less the margin of %v", slo.D(), a.MarginUS.D()), "the longest path of %s takes too long", a.Model)
		c.Findings[len(c.Findings)-1].Excess = pathTime.Seconds()/(slo.D()-a.MarginUS.D()).Seconds() - 1
	}

	// The margin is a part of the plan's own SLO, not of today's. It may differ from that part by rounding to a microsecond (1000 ns).
	if expectedMargin := c.Plan.Options.Number("margin") * float64(a.SLOUS); math.Abs(expectedMargin-float64(a.MarginUS)) > 1000 {
		c.AddError("margin", docPath+".margin_us", a.MarginUS.String(), document.Micros(expectedMargin).String(), "the margin of %s is not that of the options", a.Model)
	}
}

// checkAccuracy adds a finding if the models that plan application a has chosen miss the accuracy floor of today's workload application
// w: their accuracies, multiplied over the modules, must reach it. Models without a given accuracy count as 1.
func (c *checker) checkAccuracy(a *formats.FlowApplication, w *formats.Application, docPath string) {
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
	if product < w.Accuracy*(1-relativeTolerance) {
		c.AddError("accuracy", docPath+".modules", fmt.Sprintf("%.6g", product), fmt.Sprintf("at least %.6g", w.Accuracy), "the variants of %s are less accurate than asked", a.Model)
	}
}

// checkObjective checks that the value of the plan's objective is on the right side of its bound (below if it is maximised, else above),
// and that the plan's rates or devices give that value.
func (c *checker) checkObjective() {
	o := &c.Plan.Objective
	if o.Bound != nil {
		switch maximized := o.Name == "throughput"; {
		case maximized && o.Value > *o.Bound*(1+1e-9):
			c.AddError("objective", "objective.bound", fmt.Sprint(*o.Bound), fmt.Sprintf("at least %v", o.Value), "the value is above its own bound")
		case !maximized && o.Value < *o.Bound*(1-1e-9):
			c.AddError("objective", "objective.bound", fmt.Sprint(*o.Bound), fmt.Sprintf("at most %v", o.Value), "the value is below its own bound")
		}
	}

	// Compute the value again, from the rates or from the devices.
	value, source := c.devicePrice(o.Name), "devices"
	if o.Name == "throughput" {
		value, source = c.minWeightedRate(), "rates of the applications"
	}
	if math.Abs(value-o.Value) > relativeTolerance*value {
		c.AddError("objective", "objective.value", fmt.Sprint(o.Value), fmt.Sprint(value), "the %s do not give this objective", source)
	}
}

// minWeightedRate returns the least rate of an application over its weight.
func (c *checker) minWeightedRate() float64 {
	minRate := math.Inf(1)
	for i := range c.section.Applications {
		minRate = min(minRate, c.section.Applications[i].RPS/c.section.Applications[i].Weight)
	}
	return minRate
}

// devicePrice returns the price of the plan's devices in the unit of an objective: USD per hour for cost, watts for power, else their
// number. The plan's own prices count, not today's.
func (c *checker) devicePrice(objective string) float64 {
	sum := 0.0
	if c.section.Workflow() { // whose models share the devices
		counts := newDeviceGroups(c.Plan).deviceCounts()
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
