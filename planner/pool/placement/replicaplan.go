package placement

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/lists"
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

// replicasFor returns the fewest replicas, of which each carries rate, that carry rps together (both in requests/s). For
// no rate it is 0, else at least 1, however small rps is. The 1e-9 forgives rounding errors of sums.
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

// Recompute makes a plan of pipelines (templates of the catalogue with replicas of each stage): from the replica counts
// it computes the rates, the values of the plan, and the fewest replicas that carry those rates. Every step of a search
// makes its plans with it, so that none rests on the rates of a solver. A pipeline with a stage on a time-shared pool,
// which has no count there, carries at most its given RPS, and less if such stages need more time than there is. If the
// plan takes more devices or memory than there are, or misses a floor (least rate), it returns nil. The given pipelines
// are not changed.
func Recompute(c *templates.Catalogue, pipelines []PlanPipeline) *Plan {
	// The rate of each pipeline by its replicas. Those that carry nothing are left out.
	plan := &Plan{ModelRPS: make([]float64, len(c.Problem.Models)), Value: math.Inf(1)}
	for _, pipeline := range pipelines {
		if recomputeRate(c, &pipeline); pipeline.RPS > 0 {
			plan.Pipelines = append(plan.Pipelines, pipeline)
		}
	}

	// All rates through time-shared pools fall by one factor if these have too little time. Sum the rates by model.
	scale := timeSharedScale(c, plan.Pipelines)
	for i := range plan.Pipelines {
		pipeline := &plan.Pipelines[i]
		if scale < 1 && UsesTimeShared(c, &c.Templates[pipeline.Template]) {
			pipeline.RPS *= scale
		}
		plan.ModelRPS[pipeline.Model] += pipeline.RPS
	}

	// The throughput, which is the least rate per weight of a model, and the sum by weight that breaks ties.
	for d := range c.Problem.Models {
		plan.Value = min(plan.Value, plan.ModelRPS[d]/c.Problem.Models[d].Weight)
		plan.WeightedSum += plan.ModelRPS[d] * c.Problem.Models[d].Weight
	}
	if brokenLimit(c, plan) != "" {
		return nil
	}
	return plan
}

// recomputeRate sets the rate of a pipeline to the least that the replicas of any stage on an exclusive pool carry, and
// its replicas there to the fewest that carry this rate. If a stage is on a time-shared pool, where no replicas limit
// it, the rate is at most its rate before. The replicas get a slice of their own, so the old one is not changed.
func recomputeRate(c *templates.Catalogue, pipeline *PlanPipeline) {
	// The rate.
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

	// The fewest replicas that carry it.
	pipeline.RPS, pipeline.Replicas = carriedRPS, slices.Clone(pipeline.Replicas)
	for si := range t.Stages {
		if s := &t.Stages[si]; !c.Problem.Pools[s.Pool].TimeShared {
			pipeline.Replicas[si] = replicasFor(carriedRPS, s.Rate)
		}
	}
}

// UsesTimeShared reports whether some stage of a template is on a time-shared pool: its stages there take turns with
// others on all devices, and no replicas limit their rate.
func UsesTimeShared(c *templates.Catalogue, t *stages.Template) bool {
	return lists.Contains(len(t.Stages), func(si int) bool { return c.Problem.Pools[t.Stages[si].Pool].TimeShared })
}

// timeSharedScale returns the factor, at most 1, by which the rates of pipelines must fall so that their stages on
// time-shared pools, which take turns on all devices, need no more of the devices' time than there is. One factor serves
// all pools: that of the most loaded one.
func timeSharedScale(c *templates.Catalogue, pipelines []PlanPipeline) float64 {
	// By pool, the number of devices that the stages would keep busy. Exclusive pools are counted but not used.
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

// UsedDevices returns, by pool, the devices that pipelines take: on a time-shared pool the number that their rates keep
// busy, else the sum of their replicas' shares. Under the slot rule only replicas of one slot (a stage position of one
// model on one pool) share a device, so the sum of each slot is rounded up to whole devices.
func UsedDevices(c *templates.Catalogue, pipelines []PlanPipeline) []float64 {
	devices := make([]float64, len(c.Problem.Pools))
	if len(pipelines) == 0 {
		return devices
	}

	// A table of the slots that may occur, over the models from the first to the last that the pipelines have.
	firstModel, lastModel, maxStages := pipelines[0].Model, pipelines[0].Model, 0
	for _, pipeline := range pipelines {
		firstModel, lastModel, maxStages = min(firstModel, pipeline.Model), max(lastModel, pipeline.Model), max(maxStages, len(pipeline.Replicas))
	}
	var slots []float64 // parts of devices by model, stage position and pool
	if c.Problem.Rounding == problem.Slot {
		slots = make([]float64, (lastModel-firstModel+1)*maxStages*len(c.Problem.Pools))
	}

	// Add up what each stage takes.
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

	// Under the slot rule the parts of each slot round up to whole devices. The pool is the last index of the table.
	for i, slotDevices := range slots {
		devices[i%len(c.Problem.Pools)] += math.Ceil(slotDevices - 1e-9)
	}
	return devices
}

// WholeDevicesUsed returns, by pool, the devices that a plan takes, rounded up to whole ones: those that are paid for.
// Rounding errors of the sums are forgiven.
func WholeDevicesUsed(c *templates.Catalogue, plan *Plan) []int {
	devices := make([]int, len(c.Problem.Pools))
	for k, used := range UsedDevices(c, plan.Pipelines) {
		devices[k] = int(math.Ceil(used*(1-1e-9) - 1e-9))
	}
	return devices
}

// ExclusiveDevices returns how many devices of all exclusive pools together a plan takes: whole ones for each slot under
// the slot rule, else in fractions. A search prefers the plan that takes fewer, of two that carry the same.
func ExclusiveDevices(c *templates.Catalogue, plan *Plan) (n float64) {
	for k, v := range UsedDevices(c, plan.Pipelines) {
		if !c.Problem.Pools[k].TimeShared {
			n += v
		}
	}
	return n
}

// brokenLimit names, for an error, the first limit that a plan breaks: the devices of a pool, the memory of a device of
// a time-shared pool, or a model's floor (least rate). If it keeps all, it returns "". The memory of exclusive devices
// needs no check, because templates that exceed it are not listed.
func brokenLimit(c *templates.Catalogue, plan *Plan) string {
	// The devices of each pool, and the bytes on each device of time-shared ones.
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

	// The floors.
	for d := range c.Problem.Models {
		if floor := c.Problem.Models[d].MinRPS; !problem.MeetsFloor(plan.ModelRPS[d], floor) {
			return fmt.Sprintf("%g requests/s of %s where %g are asked", plan.ModelRPS[d], c.Problem.Models[d].Name, floor)
		}
	}
	return ""
}

// PlacedPipelines returns the pipelines of a plan as an outcome has them: with their templates in full, the devices that
// each stage takes and their places, ordered by model, then by falling rate. placement has the device runs by pipeline
// and stage. A stage on a time-shared pool counts one replica on each device, and as devices those that it keeps busy.
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
