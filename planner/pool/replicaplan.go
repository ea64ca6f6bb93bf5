package pool

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/templates"
	"inferplan/planner/stages"
)

// planPipeline is a pipeline of a plan: a template with its replicas and the rate that it carries.
type planPipeline struct {
	template int // index in the catalogue
	model    int
	rps      float64
	replicas []int // by stage; 0 on time-shared pools
}

// pipelineFor returns a pipeline of a plan: template t, which has the given index in the catalogue, with the
// fewest replicas of each stage that carry a rate in requests/s.
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
func recomputePlan(c *templates.Catalogue, pipelines []planPipeline) *replicaPlan {
	plan := &replicaPlan{modelRPS: make([]float64, len(c.Problem.Models)), value: math.Inf(1)}
	for _, pipeline := range pipelines {
		if recomputeRate(c, &pipeline); pipeline.rps > 0 {
			plan.pipelines = append(plan.pipelines, pipeline)
		}
	}
	scale := timeSharedScale(c, plan.pipelines)
	for i := range plan.pipelines {
		pipeline := &plan.pipelines[i]
		if scale < 1 && usesTimeShared(c, &c.Templates[pipeline.template]) {
			pipeline.rps *= scale
		}
		plan.modelRPS[pipeline.model] += pipeline.rps
	}

	// The objective.
	for d := range c.Problem.Models {
		plan.value = min(plan.value, plan.modelRPS[d]/c.Problem.Models[d].Weight)
		plan.weightedSum += plan.modelRPS[d] * c.Problem.Models[d].Weight
	}
	if brokenLimit(c, plan) != "" {
		return nil
	}
	return plan
}

// recomputeRate sets the rate of a pipeline to that of its slowest stage on an exclusive pool, and its replicas to
// the fewest that carry the rate. If a stage is on a time-shared pool, the rate is at most what it was.
func recomputeRate(c *templates.Catalogue, pipeline *planPipeline) {
	t := &c.Templates[pipeline.template]
	carriedRPS := math.Inf(1)
	if usesTimeShared(c, t) {
		carriedRPS = pipeline.rps
	}
	for si := range t.Stages {
		if s := &t.Stages[si]; !c.Problem.Pools[s.Pool].TimeShared {
			carriedRPS = min(carriedRPS, s.Rate*float64(pipeline.replicas[si]))
		}
	}
	pipeline.rps, pipeline.replicas = carriedRPS, slices.Clone(pipeline.replicas)
	for si := range t.Stages {
		if s := &t.Stages[si]; !c.Problem.Pools[s.Pool].TimeShared {
			pipeline.replicas[si] = replicasFor(carriedRPS, s.Rate)
		}
	}
}

// usesTimeShared reports whether some stage of a template is on a time-shared pool.
func usesTimeShared(c *templates.Catalogue, t *stages.Template) bool {
	for si := range t.Stages {
		if c.Problem.Pools[t.Stages[si].Pool].TimeShared {
			return true
		}
	}
	return false
}

// timeSharedScale returns the factor, at most 1, by which the rates of pipelines must fall so that their stages
// on time-shared pools need no more time than there is.
func timeSharedScale(c *templates.Catalogue, pipelines []planPipeline) float64 {
	devices := make([]float64, len(c.Problem.Pools))
	for i := range pipelines {
		t := &c.Templates[pipelines[i].template]
		for si := range t.Stages {
			devices[t.Stages[si].Pool] += pipelines[i].rps / t.Stages[si].Rate
		}
	}
	scale := 1.0
	for k := range c.Problem.Pools {
		if n := float64(c.Problem.Pools[k].Count); c.Problem.Pools[k].TimeShared && devices[k] > n {
			scale = min(scale, n/devices[k])
		}
	}
	return scale
}

