package verify

import (
	"fmt"
	"math"
	"time"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/planner/recompute"
	"inferplan/policy/flow"
)

const relativeTolerance = recompute.Rounding

// checker checks a plan of applications.
type checker struct {
	recompute.Checker
	section        *formats.FlowPlan             // section of Plan with its applications
	batchTime      map[string]time.Duration      // by model: the longest time of any batch, today
	sharedRun      map[string]time.Duration      // by model: the longest batch of any model on its devices, today
	capacity       map[string]float64            // by model: requests per second that its devices carry today
	deviceRate     map[string]map[string]float64 // by model and kind: requests per second that one replica carries today, or one device if models take turns
	requiredRate   map[string]float64            // by model: requests per second that the applications ask of it at the promised rates
	apps           []flow.Application            // compiled graphs of the plan's applications, unless they are workflows
	workflows      []workflow                    // the workflows of the plan
	languageModels *languageChecker              // of the workflows. If the plan has none, it is nil.
}

// newChecker returns a checker of a plan. If it has workflows, their language models are put into the
// profile first.
func newChecker(t *kind.CheckInput) *checker {
	c := &checker{section: formats.FlowOf(t.Plan)}
	if c.section != nil && c.section.Workflow() {
		c.languageModels, t = newLanguageChecker(c.section, t)
	}
	c.Checker = *recompute.NewChecker(t)
	return c
}

// computeToday fills the checker's maps, by today's profile: of every model of the plan the longest batch time, the longest run that its
// devices have when models take turns there (sharedRun), the rate that its devices carry (capacity, deviceRate), and the rate that the
// applications ask of it. It also compiles the graphs of the applications or, in a plan of workflows, these. A model that cannot be
// computed is missing in the maps, and a finding says so.
func (c *checker) computeToday() {
	c.batchTime, c.capacity, c.requiredRate, c.deviceRate = map[string]time.Duration{}, map[string]float64{}, map[string]float64{}, map[string]map[string]float64{}
	for i := range c.Plan.Deployment {
		c.computeModel(&c.Plan.Deployment[i], fmt.Sprintf("deployment[%d]", i))
	}
	if c.section.Workflow() {
		c.computeDemand() // compiles the workflows
		return
	}
	c.sharedRun = longestSharedRuns(c.Plan, c.batchTime)
	for i := range c.section.Applications {
		a := &c.section.Applications[i]
		g, err := flow.CompileGraph(a.Modules, fmt.Sprintf("flow.applications[%d]", i))
		if err != nil {
			c.AddError("graph", fmt.Sprintf("flow.applications[%d].modules", i), "", "", "%v", err)
		}
		// An application with an error is appended as far as it was compiled, so that c.apps keeps the order of the plan.
		c.apps = append(c.apps, g)
		for k := range g.Nodes {
			c.requiredRate[a.Modules[k].Model] += a.RPS * g.Nodes[k].ReachChance
		}
	}
}

// computeModel computes, by today's profile, the longest time of any batch of one deployed model, the rate of all of its devices and that
// of a single replica by kind (where models take turns, of a single device), and stores them in the checker. Another time of its batches is
// a warning, a missing measurement an error. In plans of applications no model is cut, so a pipeline is one stage with all blocks.
func (c *checker) computeModel(d *formats.Deployed, docPath string) {
	batchTime, capacity, deviceRate := time.Duration(0), 0.0, map[string]float64{}
	for k := range d.Pipelines {
		l := &d.Pipelines[k]
		path := fmt.Sprintf("%s.pipelines[%d]", docPath, k)
		current := c.PipelineCosts(d, l)
		if !current.IsKnown {
			c.AddError("measurement", path, "none", "one of the batch there", "the profile has no measurement of %s for this pipeline any more", d.Model)
			return
		}
		// A batch may hold any number of tasks up to the planned one, and measured times need not rise with it.
		pm, stage := c.ProfileModel(d.Model), &l.Stages[0]
		for b := 1; b <= l.Batch; b++ {
			measurement := recompute.MeasurementFor(pm, stage.Device, stage.Share, b)
			batchTime = max(batchTime, recompute.RangeTime(pm, measurement, 0, d.NumBlocks))
		}
		if plannedLatency := l.LatencyUS.D(); recompute.Differs(current.Latency, plannedLatency) {
			c.AddWarning("latency", path+".latency_us", plannedLatency.String(), recompute.ChangeText(plannedLatency, current.Latency), "a batch of %s takes another time today", d.Model)
		}
		capacity += current.Stages[0].Rate * devicesOf(c.Plan, stage)
		deviceRate[stage.Device] = current.Stages[0].Rate
	}
	c.batchTime[d.Model], c.capacity[d.Model], c.deviceRate[d.Model] = batchTime, capacity, deviceRate
}

