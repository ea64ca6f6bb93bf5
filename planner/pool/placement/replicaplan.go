package placement

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/templates"
	"inferplan/planner/stages"
)

// PlanPipeline is a pipeline of a plan: a template with its replicas and the rate that it carries.
type PlanPipeline struct {
	Template int // index in the catalogue
	Model    int
	RPS      float64
	Replicas []int // by stage; 0 on time-shared pools
}

// PipelineFor returns a pipeline of a plan: template t, which has the given index in the catalogue, with the
// fewest replicas of each stage that carry a rate in requests/s.
func PipelineFor(t *stages.Template, index int, rps float64) PlanPipeline {
	pipeline := PlanPipeline{Template: index, Model: t.Model, RPS: rps, Replicas: make([]int, len(t.Stages))}
	for si := range t.Stages {
		pipeline.Replicas[si] = replicasFor(rps, t.Stages[si].Rate)
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

// Plan is a plan as the search knows it: pipelines with whole replicas, and what they reach.
type Plan struct {
	Pipelines   []PlanPipeline
	ModelRPS    []float64 // by model
	Value       float64   // min over models of rps / weight
	WeightedSum float64   // over models of rps * weight
}

// Recompute computes a plan from its replica counts alone: the rates, the objective, and the fewest replicas
// that carry those rates. Rates that time-shared pools limit are taken from the list, and scaled down if they
// exceed the devices. If the counts exceed the devices or break another limit, it returns nil: no such plan is
// ever used.
func Recompute(c *templates.Catalogue, pipelines []PlanPipeline) *Plan {
	plan := &Plan{ModelRPS: make([]float64, len(c.Problem.Models)), Value: math.Inf(1)}
	for _, pipeline := range pipelines {
		if recomputeRate(c, &pipeline); pipeline.RPS > 0 {
			plan.Pipelines = append(plan.Pipelines, pipeline)
		}
	}
	scale := timeSharedScale(c, plan.Pipelines)
	for i := range plan.Pipelines {
		pipeline := &plan.Pipelines[i]
		if scale < 1 && UsesTimeShared(c, &c.Templates[pipeline.Template]) {
			pipeline.RPS *= scale
		}
		plan.ModelRPS[pipeline.Model] += pipeline.RPS
	}

	// The objective.
	for d := range c.Problem.Models {
		plan.Value = min(plan.Value, plan.ModelRPS[d]/c.Problem.Models[d].Weight)
		plan.WeightedSum += plan.ModelRPS[d] * c.Problem.Models[d].Weight
	}
	if brokenLimit(c, plan) != "" {
		return nil
	}
	return plan
}

// recomputeRate sets the rate of a pipeline to that of its slowest stage on an exclusive pool, and its replicas to
// the fewest that carry the rate. If a stage is on a time-shared pool, the rate is at most what it was.
func recomputeRate(c *templates.Catalogue, pipeline *PlanPipeline) {
	t := &c.Templates[pipeline.Template]
	carriedRPS := math.Inf(1)
	if UsesTimeShared(c, t) {
		carriedRPS = pipeline.RPS
	}
	for si := range t.Stages {
		if s := &t.Stages[si]; !c.Problem.Pools[s.Pool].TimeShared {
			carriedRPS = min(carriedRPS, s.Rate*float64(pipeline.Replicas[si]))
		}
	}
	pipeline.RPS, pipeline.Replicas = carriedRPS, slices.Clone(pipeline.Replicas)
	for si := range t.Stages {
		if s := &t.Stages[si]; !c.Problem.Pools[s.Pool].TimeShared {
			pipeline.Replicas[si] = replicasFor(carriedRPS, s.Rate)
		}
	}
}

// UsesTimeShared reports whether some stage of a template is on a time-shared pool.
func UsesTimeShared(c *templates.Catalogue, t *stages.Template) bool {
	for si := range t.Stages {
		if c.Problem.Pools[t.Stages[si].Pool].TimeShared {
			return true
		}
	}
	return false
}

// timeSharedScale returns the factor, at most 1, by which the rates of pipelines must fall so that their stages
// on time-shared pools need no more time than there is.
func timeSharedScale(c *templates.Catalogue, pipelines []PlanPipeline) float64 {
	devices := make([]float64, len(c.Problem.Pools))
	for i := range pipelines {
		t := &c.Templates[pipelines[i].Template]
		for si := range t.Stages {
			devices[t.Stages[si].Pool] += pipelines[i].RPS / t.Stages[si].Rate
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

// UsedDevices returns the devices of each pool that pipelines take. On time-shared pools that is the part of
// their time, elsewhere whole devices if the rounding asks for that.
func UsedDevices(c *templates.Catalogue, pipelines []PlanPipeline) []float64 {
	devices := make([]float64, len(c.Problem.Pools))
	if len(pipelines) == 0 {
		return devices
	}
	firstModel, lastModel, maxStages := pipelines[0].Model, pipelines[0].Model, 0
	for _, pipeline := range pipelines {
		firstModel, lastModel, maxStages = min(firstModel, pipeline.Model), max(lastModel, pipeline.Model), max(maxStages, len(pipeline.Replicas))
	}
	var slots []float64 // parts of devices by model, stage position and pool
	if c.Problem.Rounding == problem.Slot {
		slots = make([]float64, (lastModel-firstModel+1)*maxStages*len(c.Problem.Pools))
	}
	for _, pipeline := range pipelines {
		t := &c.Templates[pipeline.Template]
		for si := range t.Stages {
			s := &t.Stages[si]
			stageDevices := float64(pipeline.Replicas[si]) / float64(s.Share)
			switch {
			case c.Problem.Pools[s.Pool].TimeShared:
				devices[s.Pool] += pipeline.RPS / s.Rate
			case c.Problem.Rounding == problem.Fractional:
				devices[s.Pool] += stageDevices
			default:
				slots[((pipeline.Model-firstModel)*maxStages+si)*len(c.Problem.Pools)+s.Pool] += stageDevices
			}
		}
	}

	// Under the slot rule the parts of each slot round up to whole devices.
	for i, slotDevices := range slots {
		devices[i%len(c.Problem.Pools)] += math.Ceil(slotDevices - 1e-9)
	}
	return devices
}

// WholeDevicesUsed returns, by pool, the devices that a plan takes, rounded up to whole ones.
func WholeDevicesUsed(c *templates.Catalogue, plan *Plan) []int {
	devices := make([]int, len(c.Problem.Pools))
	for k, v := range UsedDevices(c, plan.Pipelines) {
		devices[k] = int(math.Ceil(v*(1-1e-9) - 1e-9))
	}
	return devices
}

// ExclusiveDevices returns how many devices of exclusive pools a plan takes, in whole ones or fractions as the
// rounding of the problem says.
func ExclusiveDevices(c *templates.Catalogue, plan *Plan) (n float64) {
	for k, v := range UsedDevices(c, plan.Pipelines) {
		if !c.Problem.Pools[k].TimeShared {
			n += v
		}
	}
	return n
}

// brokenLimit names a limit that a plan breaks: the devices of a pool, the memory of time-shared devices, or a
// model's floor (least rate). If it keeps all, it returns "".
func brokenLimit(c *templates.Catalogue, plan *Plan) string {
	memory := templates.NewResidentMemory(c.Problem)
	for _, pipeline := range plan.Pipelines {
		memory.Add(&c.Templates[pipeline.Template])
	}
	for k, devices := range UsedDevices(c, plan.Pipelines) {
		pool := &c.Problem.Pools[k]
		if devices > float64(pool.Count)*(1+1e-9)+1e-9 {
			return fmt.Sprintf("%g devices of %s where there are %d", devices, pool.Kind, pool.Count)
		}
		if pool.TimeShared && pool.Memory > 0 && memory.Bytes[k] > pool.Memory {
			return fmt.Sprintf("%d bytes on each %s where it has %d", memory.Bytes[k], pool.Kind, pool.Memory)
		}
	}
	for d := range c.Problem.Models {
		if floor := c.Problem.Models[d].MinRPS; !problem.MeetsFloor(plan.ModelRPS[d], floor) {
			return fmt.Sprintf("%g requests/s of %s where %g are asked", plan.ModelRPS[d], c.Problem.Models[d].Name, floor)
		}
	}
	return ""
}

// PlacedPipelines returns the pipelines of a placed plan, by model, then by falling rate.
func PlacedPipelines(c *templates.Catalogue, plan *Plan, placement Places) []problem.Pipeline {
	var placed []problem.Pipeline
	for ci, planned := range plan.Pipelines {
		t := &c.Templates[planned.Template]
		pipeline := problem.Pipeline{Template: *t, RPS: planned.RPS, Replicas: slices.Clone(planned.Replicas), Placement: placement[ci]}
		for si := range t.Stages {
			s := &t.Stages[si]
			if c.Problem.Pools[s.Pool].TimeShared {
				pipeline.Replicas[si] = c.Problem.Pools[s.Pool].Count
				pipeline.Devices = append(pipeline.Devices, planned.RPS/s.Rate)
				continue
			}
			pipeline.Devices = append(pipeline.Devices, float64(planned.Replicas[si])/float64(s.Share))
		}
		placed = append(placed, pipeline)
	}
	slices.SortStableFunc(placed, func(a, b problem.Pipeline) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(b.RPS, a.RPS))
	})
	return placed
}
