package verify

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy/flow"
)

// workflow is a workflow of the plan.
type dynamic struct {
	graph  *flow.Workflow
	names  []string // models, by service of the graph
	visits []flow.Visits
	paths  [][][]flow.Leg // by segment
}

// checkWorkflows checks a plan of workflows.
func (c *checker) workflows() {
	c.segments()
	sound := c.Sound()
	c.Pools(true)
	c.Requests()
	if !sound || len(c.plan.Modules) != len(c.Plan.Deployment) {
		return
	}
	languages{c}.check()
	c.hold()
	groups{c}.check()
	c.residents()
	for i := range c.plan.Applications {
		c.application(i)
	}

	// The busiest group of devices must carry what the applications need.
	if group, least := (groups{c}).busiest(); len(c.dynamic) == len(c.plan.Applications) && least < 1-rounding {
		c.Fail("rps", "deployment", fmt.Sprintf("%.6g devices", float64(group.Replicas)), fmt.Sprintf("%.6g devices", float64(group.Replicas)/least), "the devices do not carry what the applications need of them")
	}
	c.objective()
}

// checkSegments checks that plan and workload have the same workflows.
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
		case !alike(a.Segments, w.Segments) || !reflect.DeepEqual(a.Parameters, w.Parameters):
			c.Fail("application", at+".segments", fmt.Sprintf("%d segments", len(a.Segments)), "the segments of the workload", "the workload has other segments of %s", a.Model)
		}
	}
	c.served()
}

// sameSegments returns whether two lists of segments are equal. If both name the same file of lengths, its
// rows are not compared. If one names no file, only the rows are compared.
func alike(a, b []formats.Segment) bool {
	a, b = spelled(a), spelled(b)
	for i := range min(len(a), len(b)) {
		for k := range min(len(a[i].Modules), len(b[i].Modules)) {
			x, y := &a[i].Modules[k], &b[i].Modules[k]
			if x.LengthsFile != "" && x.LengthsFile == y.LengthsFile {
				x.Sample, y.Sample = nil, nil
			} else if x.LengthsFile == "" || y.LengthsFile == "" {
				x.LengthsFile, y.LengthsFile = "", ""
			}
		}
	}
	return reflect.DeepEqual(a, b)
}

// computeDemand computes, for each model, how many tasks of its usual work per second the applications ask
// of it.
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

		// Sum the tasks of every visit to every segment.
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

// deviceGroups computes the groups of devices that run the same models.
type groups struct{ *checker }

// list returns the groups, each as the first stage that runs there.
func (c groups) list() (list []*formats.Stage) {
	for s := range c.Plan.Stages() {
		if !slices.ContainsFunc(list, func(o *formats.Stage) bool { return onSame(o, s.Stage) }) {
			list = append(list, s.Stage)
		}
	}
	return list
}

// sameDevices returns whether two stages run on the same devices.
func onSame(a, b *formats.Stage) bool {
	return a.Device == b.Device && slices.Equal(a.Placement, b.Placement)
}

// check checks that two models share all of their devices of a kind or none, because load is counted by
// groups of devices.
func (c groups) check() {
	list := c.list()
	for i, s := range list {
		for _, o := range list[:i] {
			if s.Meets(o) {
				c.Fail("placement", "deployment", fmt.Sprintf("models on some of the same devices of %s", s.Device), "models that share all of their devices of a kind, or none", "devices of %s are in two groups", s.Device)
				return
			}
		}
	}
}

// deviceCounts returns how many devices of each kind the plan uses.
func (c groups) counts() map[string]int {
	out := map[string]int{}
	for _, s := range c.list() {
		out[s.Device] += s.Replicas
	}
	return out
}

// spareFactor returns which multiple of the promised rates the devices carry today, in full batches.
func (c *checker) spare() float64 {
	_, least := groups{c}.busiest()
	return least
}

