package pool

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/stages"
)

// planPipeline is a pipeline of a plan: a template with its replicas and the rate that it carries.
type planPipeline struct {
	template int // index in the catalogue
	model    int
	rps      float64
	replicas []int // by stage; 0 on time-shared pools
}

// pipelineFor returns a template with the fewest replicas of each stage that carry a rate.
func pipelineFor(t *stages.Template, index int, rps float64) planPipeline {
	pipeline := planPipeline{template: index, model: t.Model, rps: rps, replicas: make([]int, len(t.Stages))}
	for si := range t.Stages {
		pipeline.replicas[si] = replicasFor(rps, t.Stages[si].Rate)
	}
	return pipeline
}

// replicasFor returns the fewest replicas of the given rate each that carry rps.
func replicasFor(rps, rate float64) int {
	if !(rps > 0) {
		return 0
	}
	return max(1, int(math.Ceil(rps/rate-1e-9)))
}

// replicaPlan is a plan as the search knows it: pipelines with whole replicas, and what they reach.
type replicaPlan struct {
	pipelines   []planPipeline
	modelRPS    []float64 // by model
	value       float64   // min over models of rps / weight
	weightedSum float64   // over models of rps * weight
}

// recomputePlan computes a plan from its replica counts alone: the rates, the objective, and the fewest replicas
// that carry those rates. Rates that time-shared pools limit are taken from the list, and scaled down if they
// exceed the devices. If the counts exceed the devices or break another limit, it returns nil: no such plan is
// ever used.
func (c *templateCatalogue) recomputePlan(pipelines []planPipeline) *replicaPlan {
	plan := &replicaPlan{modelRPS: make([]float64, len(c.Models))}
	timeSharedUse := make([]float64, len(c.Pools)) // devices taken on time-shared pools

	// The rate of each pipeline is that of its slowest stage.
	for _, pipeline := range pipelines {
		t := &c.templates[pipeline.template]
		pipeline.replicas = slices.Clone(pipeline.replicas)
		carriedRPS, onTimeShared := math.Inf(1), false
		for si := range t.Stages {
			s := &t.Stages[si]
			if c.Pools[s.Pool].TimeShared {
				onTimeShared = true
				continue
			}
			carriedRPS = min(carriedRPS, s.Rate*float64(pipeline.replicas[si]))
		}
		if onTimeShared {
			carriedRPS = min(carriedRPS, pipeline.rps)
		}
		pipeline.rps = carriedRPS
		for si := range t.Stages {
			s := &t.Stages[si]
			if c.Pools[s.Pool].TimeShared {
				timeSharedUse[s.Pool] += pipeline.rps / s.Rate
				continue
			}
			pipeline.replicas[si] = replicasFor(pipeline.rps, s.Rate)
		}
		if pipeline.rps > 0 {
			plan.pipelines = append(plan.pipelines, pipeline)
		}
	}

	// Scale down what exceeds the time-shared pools.
	scale := 1.0
	for k := range c.Pools {
		if c.Pools[k].TimeShared && timeSharedUse[k] > float64(c.Pools[k].Count) {
			scale = min(scale, float64(c.Pools[k].Count)/timeSharedUse[k])
		}
	}
	for i := range plan.pipelines {
		pipeline := &plan.pipelines[i]
		t := &c.templates[pipeline.template]
		if scale < 1 && slices.ContainsFunc(t.Stages, func(s stages.Stage) bool { return c.Pools[s.Pool].TimeShared }) {
			pipeline.rps *= scale
		}
		plan.modelRPS[pipeline.model] += pipeline.rps
	}

	// The objective.
	plan.value = math.Inf(1)
	for d := range c.Models {
		plan.value = min(plan.value, plan.modelRPS[d]/c.Models[d].Weight)
		plan.weightedSum += plan.modelRPS[d] * c.Models[d].Weight
	}
	if c.brokenLimit(plan) != "" {
		return nil
	}
	return plan
}