// longestPathTime returns the longest time that a request of application i of the plan takes today: in every module it waits for a batch
// of any model on the same devices, then is in one of its own. For a workflow it is the time of percentileTime.
func (c *checker) longestPathTime(i int) time.Duration {
	a, maxTime := &c.section.Applications[i], time.Duration(0)
	if c.section.Workflow() {
		return c.percentileTime(i)
	}
	if len(c.apps[i].Nodes) == 0 {
		return 0
	}
	for _, path := range c.apps[i].Nodes[0].Paths {
		sum := c.moduleTime(a.Modules[0].Model)
		for _, n := range path {
			sum += c.moduleTime(a.Modules[n].Model)
		}
		maxTime = max(maxTime, sum)
	}
	return maxTime
}

// moduleTime returns what a module takes of a deadline: the wait for a device, then its own batch.
func (c *checker) moduleTime(model string) time.Duration {
	return c.batchTime[model] + c.waitTime(max(c.batchTime[model], c.sharedRun[model]))
}

// waitTime returns how long the plan lets a request wait for a device on which a run of that time may be under way.
func (c *checker) waitTime(longestRun time.Duration) time.Duration {
	return time.Duration(c.Plan.Options.Number("batch-wait") * float64(longestRun))
}

// devicesOf returns how many replicas of a stage run all the time or, where models take turns, the part of the time that they have, in
// devices.
func devicesOf(p *formats.Plan, s *formats.Stage) float64 {
	if isTimeShared(p, s.Device) {
		return s.GPUs
	}
	return float64(s.Replicas)
}

// longestSharedRuns returns, for every model that takes turns with others, the longest run of any model on its devices: a request may
// have to wait for it. batchTime has the longest run of each model alone.
func longestSharedRuns(plan *formats.Plan, batchTime map[string]time.Duration) map[string]time.Duration {
	type device struct {
		kind  string
		index int
	}
	maxRun, devicesOf := map[device]time.Duration{}, map[string][]device{}
	for i := range plan.Deployment {
		d := &plan.Deployment[i]
		for k := range d.Pipelines {
			if !isTimeShared(plan, d.Pipelines[k].Stages[0].Device) {
				continue
			}
			for _, p := range d.Pipelines[k].Stages[0].Placement {
				for r := range p.Replicas {
					placed := device{d.Pipelines[k].Stages[0].Device, p.FirstDevice + r/max(p.PerDevice, 1)}
					devicesOf[d.Model], maxRun[placed] = append(devicesOf[d.Model], placed), max(maxRun[placed], batchTime[d.Model])
				}
			}
		}
	}

	// A model's shared run is the longest on any of its devices.
	sharedRun := map[string]time.Duration{}
	for model, list := range devicesOf {
		for _, placed := range list {
			sharedRun[model] = max(sharedRun[model], maxRun[placed])
		}
	}
	return sharedRun
}

// carriedRate returns the rate of application i, in requests per second, at which the busiest of its models is full today, if the rates
// of all applications grow in proportion. If nothing is asked of its models, it returns 0.
//
// Workflows share all devices of a group, so there the busiest group of devices decides, for every application.
func (c *checker) carriedRate(i int) float64 {
	a := &c.section.Applications[i]
	if c.section.Workflow() {
		return a.RPS * c.spareFactor() // the multiple of the promised rates that the busiest group carries
	}
	minRate := math.Inf(1)
	for k := range c.apps[i].Nodes {
		m := a.Modules[k].Model
		if required := c.requiredRate[m]; required > 0 {
			minRate = min(minRate, a.RPS*c.capacity[m]/required)
		}
	}
	if math.IsInf(minRate, 1) {
		return 0
	}
	return minRate
}