// busiest returns the group with the least spare capacity, and which multiple of the promised rates it
// carries today in full batches. Each service's work is divided between the kinds as planned.
func (c groups) busiest() (group *formats.Stage, least float64) {
	list := c.list()
	taken := make([]float64, len(list))
	for i := range c.Plan.Deployment {
		d := &c.Plan.Deployment[i]
		whole := 0.0
		for _, l := range d.Pipelines {
			whole += l.Stages[0].RPS
		}
		for k := range d.Pipelines {
			s := &d.Pipelines[k].Stages[0]
			if rate := c.each[d.Model][s.Device]; rate > 0 {
				taken[slices.IndexFunc(list, func(o *formats.Stage) bool { return onSame(o, s) })] += c.need[d.Model] * s.RPS / whole / rate
			} else if c.need[d.Model] > 0 {
				return s, 0
			}
		}
	}

	// Find the group with the fewest devices per busy device.
	least = math.Inf(1)
	for i, s := range list {
		if n := float64(s.Replicas) / taken[i]; taken[i] > 0 && n < least {
			group, least = s, n
		}
	}
	return group, least
}

// percentileTime returns the longest time of the fastest requests, as many as the percentile asks for. At
// every step a request waits for a batch, then is in one of its own.
func (c *checker) slowest(i int) time.Duration {
	if i >= len(c.dynamic) {
		return 0
	}
	d := &c.dynamic[i]
	percentile, err := document.ParsePercentile(c.plan.Applications[i].Percentile)
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

	// Walk through the visits by rising time until their shares reach the percentile.
	slices.SortFunc(ways, func(a, b way) int { return cmp.Compare(a.took, b.took) })
	sum := 0.0
	for _, w := range ways {
		if sum += w.chance; sum >= percentile-1e-12 {
			return w.took
		}
	}
	return ways[len(ways)-1].took
}

// segmentTime returns the time of the longest path through a segment.
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

// checkResidents checks that the services that devices hold at the start fit into today's memory, beside
// the largest batch.
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

// checkResidentsOn checks the devices of one pool, whose numbers in the plan begin at firstDevice.
func (c *checker) residentsOn(pool *formats.Pool, first, count int) {
	working, held := make([]int64, count), make([]int64, count)

	// Sum the weights that each device holds, and find the memory of the largest batch that may run there.
	for i := range c.Plan.Deployment {
		d, m, runs := &c.Plan.Deployment[i], &c.plan.Modules[i], make([]bool, count)
		for k := range d.Pipelines {
			s := &d.Pipelines[k].Stages[0]
			if s.Device != pool.Device {
				continue
			}
			need := c.Memory(d, &d.Pipelines[k], s)
			if need.Weights != m.WeightBytes {
				c.Warn("memory", fmt.Sprintf("flow.modules[%d].weight_bytes", i), fmt.Sprint(m.WeightBytes), fmt.Sprint(need.Weights), "the weights of %s have changed", d.Model)
			}
			for p := range s.Placement {
				for n := range s.Placement[p].Count() {
					at := s.Placement[p].First + n
					runs[at], working[at] = true, max(working[at], need.Rest)
				}
			}
			for _, dev := range m.Resident {
				if dev >= first && dev < first+count {
					held[dev-first] += need.Weights
				}
			}
		}
		for k, dev := range m.Resident {
			if dev >= first && dev < first+count && !runs[dev-first] {
				c.Fail("placement", fmt.Sprintf("flow.modules[%d].resident[%d]", i, k), fmt.Sprint(dev), "a device that runs it", "%s is placed on device %d of %s, which does not run it", d.Model, dev-first, pool.Device)
				break
			}
		}
	}

	// Compare the sums with the memory. Each device is reported once.
	for i := range c.Plan.Deployment {
		for k, dev := range c.plan.Modules[i].Resident {
			at := dev - first
			if at < 0 || at >= count || held[at]+working[at] <= int64(pool.Memory) {
				continue
			}
			c.Fail("memory", fmt.Sprintf("flow.modules[%d].resident[%d]", i, k), fmt.Sprint(held[at]+working[at]), fmt.Sprintf("at most %v", pool.Memory),
				"what device %d of %s holds at the start does not fit in its memory beside a batch", at, pool.Device)
			held[at] = 0
		}
	}
}
