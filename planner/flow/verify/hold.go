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
	took    map[string]time.Duration      // by model: of any batch, today
	beside  map[string]time.Duration      // by model: of any batch on its devices, today
	rps     map[string]float64            // by model: what its devices carry today
	each    map[string]map[string]float64 // by model and kind: what a device carries today
	need    map[string]float64            // by model: at the promised rates
	apps    []flow.App
	dynamic []dynamic                          // of workflows
	llms    map[string]*formats.FlowGeneration // of today
	without error                              // why there are none
}

func newChecker(t *kind.Today) *checker {
	c := &checker{plan: formats.FlowOf(t.Plan)}
	if c.plan != nil && c.plan.Workflow() {
		t = languages{c}.measure(t)
	}
	c.Checker = *recompute.New(t)
	return c
}

// hold computes what the models take and carry today. Models that cannot be
// computed are missing.
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

// model is what a deployed model takes and carries.
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

// longest is what a request takes at most on the longest path of an application:
// in every module a batch that runs, of whatever runs on its devices, then its own.
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

// step is what a module takes of a deadline: the longest run on any of its devices, then
// its own.
func (c *checker) step(model string) time.Duration {
	return max(c.took[model], c.beside[model]) + c.took[model]
}

// devicesOf is how many devices' time a stage has: its replicas, or where modules take
// turns the parts of their time.
func devicesOf(p *formats.Plan, s *formats.Stage) float64 {
	if inTurns(p, s.Device) {
		return s.GPUs
	}
	return float64(s.Replicas)
}

// neighbours finds for every model in turns the longest run of those that are on its devices,
// from that of every model.
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
	out := map[string]time.Duration{}
	for model, list := range on {
		for _, at := range list {
			out[model] = max(out[model], longest[at])
		}
	}
	return out
}

// carried is the rate of an application at which its busiest model is full, the
// other applications in proportion.
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
