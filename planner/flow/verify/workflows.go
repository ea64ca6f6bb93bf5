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
	"inferplan/planner/recompute"
	"inferplan/policy/flow"
)

// workflow is a workflow of the plan.
type workflow struct {
	graph  *flow.Workflow
	names  []string // models, by service of the graph
	visits []flow.SegmentVisits
	paths  [][][]flow.PathStep // by segment
}

// checkWorkflows checks a plan of workflows (applications whose next step becomes known only at run time) against today's documents:
// segments, devices, memory, the promises for each application, and whether the devices carry the rates. What does not hold is added to
// the findings.
func (c *checker) checkWorkflows() {
	c.checkSegments()
	sound := c.CheckStructure()
	c.CheckPools(true)
	c.CheckRequestCosts()
	if !sound || len(c.section.Modules) != len(c.Plan.Deployment) {
		return
	}
	c.languageModels.check(&c.Checker)
	c.computeToday()
	groups := newDeviceGroups(c.Plan)
	groups.check(&c.Checker)
	c.checkResidents()
	for i := range c.section.Applications {
		c.checkApplication(i)
	}

	// The busiest group of devices must carry what the applications need.
	if group, spareFactor := groups.busiest(c); len(c.workflows) == len(c.section.Applications) && spareFactor < 1-relativeTolerance {
		c.AddError("rps", "deployment", fmt.Sprintf("%.6g devices", float64(group.Replicas)), fmt.Sprintf("%.6g devices", float64(group.Replicas)/spareFactor), "the devices do not carry what the applications need of them")
	}
	c.checkObjective()
}

// checkSegments checks that plan and workload have the same workflows.
func (c *checker) checkSegments() {
	if c.Workload == nil {
		return
	}
	for i := range c.section.Applications {
		a, docPath := &c.section.Applications[i], fmt.Sprintf("flow.applications[%d]", i)
		w := c.workloadApplication(a.Model)
		switch {
		case w == nil:
			c.AddError("application", docPath+".model", a.Model, "an application of the workload", "the workload no longer asks for %s", a.Model)
		case !sameSegments(a.Segments, w.Segments) || !reflect.DeepEqual(a.Parameters, w.Parameters):
			c.AddError("application", docPath+".segments", fmt.Sprintf("%d segments", len(a.Segments)), "the segments of the workload", "the workload has other segments of %s", a.Model)
		}
	}
	c.checkAllServed()
}

// sameSegments returns whether two lists of segments are equal. Of the lengths of prompts and answers, which a module has as rows (Sample),
// from a file (LengthsFile) or not, it compares what both sides have.
func sameSegments(a, b []formats.Segment) bool {
	// These copies have modules of their own, so the plan and the workload stay as they are.
	a, b = withEmptyAfter(a), withEmptyAfter(b)
	for i := range min(len(a), len(b)) {
		for k := range min(len(a[i].Modules), len(b[i].Modules)) {
			x, y := &a[i].Modules[k], &b[i].Modules[k]
			sameFile := x.LengthsFile != "" && x.LengthsFile == y.LengthsFile
			oneWithoutFile := x.LengthsFile == "" || y.LengthsFile == ""
			switch {
			case sameFile:
				x.Sample, y.Sample = nil, nil // a plan has only some rows of the file
			case oneWithoutFile:
				x.LengthsFile, y.LengthsFile = "", "" // the rows are compared
			}
		}
	}
	return reflect.DeepEqual(a, b)
}

// computeDemand computes, for each model, the tasks per second that the applications ask of it at the planned rates, in tasks of its
// usual work, and adds them to c.requiredRate. It also compiles the workflows, with the ways of their requests, into c.workflows. A
// workflow that cannot be compiled is a finding.
func (c *checker) computeDemand() {
	for i := range c.section.Applications {
		a, docPath := &c.section.Applications[i], fmt.Sprintf("flow.applications[%d]", i)
		d := workflow{}
		var err error
		if d.graph, d.names, err = flow.CompileSegments(&formats.Application{Name: a.Model, Parameters: a.Parameters, Segments: flow.WithTokenWork(a.Segments, c.languageModels.today)}, docPath); err == nil {
			d.visits, err = d.graph.VisitCounts()
		}
		for g := 0; err == nil && g < len(a.Segments); g++ {
			var paths [][]flow.PathStep
			paths, err = d.graph.SegmentPaths(g)
			d.paths = append(d.paths, paths)
		}
		if err != nil {
			c.AddError("graph", docPath+".segments", "", "", "%v", err)
			return
		}

		// A way of a request has a chance, and a number of visits of each segment.
		for _, v := range d.visits {
			for g, n := range v.Counts {
				for _, ask := range d.graph.ServiceDemands(g) {
					c.requiredRate[d.names[ask.Service]] += a.RPS * v.Chance * float64(n) * ask.Work
				}
			}
		}
		c.workflows = append(c.workflows, d)
	}
}

