package verify

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/policy/flow"
)

// dynamic is a workflow of the plan.
type dynamic struct {
	graph  *flow.Workflow
	names  []string // models, by service of the graph
	visits []flow.Visits
	paths  [][][]flow.Leg // by segment
}

// workflows checks a plan of workflows.
func (c *checker) workflows() {
	c.segments()
	sound := c.Sound()
	c.Pools(true)
	if !sound || len(c.plan.Modules) != len(c.Plan.Deployment) {
		return
	}
	languages{c}.check()
	c.hold()
	c.residents()
	for i := range c.plan.Applications {
		c.application(i)
	}
	if device, least := c.busiest(); len(c.dynamic) == len(c.plan.Applications) && least < 1-rounding {
		c.Fail("rps", "deployment", fmt.Sprintf("%.6g devices", float64(c.counts()[device])), fmt.Sprintf("%.6g devices", float64(c.counts()[device])/least), "the devices do not carry what the applications need of them")
	}
	c.objective()
}

// segments checks that plan and workload name the same workflows.
func (c *checker) segments() {
	if c.Workload == nil {
		return
	}
	for i := range c.plan.Applications {
		a, at := &c.plan.Applications[i], fmt.Sprintf("flow.applications[%d]", i)
		w := c.asked(a.Model)
		switch {
		case w == nil:
			c.Fail("application", at+".model", a.Model, "an application of the workload", "the workload no longer asks for %s", a.Model)
		case !reflect.DeepEqual(spelled(a.Segments), spelled(w.Segments)) || !reflect.DeepEqual(a.Parameters, w.Parameters):
			c.Fail("application", at+".segments", fmt.Sprintf("%d segments", len(a.Segments)), "the segments of the workload", "the workload has other segments of %s", a.Model)
		}
	}
	c.served()
}

// demand computes what the applications ask of each model, in its usual work.
func (c *checker) demand() {
	for i := range c.plan.Applications {
		a, at := &c.plan.Applications[i], fmt.Sprintf("flow.applications[%d]", i)
		d := dynamic{}
		var err error
		if d.graph, d.names, err = flow.Segments(&formats.Application{Name: a.Model, Parameters: a.Parameters, Segments: flow.WithWork(a.Segments, c.llms)}, at); err == nil {
			d.visits, err = d.graph.Visits()
		}
		for g := 0; err == nil && g < len(a.Segments); g++ {
			var paths [][]flow.Leg
			paths, err = d.graph.Paths(g)
			d.paths = append(d.paths, paths)
		}
		if err != nil {
			c.Fail("graph", at+".segments", "", "", "%v", err)
			return
		}
		for _, v := range d.visits {
			for g, n := range v.Times {
				for _, ask := range d.graph.Asks(g) {
					c.need[d.names[ask.Service]] += a.RPS * v.Chance * float64(n) * ask.Work
				}
			}
		}
		c.dynamic = append(c.dynamic, d)
	}
}

// counts are the devices that a plan runs on, by kind.
func (c *checker) counts() map[string]int {
	out := map[string]int{}
	for i := range c.Plan.Deployment {
		for _, l := range c.Plan.Deployment[i].Pipelines {
			out[l.Stages[0].Device] = max(out[l.Stages[0].Device], l.Stages[0].Replicas)
		}
	}
	return out
}

// spare is how many times the promised rates the devices carry today, in full
// batches.
func (c *checker) spare() float64 {
	_, least := c.busiest()
	return least
}

// busiest is the kind of devices that carries the promised rates least often today, in
// full batches, where each service's work is shared between the kinds as planned.
func (c *checker) busiest() (device string, least float64) {
	taken := map[string]float64{}
	for i := range c.Plan.Deployment {
		d := &c.Plan.Deployment[i]
		whole := 0.0
		for _, l := range d.Pipelines {
			whole += l.Stages[0].RPS
		}
		for _, l := range d.Pipelines {
			s := &l.Stages[0]
			if rate := c.each[d.Model][s.Device]; rate > 0 {
				taken[s.Device] += c.need[d.Model] * s.RPS / whole / rate
			} else if c.need[d.Model] > 0 {
				return s.Device, 0
			}
		}
	}
	least = math.Inf(1)
	counts := c.counts()
	for _, name := range slices.Sorted(maps.Keys(taken)) {
		if n := float64(counts[name]) / taken[name]; taken[name] > 0 && n < least {
			device, least = name, n
		}
	}
	return device, least
}