// usedDevices returns the devices of each pool that pipelines take. On time-shared pools that is the part of
// their time, elsewhere whole devices if the rounding asks for that.
func (c *templateCatalogue) usedDevices(pipelines []planPipeline) []float64 {
	devices := make([]float64, len(c.Pools))
	if len(pipelines) == 0 {
		return devices
	}
	firstModel, lastModel, maxStages := pipelines[0].model, pipelines[0].model, 0
	for _, pipeline := range pipelines {
		firstModel, lastModel, maxStages = min(firstModel, pipeline.model), max(lastModel, pipeline.model), max(maxStages, len(pipeline.replicas))
	}
	var slots []float64 // parts of devices by model, stage position and pool
	if c.Rounding == Slot {
		slots = make([]float64, (lastModel-firstModel+1)*maxStages*len(c.Pools))
	}
	for _, pipeline := range pipelines {
		t := &c.templates[pipeline.template]
		for si := range t.Stages {
			s := &t.Stages[si]
			stageDevices := float64(pipeline.replicas[si]) / float64(s.Share)
			switch {
			case c.Pools[s.Pool].TimeShared:
				devices[s.Pool] += pipeline.rps / s.Rate
			case c.Rounding == Fractional:
				devices[s.Pool] += stageDevices
			default:
				slots[((pipeline.model-firstModel)*maxStages+si)*len(c.Pools)+s.Pool] += stageDevices
			}
		}
	}

	// Under the slot rule the parts of each slot round up to whole devices.
	for i, slotDevices := range slots {
		devices[i%len(c.Pools)] += math.Ceil(slotDevices - 1e-9)
	}
	return devices
}

// wholeDevicesUsed returns the whole devices that a plan takes of every pool.
func (c *templateCatalogue) wholeDevicesUsed(plan *replicaPlan) []int {
	devices := make([]int, len(c.Pools))
	for k, v := range c.usedDevices(plan.pipelines) {
		devices[k] = int(math.Ceil(v*(1-1e-9) - 1e-9))
	}
	return devices
}

// exclusiveDevices returns how many devices of exclusive pools a plan takes.
func (c *templateCatalogue) exclusiveDevices(plan *replicaPlan) (n float64) {
	for k, v := range c.usedDevices(plan.pipelines) {
		if !c.Pools[k].TimeShared {
			n += v
		}
	}
	return n
}

// brokenLimit says which limit a plan breaks: devices, memory or floors. If it keeps all, it returns "".
func (c *templateCatalogue) brokenLimit(plan *replicaPlan) string {
	memory := c.newResidentMemory()
	for _, pipeline := range plan.pipelines {
		memory.add(&c.templates[pipeline.template])
	}
	for k, devices := range c.usedDevices(plan.pipelines) {
		pool := &c.Pools[k]
		if devices > float64(pool.Count)*(1+1e-9)+1e-9 {
			return fmt.Sprintf("%g devices of %s where there are %d", devices, pool.Kind, pool.Count)
		}
		if pool.TimeShared && pool.Memory > 0 && memory.bytes[k] > pool.Memory {
			return fmt.Sprintf("%d bytes on each %s where it has %d", memory.bytes[k], pool.Kind, pool.Memory)
		}
	}
	for d := range c.Models {
		if floor := c.Models[d].MinRPS; !meetsFloor(plan.modelRPS[d], floor) {
			return fmt.Sprintf("%g requests/s of %s where %g are asked", plan.modelRPS[d], c.Models[d].Name, floor)
		}
	}
	return ""
}

// placedPipelines returns the pipelines of a placed plan, by model, then by falling rate.
func (c *templateCatalogue) placedPipelines(plan *replicaPlan, placement placement) []Pipeline {
	var placed []Pipeline
	for ci, planned := range plan.pipelines {
		t := &c.templates[planned.template]
		pipeline := Pipeline{Template: *t, RPS: planned.rps, Replicas: slices.Clone(planned.replicas), Placement: placement[ci]}
		for si := range t.Stages {
			s := &t.Stages[si]
			if c.Pools[s.Pool].TimeShared {
				pipeline.Replicas[si] = c.Pools[s.Pool].Count
				pipeline.Devices = append(pipeline.Devices, planned.rps/s.Rate)
				continue
			}
			pipeline.Devices = append(pipeline.Devices, float64(planned.replicas[si])/float64(s.Share))
		}
		placed = append(placed, pipeline)
	}
	slices.SortStableFunc(placed, func(a, b Pipeline) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(b.RPS, a.RPS))
	})
	return placed
}