// deviceGroups has the groups of devices that run the same models, each as the first stage that runs there.
type deviceGroups []*formats.Stage

// newDeviceGroups returns the groups of a plan's devices: a group is the devices that the same models share,
// given by the first stage that runs on them.
func newDeviceGroups(plan *formats.Plan) (groups deviceGroups) {
	for s := range plan.Stages() {
		if groups.indexOf(s.Stage) < 0 {
			groups = append(groups, s.Stage)
		}
	}
	return groups
}

// indexOf returns the group on whose devices a stage runs. If there is none, it returns -1.
func (groups deviceGroups) indexOf(stage *formats.Stage) int {
	return slices.IndexFunc(groups, func(o *formats.Stage) bool {
		return o.Device == stage.Device && slices.Equal(o.Placement, stage.Placement)
	})
}

// check checks that two models share all of their devices of a kind or none, because load is counted by
// groups of devices.
func (groups deviceGroups) check(findings *recompute.Checker) {
	for i, s := range groups {
		for _, o := range groups[:i] {
			if s.SharesDevice(o) {
				findings.AddError("placement", "deployment", fmt.Sprintf("models on some of the same devices of %s", s.Device), "models that share all of their devices of a kind, or none", "devices of %s are in two groups", s.Device)
				return
			}
		}
	}
}

// deviceCounts returns how many devices of each kind the plan uses.
func (groups deviceGroups) deviceCounts() map[string]int {
	counts := map[string]int{}
	for _, s := range groups {
		counts[s.Device] += s.Replicas
	}
	return counts
}

// spareFactor returns which multiple of the promised rates the devices carry today, in full batches.
func (c *checker) spareFactor() float64 {
	_, factor := newDeviceGroups(c.Plan).busiest(c)
	return factor
}

// busiest returns the group of devices (that run the same models) with the least spare capacity, and which multiple of the promised rates
// it carries today in full batches. Each model's work is divided between the groups as planned. If some model runs nowhere, the multiple
// is 0.
func (groups deviceGroups) busiest(c *checker) (group *formats.Stage, spareFactor float64) {
	busyDevices := make([]float64, len(groups)) // by group: devices that the rates keep busy
	for i := range c.Plan.Deployment {
		d := &c.Plan.Deployment[i]
		totalRPS := 0.0
		for _, l := range d.Pipelines {
			totalRPS += l.Stages[0].RPS
		}
		for k := range d.Pipelines {
			s := &d.Pipelines[k].Stages[0]
			if rate := c.deviceRate[d.Model][s.Device]; rate > 0 {
				busyDevices[groups.indexOf(s)] += c.requiredRate[d.Model] * s.RPS / totalRPS / rate
			} else if c.requiredRate[d.Model] > 0 {
				return s, 0
			}
		}
	}

	// Find the group with the fewest devices per busy device.
	spareFactor = math.Inf(1)
	for i, s := range groups {
		if factor := float64(s.Replicas) / busyDevices[i]; busyDevices[i] > 0 && factor < spareFactor {
			group, spareFactor = s, factor
		}
	}
	return group, spareFactor
}

// percentileTime returns the time within which the share of the requests of workflow i that its percentile asks for is answered. At every
// step a request waits for a batch and then is in a batch itself. If the workflow cannot be computed, it returns 0, as other checks report
// that.
func (c *checker) percentileTime(i int) time.Duration {
	if i >= len(c.workflows) {
		return 0
	}
	d := &c.workflows[i]
	percentile, err := document.ParsePercentile(c.section.Applications[i].Percentile)
	if err != nil {
		return 0
	}
	type visitClass struct {
		duration time.Duration
		share    float64
	}
	var visitClasses []visitClass
	for _, v := range d.visits {
		sum := time.Duration(0)
		for g, n := range v.Counts {
			sum += time.Duration(n) * c.segmentTime(d, g)
		}
		visitClasses = append(visitClasses, visitClass{sum + c.waitTime(sum), v.Chance})
	}

	// Walk through the visits by rising time until their shares reach the percentile.
	slices.SortFunc(visitClasses, func(a, b visitClass) int { return cmp.Compare(a.duration, b.duration) })
	sum := 0.0
	for _, w := range visitClasses {
		if sum += w.share; sum >= percentile-1e-12 {
			return w.duration
		}
	}
	return visitClasses[len(visitClasses)-1].duration
}

