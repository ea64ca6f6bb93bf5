package planner

import (
	"fmt"
	"slices"

	"inferplan/formats"
	"inferplan/planner/pool"
)

// running reads the plan that runs as the method takes it; nil without one.
// What the profile has no longer as it was (another model file, other blocks)
// runs, but cannot stay.
func (r *resolved) running() (*pool.Running, error) {
	p := r.in.Running
	switch {
	case p == nil:
		return nil, nil
	case p.Kind != formats.PlanPool:
		return nil, r.fail("running", "kind", p.Kind, formats.PlanPool, "plans of this kind are made anew: leave out --from")
	case r.opt.Algorithm != AlgorithmTemplate:
		return nil, optionsError("from", "--algorithm "+r.opt.Algorithm, "--algorithm "+AlgorithmTemplate)
	}
	out := &pool.Running{MaxMoved: r.opt.MaxMoved}
	changed := map[string]bool{}
	for i := range p.Models {
		m := &p.Models[i]
		at := slices.IndexFunc(r.models, func(n resolvedModel) bool { return n.workload.Key() == m.Key() })
		network := m.Model
		if at >= 0 {
			src := r.models[at].profile.Source
			if m.NumBlocks != r.problem.Models[at].NumBlocks() || src != nil && m.SHA256 != "" && src.SHA256 != "" && m.SHA256 != src.SHA256 {
				at, network = -1, "before: "+m.Model
				if !changed[m.Model] {
					r.assume("all of %s is loaded anew: the profile has other blocks or another model file than the plan that runs", m.Model)
				}
				changed[m.Model] = true
			}
		}
		for j := range m.Pipelines {
			pl := pool.RunningPipeline{Network: network, Model: at, Batch: m.Pipelines[j].Batch}
			for _, s := range m.Pipelines[j].Stages {
				st := pool.RunningStage{
					First: s.Blocks[0], Last: s.Blocks[1], Share: s.Share,
					Pool: slices.IndexFunc(r.pools, func(q formats.Pool) bool { return q.Device == s.Device }),
				}
				for _, run := range s.Placement {
					st.Placed = append(st.Placed, pool.Run{First: run.First, PerDevice: run.PerDevice, Replicas: run.Replicas})
				}
				pl.Stages = append(pl.Stages, st)
			}
			out.Pipelines = append(out.Pipelines, pl)
		}
	}
	return out, nil
}

// replanned writes what a plan moves.
func (r *resolved) replanned(out *pool.Outcome, plan *formats.Plan) {
	if r.in.Running == nil {
		return
	}
	c := &formats.Replan{MovedGPUs: out.Moved, MaxMoved: r.opt.MaxMoved}
	for k := range r.pools {
		if !r.problem.Pools[k].Time {
			c.GPUs += r.pools[k].Count
		}
	}
	if float64(c.MovedGPUs) > c.MaxMoved*float64(c.GPUs)+1e-9 {
		plan.Warnings = append(plan.Warnings, fmt.Sprintf("%d of %d devices load something new, more than the share of %g asked for: shares of devices do not pack better", c.MovedGPUs, c.GPUs, c.MaxMoved))
	}
	plan.Replan = c
}
