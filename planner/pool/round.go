package pool

import (
	"fmt"
	"math"
	"slices"

	"inferplan/planner/stages"
)

// count is one template of a plan with its replicas.
type count struct {
	template int
	model    int
	rps      float64
	replicas []int // per stage; 0 on time-shared pools
}

// carry is the fewest replicas of each stage that carry a rate.
func carry(t *stages.Template, index int, rps float64) count {
	c := count{template: index, model: t.Model, rps: rps, replicas: make([]int, len(t.Stages))}
	for si := range t.Stages {
		c.replicas[si] = replicas(rps, t.Stages[si].Rate)
	}
	return c
}

// replicas is the fewest replicas of a rate that carry another one.
func replicas(rps, rate float64) int {
	if !(rps > 0) {
		return 0
	}
	return max(1, int(math.Ceil(rps/rate-1e-9)))
}

// counts is a plan: templates with replica counts, and what they reach.
type counts struct {
	list  []count
	rps   []float64 // per model
	value float64   // min over models of rps / weight
	sum   float64   // over models of rps * weight
}

// recount recomputes a plan from its replica counts alone: rates, objective,
// and the fewest replicas that carry them. Rates that time-shared pools limit
// are taken from the list and scaled down where they exceed the devices. It
// returns nil where the counts exceed the devices: no such plan is ever used.
func (p *Problem) recount(templates []stages.Template, list []count) *counts {
	out := &counts{rps: make([]float64, len(p.Models))}
	shared := make([]float64, len(p.Pools)) // devices taken on time-shared pools
	for _, c := range list {
		t := &templates[c.template]
		c.replicas = slices.Clone(c.replicas)
		carried, timed := math.Inf(1), false
		for si := range t.Stages {
			s := &t.Stages[si]
			if p.Pools[s.Pool].Time {
				timed = true
				continue
			}
			carried = min(carried, s.Rate*float64(c.replicas[si]))
		}
		if timed {
			carried = min(carried, c.rps)
		}
		c.rps = carried
		for si := range t.Stages {
			s := &t.Stages[si]
			if p.Pools[s.Pool].Time {
				shared[s.Pool] += c.rps / s.Rate
				continue
			}
			c.replicas[si] = replicas(c.rps, s.Rate)
		}
		if c.rps > 0 {
			out.list = append(out.list, c)
		}
	}
	scale := 1.0
	for k := range p.Pools {
		if p.Pools[k].Time && shared[k] > float64(p.Pools[k].Count) {
			scale = min(scale, float64(p.Pools[k].Count)/shared[k])
		}
	}
	for i := range out.list {
		c := &out.list[i]
		t := &templates[c.template]
		if scale < 1 && slices.ContainsFunc(t.Stages, func(s stages.Stage) bool { return p.Pools[s.Pool].Time }) {
			c.rps *= scale
		}
		out.rps[c.model] += c.rps
	}
	out.value = math.Inf(1)
	for d := range p.Models {
		out.value = min(out.value, out.rps[d]/p.Models[d].Weight)
		out.sum += out.rps[d] * p.Models[d].Weight
	}
	if p.excess(templates, out) != "" {
		return nil
	}
	return out
}

// excess says which limit a plan breaks, "" when it keeps all.
func (p *Problem) excess(templates []stages.Template, plan *counts) string {
	taken := make([]float64, len(p.Pools))
	memory := p.resident()
	slots := map[slotKey]float64{}
	for _, c := range plan.list {
		t := &templates[c.template]
		memory.add(t)
		for si := range t.Stages {
			s := &t.Stages[si]
			if p.Pools[s.Pool].Time {
				taken[s.Pool] += c.rps / s.Rate
				continue
			}
			part := float64(c.replicas[si]) / float64(s.Share)
			if p.Rounding == Fractional {
				taken[s.Pool] += part
			} else {
				slots[slotKey{c.model, si, s.Pool}] += part
			}
		}
	}
	for key, part := range slots {
		taken[key.pool] += math.Ceil(part - 1e-9) // whole numbers: the order of adding does not matter
	}
	for k := range p.Pools {
		pool := &p.Pools[k]
		if taken[k] > float64(pool.Count)*(1+1e-9)+1e-9 {
			return fmt.Sprintf("%g devices of %s where there are %d", taken[k], pool.Kind, pool.Count)
		}
		if pool.Time && pool.Memory > 0 && memory.bytes[k] > pool.Memory {
			return fmt.Sprintf("%d bytes on each %s where it has %d", memory.bytes[k], pool.Kind, pool.Memory)
		}
	}
	for d := range p.Models {
		if f := p.Models[d].MinRPS; !meets(plan.rps[d], f) {
			return fmt.Sprintf("%g requests/s of %s where %g are asked", plan.rps[d], p.Models[d].Name, f)
		}
	}
	return ""
}

// devices is how many whole devices a plan takes, over all exclusive pools.
func (p *Problem) devices(templates []stages.Template, plan *counts) float64 {
	slots := map[slotKey]float64{}
	sum := 0.0
	for _, c := range plan.list {
		for si, s := range templates[c.template].Stages {
			if !p.Pools[s.Pool].Time {
				slots[slotKey{c.model, si, s.Pool}] += float64(c.replicas[si]) / float64(s.Share)
			}
		}
	}
	for _, part := range slots {
		sum += math.Ceil(part - 1e-9)
	}
	return sum
}