// usedDevices returns the devices of each pool that pipelines take. On time-shared pools that is the part of
// their time, elsewhere whole devices if the rounding asks for that.
func usedDevices(c *templates.Catalogue, pipelines []planPipeline) []float64 {
	devices := make([]float64, len(c.Problem.Pools))
	if len(pipelines) == 0 {
		return devices
	}
	firstModel, lastModel, maxStages := pipelines[0].model, pipelines[0].model, 0
	for _, pipeline := range pipelines {
		firstModel, lastModel, maxStages = min(firstModel, pipeline.model), max(lastModel, pipeline.model), max(maxStages, len(pipeline.replicas))
	}
	var slots []float64 // parts of devices by model, stage position and pool
	if c.Problem.Rounding == problem.Slot {
		slots = make([]float64, (lastModel-firstModel+1)*maxStages*len(c.Problem.Pools))
	}
	for _, pipeline := range pipelines {
		t := &c.Templates[pipeline.template]
		for si := range t.Stages {
			s := &t.Stages[si]
			stageDevices := float64(pipeline.replicas[si]) / float64(s.Share)
			switch {
			case c.Problem.Pools[s.Pool].TimeShared:
				devices[s.Pool] += pipeline.rps / s.Rate
			case c.Problem.Rounding == problem.Fractional:
				devices[s.Pool] += stageDevices
			default:
				slots[((pipeline.model-firstModel)*maxStages+si)*len(c.Problem.Pools)+s.Pool] += stageDevices
			}
		}
	}

	// Under the slot rule the parts of each slot round up to whole devices.
	for i, slotDevices := range slots {
		devices[i%len(c.Problem.Pools)] += math.Ceil(slotDevices - 1e-9)
	}
	return devices
}

// wholeDevicesUsed returns, by pool, the devices that a plan takes, rounded up to whole ones.
func wholeDevicesUsed(c *templates.Catalogue, plan *replicaPlan) []int {
	devices := make([]int, len(c.Problem.Pools))
	for k, v := range usedDevices(c, plan.pipelines) {
		devices[k] = int(math.Ceil(v*(1-1e-9) - 1e-9))
	}
	return devices
}

// exclusiveDevices returns how many devices of exclusive pools a plan takes, in whole ones or fractions as the
// rounding of the problem says.
func exclusiveDevices(c *templates.Catalogue, plan *replicaPlan) (n float64) {
	for k, v := range usedDevices(c, plan.pipelines) {
		if !c.Problem.Pools[k].TimeShared {
			n += v
		}
	}
	return n
}

// brokenLimit names a limit that a plan breaks: the devices of a pool, the memory of time-shared devices, or a
// model's floor (least rate). If it keeps all, it returns "".
func brokenLimit(c *templates.Catalogue, plan *replicaPlan) string {
	memory := templates.NewResidentMemory(c.Problem)
	for _, pipeline := range plan.pipelines {
		memory.Add(&c.Templates[pipeline.template])
	}
	for k, devices := range usedDevices(c, plan.pipelines) {
		pool := &c.Problem.Pools[k]
		if devices > float64(pool.Count)*(1+1e-9)+1e-9 {
			return fmt.Sprintf("%g devices of %s where there are %d", devices, pool.Kind, pool.Count)
		}
		if pool.TimeShared && pool.Memory > 0 && memory.Bytes[k] > pool.Memory {
			return fmt.Sprintf("%d bytes on each %s where it has %d", memory.Bytes[k], pool.Kind, pool.Memory)
		}
	}
	for d := range c.Problem.Models {
		if floor := c.Problem.Models[d].MinRPS; !problem.MeetsFloor(plan.modelRPS[d], floor) {
			return fmt.Sprintf("%g requests/s of %s where %g are asked", plan.modelRPS[d], c.Problem.Models[d].Name, floor)
		}
	}
	return ""
}

// placedPipelines returns the pipelines of a placed plan, by model, then by falling rate.
func placedPipelines(c *templates.Catalogue, plan *replicaPlan, placement placement) []problem.Pipeline {
	var placed []problem.Pipeline
	for ci, planned := range plan.pipelines {
		t := &c.Templates[planned.template]
		pipeline := problem.Pipeline{Template: *t, RPS: planned.rps, Replicas: slices.Clone(planned.replicas), Placement: placement[ci]}
		for si := range t.Stages {
			s := &t.Stages[si]
			if c.Problem.Pools[s.Pool].TimeShared {
				pipeline.Replicas[si] = c.Problem.Pools[s.Pool].Count
				pipeline.Devices = append(pipeline.Devices, planned.rps/s.Rate)
				continue
			}
			pipeline.Devices = append(pipeline.Devices, float64(planned.replicas[si])/float64(s.Share))
		}
		placed = append(placed, pipeline)
	}
	slices.SortStableFunc(placed, func(a, b problem.Pipeline) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(b.RPS, a.RPS))
	})
	return placed
}
