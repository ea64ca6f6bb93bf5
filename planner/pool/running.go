package pool

import (
	"fmt"
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
)

// checkRunningPlan returns an error if the new plan cannot start from the one that runs.
func from(p *kind.Problem) error {
	switch algorithm := p.Values.Word("algorithm"); {
	case formats.PoolOf(p.Running) == nil:
		return p.Fail("running", "kind", p.Running.Kind, formats.PlanPool, "plans of this kind are made anew: leave out --from")
	case algorithm != AlgorithmTemplate:
		return &document.Error{Path: "--from", Found: "--algorithm " + algorithm, Expected: "--algorithm " + AlgorithmTemplate}
	}
	return nil
}

// readRunningPlan translates the plan that runs to the numbers of the search. Without one it returns nil. A
// model that the profile no longer has as it was (another model file, other blocks) runs, but its devices must
// load it anew.
func (r *resolved) running() (*Running, error) {
	p := r.in.Running
	if p == nil {
		return nil, nil
	}
	if err := from(r.in); err != nil {
		return nil, err
	}
	out := &Running{MaxMoved: r.opt.MaxMoved}
	changed := map[string]bool{}

	// Translate the pipelines of every deployed model.
	for i := range p.Deployment {
		m := &p.Deployment[i]
		at := slices.IndexFunc(r.models, func(n resolvedModel) bool { return n.workload.Key() == m.Key() })
		network := m.Model

		// Blocks of another file or number cannot stay, even if the model's name is the same.
		if at >= 0 {
			src := r.models[at].profile.Source
			if m.NumBlocks != r.problem.Models[at].NumBlocks() || src != nil && m.SHA256 != "" && src.SHA256 != "" && m.SHA256 != src.SHA256 {
				at, network = -1, "before: "+m.Model
				if !changed[m.Model] {
					r.run.Assume("all of %s is loaded anew: the profile has other blocks or another model file than the plan that runs", m.Model)
				}
				changed[m.Model] = true
			}
		}

		// Translate the pipelines, with the places of their stages.
		for j := range m.Pipelines {
			pl := RunningPipeline{Network: network, Model: at, Batch: m.Pipelines[j].Batch}
			for _, s := range m.Pipelines[j].Stages {
				st := RunningStage{
					First: s.Blocks[0], Last: s.Blocks[1], Share: s.Share,
					Pool: slices.IndexFunc(r.pools, func(q formats.Pool) bool { return q.Device == s.Device }),
				}
				for _, run := range s.Placement {
					st.Placed = append(st.Placed, Run{First: run.First, PerDevice: run.PerDevice, Replicas: run.Replicas})
				}
				pl.Stages = append(pl.Stages, st)
			}
			out.Pipelines = append(out.Pipelines, pl)
		}
	}
	return out, nil
}

// writeReplan records in the outcome how many devices the new plan moves.
func (r *resolved) replanned(out *Outcome, o *kind.Outcome) {
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
		r.run.Warnings = append(r.run.Warnings, fmt.Sprintf("%d of %d devices load something new, more than the share of %g asked for: shares of devices do not pack better", c.MovedGPUs, c.GPUs, c.MaxMoved))
	}
	o.Replan = c
}
