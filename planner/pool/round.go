package pool

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/stages"
)

// planPipeline is a pipeline of a plan: a template with its replicas and the rate that it carries.
type count struct {
	template int // index in the catalogue
	model    int
	rps      float64
	replicas []int // by stage; 0 on time-shared pools
}

// pipelineFor returns a template with the fewest replicas of each stage that carry a rate.
func carry(t *stages.Template, index int, rps float64) count {
	c := count{template: index, model: t.Model, rps: rps, replicas: make([]int, len(t.Stages))}
	for si := range t.Stages {
		c.replicas[si] = replicas(rps, t.Stages[si].Rate)
	}
	return c
}

// replicasFor returns the fewest replicas of the given rate each that carry rps.
func replicas(rps, rate float64) int {
	if !(rps > 0) {
		return 0
	}
	return max(1, int(math.Ceil(rps/rate-1e-9)))
}

// replicaPlan is a plan as the search knows it: pipelines with whole replicas, and what they reach.
type counts struct {
	list  []count
	rps   []float64 // by model
	value float64   // min over models of rps / weight
	sum   float64   // over models of rps * weight
}

// recomputePlan computes a plan from its replica counts alone: the rates, the objective, and the fewest replicas
// that carry those rates. Rates that time-shared pools limit are taken from the list, and scaled down if they
// exceed the devices. If the counts exceed the devices or break another limit, it returns nil: no such plan is
// ever used.
func (c *catalogue) recount(list []count) *counts {
	out := &counts{rps: make([]float64, len(c.Models))}
	shared := make([]float64, len(c.Pools)) // devices taken on time-shared pools

	// The rate of each pipeline is that of its slowest stage.
	for _, n := range list {
		t := &c.templates[n.template]
		n.replicas = slices.Clone(n.replicas)
		carried, timed := math.Inf(1), false
		for si := range t.Stages {
			s := &t.Stages[si]
			if c.Pools[s.Pool].Time {
				timed = true
				continue
			}
			carried = min(carried, s.Rate*float64(n.replicas[si]))
		}
		if timed {
			carried = min(carried, n.rps)
		}
		n.rps = carried
		for si := range t.Stages {
			s := &t.Stages[si]
			if c.Pools[s.Pool].Time {
				shared[s.Pool] += n.rps / s.Rate
				continue
			}
			n.replicas[si] = replicas(n.rps, s.Rate)
		}
		if n.rps > 0 {
			out.list = append(out.list, n)
		}
	}

	// Scale down what exceeds the time-shared pools.
	scale := 1.0
	for k := range c.Pools {
		if c.Pools[k].Time && shared[k] > float64(c.Pools[k].Count) {
			scale = min(scale, float64(c.Pools[k].Count)/shared[k])
		}
	}
	for i := range out.list {
		n := &out.list[i]
		t := &c.templates[n.template]
		if scale < 1 && slices.ContainsFunc(t.Stages, func(s stages.Stage) bool { return c.Pools[s.Pool].Time }) {
			n.rps *= scale
		}
		out.rps[n.model] += n.rps
	}

	// The objective.
	out.value = math.Inf(1)
	for d := range c.Models {
		out.value = min(out.value, out.rps[d]/c.Models[d].Weight)
		out.sum += out.rps[d] * c.Models[d].Weight
	}
	if c.excess(out) != "" {
		return nil
	}
	return out
}

// usedDevices returns the devices of each pool that pipelines take. On time-shared pools that is the part of
// their time, elsewhere whole devices if the rounding asks for that.
func (c *catalogue) used(list []count) []float64 {
	out := make([]float64, len(c.Pools))
	if len(list) == 0 {
		return out
	}
	first, last, most := list[0].model, list[0].model, 0
	for _, n := range list {
		first, last, most = min(first, n.model), max(last, n.model), max(most, len(n.replicas))
	}
	var slots []float64 // parts of devices by model, stage position and pool
	if c.Rounding == Slot {
		slots = make([]float64, (last-first+1)*most*len(c.Pools))
	}
	for _, n := range list {
		t := &c.templates[n.template]
		for si := range t.Stages {
			s := &t.Stages[si]
			part := float64(n.replicas[si]) / float64(s.Share)
			switch {
			case c.Pools[s.Pool].Time:
				out[s.Pool] += n.rps / s.Rate
			case c.Rounding == Fractional:
				out[s.Pool] += part
			default:
				slots[((n.model-first)*most+si)*len(c.Pools)+s.Pool] += part
			}
		}
	}

	// Under the slot rule the parts of each slot round up to whole devices.
	for i, part := range slots {
		out[i%len(c.Pools)] += math.Ceil(part - 1e-9)
	}
	return out
}

// wholeDevicesUsed returns the whole devices that a plan takes of every pool.
func (c *catalogue) wholePools(plan *counts) []int {
	out := make([]int, len(c.Pools))
	for k, v := range c.used(plan.list) {
		out[k] = int(math.Ceil(v*(1-1e-9) - 1e-9))
	}
	return out
}

// exclusiveDevices returns how many devices of exclusive pools a plan takes.
func (c *catalogue) exclusive(plan *counts) (n float64) {
	for k, v := range c.used(plan.list) {
		if !c.Pools[k].Time {
			n += v
		}
	}
	return n
}

// brokenLimit says which limit a plan breaks: devices, memory or floors. If it keeps all, it returns "".
func (c *catalogue) excess(plan *counts) string {
	memory := c.resident()
	for _, n := range plan.list {
		memory.add(&c.templates[n.template])
	}
	for k, taken := range c.used(plan.list) {
		pool := &c.Pools[k]
		if taken > float64(pool.Count)*(1+1e-9)+1e-9 {
			return fmt.Sprintf("%g devices of %s where there are %d", taken, pool.Kind, pool.Count)
		}
		if pool.Time && pool.Memory > 0 && memory.bytes[k] > pool.Memory {
			return fmt.Sprintf("%d bytes on each %s where it has %d", memory.bytes[k], pool.Kind, pool.Memory)
		}
	}
	for d := range c.Models {
		if f := c.Models[d].MinRPS; !meets(plan.rps[d], f) {
			return fmt.Sprintf("%g requests/s of %s where %g are asked", plan.rps[d], c.Models[d].Name, f)
		}
	}
	return ""
}

// placedPipelines returns the pipelines of a placed plan, by model, then by falling rate.
func (c *catalogue) pipelines(plan *counts, where placed) []Pipeline {
	var out []Pipeline
	for ci, n := range plan.list {
		t := &c.templates[n.template]
		pl := Pipeline{Template: *t, RPS: n.rps, Replicas: slices.Clone(n.replicas), Placed: where[ci]}
		for si := range t.Stages {
			s := &t.Stages[si]
			if c.Pools[s.Pool].Time {
				pl.Replicas[si] = c.Pools[s.Pool].Count
				pl.Devices = append(pl.Devices, n.rps/s.Rate)
				continue
			}
			pl.Devices = append(pl.Devices, float64(n.replicas[si])/float64(s.Share))
		}
		out = append(out, pl)
	}
	slices.SortStableFunc(out, func(a, b Pipeline) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(b.RPS, a.RPS))
	})
	return out
}