// segmentTime returns the time of the longest path through a segment of a workflow, without waits. A step takes the longest batch of the
// models that may run it.
func (c *checker) segmentTime(d *workflow, segment int) time.Duration {
	maxTime := time.Duration(0)
	for _, path := range d.paths[segment] {
		sum := time.Duration(0)
		for _, leg := range path {
			step := time.Duration(0)
			for _, id := range leg.Services {
				step = max(step, time.Duration(leg.Work*float64(c.batchTime[d.names[id]])))
			}
			sum += step
		}
		maxTime = max(maxTime, sum)
	}
	return maxTime
}

// checkResidents checks that the services that devices hold at the start fit into today's memory, beside
// the largest batch.
func (c *checker) checkResidents() {
	firstDevice := 0
	for i := range c.Plan.Pools {
		pool := c.Pool(c.Plan.Pools[i].Device)
		if pool != nil && pool.Memory > 0 {
			c.checkResidentsOn(pool, firstDevice, c.Plan.Pools[i].Count)
		}
		firstDevice += c.Plan.Pools[i].Count
	}
}

// checkResidentsOn checks, for the devices of one pool, that the models that they hold at the start (Resident has their numbers, counted
// over all pools of the plan) run there and fit into today's memory, beside the largest batch. The numbers of the pool's count devices
// begin at firstDevice. A model has at most one pipeline per pool.
func (c *checker) checkResidentsOn(pool *formats.Pool, firstDevice, count int) {
	workingBytes, heldBytes := make([]int64, count), make([]int64, count)

	// Sum the weights that each device holds, and find the memory of the largest batch that may run there.
	// The slices have an entry for each device of the pool, from 0.
	for i := range c.Plan.Deployment {
		d, m, runsHere := &c.Plan.Deployment[i], &c.section.Modules[i], make([]bool, count)
		for k := range d.Pipelines {
			s := &d.Pipelines[k].Stages[0]
			if s.Device != pool.Device {
				continue
			}
			memory := c.ReplicaMemory(d, &d.Pipelines[k], s)
			if memory.Weights != m.WeightBytes {
				c.AddWarning("memory", fmt.Sprintf("flow.modules[%d].weight_bytes", i), fmt.Sprint(m.WeightBytes), fmt.Sprint(memory.Weights), "the weights of %s have changed", d.Model)
			}
			for p := range s.Placement {
				for n := range s.Placement[p].DeviceCount() {
					device := s.Placement[p].FirstDevice + n
					runsHere[device], workingBytes[device] = true, max(workingBytes[device], memory.Other)
				}
			}
			for _, dev := range m.Resident {
				if dev >= firstDevice && dev < firstDevice+count {
					heldBytes[dev-firstDevice] += memory.Weights
				}
			}
		}
		for k, dev := range m.Resident {
			if dev >= firstDevice && dev < firstDevice+count && !runsHere[dev-firstDevice] {
				c.AddError("placement", fmt.Sprintf("flow.modules[%d].resident[%d]", i, k), fmt.Sprint(dev), "a device that runs it", "%s is placed on device %d of %s, which does not run it", d.Model, dev-firstDevice, pool.Device)
				break
			}
		}
	}

	// Compare the sums with the memory. Each device is reported once.
	for i := range c.Plan.Deployment {
		for k, dev := range c.section.Modules[i].Resident {
			device := dev - firstDevice
			if device < 0 || device >= count || heldBytes[device]+workingBytes[device] <= int64(pool.Memory) {
				continue
			}
			c.AddError("memory", fmt.Sprintf("flow.modules[%d].resident[%d]", i, k), fmt.Sprint(heldBytes[device]+workingBytes[device]), fmt.Sprintf("at most %v", pool.Memory),
				"what device %d of %s holds at the start does not fit in its memory beside a batch", device, pool.Device)
			heldBytes[device] = 0 // no further finding about this device
		}
	}
}