// slowest is what requests take at most, as many as the percentile asks for: at
// every step a batch that runs, then their own.
func (c *checker) slowest(i int) time.Duration {
	if i >= len(c.dynamic) {
		return 0
	}
	d := &c.dynamic[i]
	percentile, err := formats.ParsePercentile(c.plan.Applications[i].Percentile)
	if err != nil {
		return 0
	}
	type way struct {
		took   time.Duration
		chance float64
	}
	var ways []way
	for _, v := range d.visits {
		sum := time.Duration(0)
		for g, n := range v.Times {
			sum += time.Duration(n) * c.through(d, g)
		}
		ways = append(ways, way{sum, v.Chance})
	}
	slices.SortFunc(ways, func(a, b way) int { return cmp.Compare(a.took, b.took) })
	sum := 0.0
	for _, w := range ways {
		if sum += w.chance; sum >= percentile-1e-12 {
			return w.took
		}
	}
	return ways[len(ways)-1].took
}

// through is the longest path through a segment.
func (c *checker) through(d *dynamic, segment int) time.Duration {
	most := time.Duration(0)
	for _, path := range d.paths[segment] {
		sum := time.Duration(0)
		for _, leg := range path {
			step := time.Duration(0)
			for _, id := range leg.Services {
				step = max(step, time.Duration(leg.Work*float64(c.took[d.names[id]])))
			}
			sum += 2 * step
		}
		most = max(most, sum)
	}
	return most
}

// residents checks that what devices hold at the start fits into their memory of
// today, beside the largest batch.
func (c *checker) residents() {
	first := 0
	for i := range c.Plan.Pools {
		pool := c.Pool(c.Plan.Pools[i].Device)
		if pool != nil && pool.Memory > 0 {
			c.residentsOn(pool, first, c.Plan.Pools[i].Count)
		}
		first += c.Plan.Pools[i].Count
	}
}

// residentsOn checks the devices of a kind, which the plan numbers from first on.
func (c *checker) residentsOn(pool *formats.Pool, first, count int) {
	working, held := int64(0), map[int]int64{}
	own := func(dev int) bool { return dev >= first && dev < first+count }
	for i := range c.Plan.Deployment {
		d := &c.Plan.Deployment[i]
		k := slices.IndexFunc(d.Pipelines, func(l formats.Pipeline) bool { return l.Stages[0].Device == pool.Device })
		if k < 0 {
			if j := slices.IndexFunc(c.plan.Modules[i].Resident, own); j >= 0 {
				c.Fail("placement", fmt.Sprintf("flow.modules[%d].resident[%d]", i, j), fmt.Sprint(c.plan.Modules[i].Resident[j]), "a device that runs it", "%s is placed on %s, which does not run it", d.Model, pool.Device)
			}
			continue
		}
		need := c.Memory(d, &d.Pipelines[k], &d.Pipelines[k].Stages[0])
		working = max(working, need.Rest)
		if m := &c.plan.Modules[i]; need.Weights != m.WeightBytes {
			c.Warn("memory", fmt.Sprintf("flow.modules[%d].weight_bytes", i), fmt.Sprint(m.WeightBytes), fmt.Sprint(need.Weights), "the weights of %s have changed", d.Model)
		}
		for _, dev := range c.plan.Modules[i].Resident {
			held[dev] += need.Weights
		}
	}
	for i := range c.Plan.Deployment {
		for k, dev := range c.plan.Modules[i].Resident {
			if own(dev) && held[dev]+working > int64(pool.Memory) {
				c.Fail("memory", fmt.Sprintf("flow.modules[%d].resident[%d]", i, k), fmt.Sprint(held[dev]+working), fmt.Sprintf("at most %v", pool.Memory),
					"what device %d of %s holds at the start does not fit in its memory beside a batch", dev-first, pool.Device)
				held[dev] = 0
			}
		}
	}
}
