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

const rounding = recompute.Rounding

// checker checks a plan of applications.
type checker struct {
	recompute.Checker
	plan    *formats.FlowPlan
	took    map[string]time.Duration      // by model: the longest time of any batch, today
	beside  map[string]time.Duration      // by model: the longest batch of any model on its devices, today
	rps     map[string]float64            // by model: requests per second that its devices carry today
	each    map[string]map[string]float64 // by model and kind: requests per second that one device carries today
	need    map[string]float64            // by model: requests per second at the promised rates
	apps    []flow.App
	dynamic []dynamic                          // the workflows of the plan
	llms    map[string]*formats.FlowGeneration // by name, by today's profile
	without error                              // why languageModels is empty
}

// newChecker returns a checker of a plan. If it has workflows, their language models are put into the
// profile first.
func newChecker(t *kind.Today) *checker {
	c := &checker{plan: formats.FlowOf(t.Plan)}
	if c.plan != nil && c.plan.Workflow() {
		t = languages{c}.measure(t)
	}
	c.Checker = *recompute.New(t)
	return c
}

// computeToday computes the times and rates of all models today. A model that cannot be computed is missing
// in the maps.
func (c *checker) hold() {
	c.took, c.rps, c.need, c.each = map[string]time.Duration{}, map[string]float64{}, map[string]float64{}, map[string]map[string]float64{}
	for i := range c.Plan.Deployment {
		c.model(&c.Plan.Deployment[i], fmt.Sprintf("deployment[%d]", i))
	}
	if c.plan.Workflow() {
		c.demand()
		return
	}
	c.beside = neighbours(c.Plan, c.took)
	for i := range c.plan.Applications {
		a := &c.plan.Applications[i]
		g, err := flow.Graph(a.Modules, fmt.Sprintf("flow.applications[%d]", i))
		if err != nil {
			c.Fail("graph", fmt.Sprintf("flow.applications[%d].modules", i), "", "", "%v", err)
		}
		c.apps = append(c.apps, g)
		for k := range g.Nodes {
			c.need[a.Modules[k].Model] += a.RPS * g.Nodes[k].Chance
		}
	}
}

// computeModel computes the batch times and rates of one deployed model today.
func (c *checker) model(d *formats.Deployed, at string) {
	took, rps, each := time.Duration(0), 0.0, map[string]float64{}
	for k := range d.Pipelines {
		l := &d.Pipelines[k]
		path := fmt.Sprintf("%s.pipelines[%d]", at, k)
		now := c.Pipeline(d, l)
		if !now.Known {
			c.Fail("measurement", path, "none", "one of the batch there", "the profile has no measurement of %s for this pipeline any more", d.Model)
			return
		}
		pm := c.ProfileModel(d.Model)
		for b := 1; b <= l.Batch; b++ {
			took = max(took, recompute.Inference(pm, recompute.Measured(pm, l.Stages[0].Device, l.Stages[0].Share, b), 0, d.NumBlocks))
		}
		if was := l.LatencyUS.D(); recompute.Moved(now.Latency, was) {
			c.Warn("latency", path+".latency_us", was.String(), recompute.Change(was, now.Latency), "a batch of %s takes another time today", d.Model)
		}
		rps += now.Stages[0].Rate * devicesOf(c.Plan, &l.Stages[0])
		each[l.Stages[0].Device] = now.Stages[0].Rate
	}
	c.took[d.Model], c.rps[d.Model], c.each[d.Model] = took, rps, each
}

// longestPathTime returns the longest time that a request of application i takes: in every module it waits
// for a batch of any model on the same devices, then is in one of its own.
func (c *checker) longest(i int) time.Duration {
	a, most := &c.plan.Applications[i], time.Duration(0)
	if c.plan.Workflow() {
		return c.slowest(i)
	}
	if len(c.apps[i].Nodes) == 0 {
		return 0
	}
	for _, path := range c.apps[i].Nodes[0].Paths {
		sum := c.step(a.Modules[0].Model)
		for _, n := range path {
			sum += c.step(a.Modules[n].Model)
		}
		most = max(most, sum)
	}
	return most
}

// moduleTime returns what a module takes of a deadline: the longest run on any of its devices, then its own
// batch.
func (c *checker) step(model string) time.Duration {
	return max(c.took[model], c.beside[model]) + c.took[model]
}

// devicesOf returns how many devices' time a stage has: the number of its replicas or, where models take
// turns, their share of the time.
func devicesOf(p *formats.Plan, s *formats.Stage) float64 {
	if inTurns(p, s.Device) {
		return s.GPUs
	}
	return float64(s.Replicas)
}

// longestSharedRuns returns, for every model that takes turns, the longest run of the models on its
// devices. batchTime has the longest run of each model alone.
func neighbours(plan *formats.Plan, took map[string]time.Duration) map[string]time.Duration {
	type device struct {
		kind string
		at   int
	}
	longest, on := map[device]time.Duration{}, map[string][]device{}
	for i := range plan.Deployment {
		d := &plan.Deployment[i]
		for k := range d.Pipelines {
			if !inTurns(plan, d.Pipelines[k].Stages[0].Device) {
				continue
			}
			for _, p := range d.Pipelines[k].Stages[0].Placement {
				for r := range p.Replicas {
					at := device{d.Pipelines[k].Stages[0].Device, p.First + r/max(p.PerDevice, 1)}
					on[d.Model], longest[at] = append(on[d.Model], at), max(longest[at], took[d.Model])
				}
			}
		}
	}

	// A model's shared run is the longest on any of its devices.
	out := map[string]time.Duration{}
	for model, list := range on {
		for _, at := range list {
			out[model] = max(out[model], longest[at])
		}
	}
	return out
}

// carriedRate returns the rate of application i at which its busiest model is full, if the rates of all
// applications grow in proportion.
func (c *checker) carried(i int) float64 {
	least := math.Inf(1)
	a := &c.plan.Applications[i]
	if c.plan.Workflow() {
		return a.RPS * c.spare()
	}
	for k := range c.apps[i].Nodes {
		m := a.Modules[k].Model
		if need := c.need[m]; need > 0 {
			least = min(least, a.RPS*c.rps[m]/need)
		}
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return least
}
