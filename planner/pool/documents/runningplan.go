package documents

import (
	"fmt"
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
)

// CheckRunningPlan returns an error if the new plan cannot start from the one that runs: that must be a plan of pools, and
// the options must ask for the planner's own algorithm and not for a baseline.
func CheckRunningPlan(p *kind.Problem) error {
	switch algorithm := p.Values.Word("algorithm"); {
	case formats.PoolOf(p.RunningPlan) == nil:
		return p.FieldError("running", "kind", p.RunningPlan.Kind, formats.PlanPool, "the workload asks for models in pools: start from a plan of these, or leave out --from")
	case algorithm != AlgorithmTemplate:
		return &document.Error{Path: "--from", Found: "--algorithm " + algorithm, Expected: "--algorithm " + AlgorithmTemplate}
	}
	return nil
}

// ReadRunningPlan translates the plan that runs to the numbers of the search. Without one it returns nil. A
// model that the profile no longer has as it was (another model file, other blocks) runs, but its devices must
// load it anew.
func (r *Resolved) ReadRunningPlan() (*problem.RunningPlan, error) {
	p := r.Input.RunningPlan
	if p == nil {
		return nil, nil
	}
	if err := CheckRunningPlan(r.Input); err != nil {
		return nil, err
	}
	runningPlan := &problem.RunningPlan{MaxMoved: r.Input.Values.Number("max-moved")}
	changedModels := map[string]bool{}
	for i := range p.Deployment {
		deployed := &p.Deployment[i]

		// Index of the model in the problem, -1 for one that is not requested any more or has changed. A changed one
		// gets another name of its network (the blocks), so that it counts as different from what is loaded.
		model := r.ModelIndex(deployed.Key())
		network := deployed.Model
		if model >= 0 && hasChanged(&r.models[model], r.Problem.Models[model].NumBlocks(), deployed) {
			model, network = -1, "before: "+deployed.Model
			if !changedModels[deployed.Model] {
				r.run.Assume("all of %s is loaded anew: the profile has other blocks or another model file than the plan that runs", deployed.Model)
			}
			changedModels[deployed.Model] = true
		}
		for j := range deployed.Pipelines {
			pipeline := &deployed.Pipelines[j]
			runningPlan.Pipelines = append(runningPlan.Pipelines, problem.RunningPipeline{Pipeline: runningPipeline(r.Pools, model, pipeline), Network: network})
		}
	}
	return runningPlan, nil
}

// hasChanged reports whether a model that runs has blocks of another file or number than the profile's. These
// cannot stay, even if the model's name is the same.
func hasChanged(m *resolvedModel, numBlocks int, deployed *formats.Deployed) bool {
	source := m.profile.Source
	return deployed.NumBlocks != numBlocks || source != nil && deployed.SHA256 != "" && source.SHA256 != "" && deployed.SHA256 != source.SHA256
}

// runningPipeline translates a pipeline of the plan that runs to the numbers of the search: blocks, pool, share and the
// devices of each stage. model is the index of its model in the problem, -1 if it has none there. A device kind that
// the cluster no longer has gives the pool -1.
func runningPipeline(pools []formats.Pool, model int, pipeline *formats.Pipeline) problem.Pipeline {
	running := problem.Pipeline{Template: stages.Template{Model: model, Batch: pipeline.Batch}}
	for _, s := range pipeline.Stages {
		pool := slices.IndexFunc(pools, func(q formats.Pool) bool { return q.Device == s.Device })
		running.Stages = append(running.Stages, stages.Stage{FirstBlock: s.Blocks[0], EndBlock: s.Blocks[1], Pool: pool, Share: s.Share})
		running.Placement = append(running.Placement, slices.Clone(s.Placement))
	}
	return running
}

// writeReplan records in the outcome o, if a plan runs already, how many exclusive devices the new plan moves, which means
// that they have to load something, of how many. If they are more than the option max-moved allows, it warns.
func (r *Resolved) writeReplan(outcome *problem.Outcome, o *kind.Outcome) {
	if r.Input.RunningPlan == nil {
		return
	}
	c := &formats.Replan{MovedGPUs: outcome.MovedDevices, MaxMoved: r.Input.Values.Number("max-moved")}
	for k := range r.Pools {
		if !r.Problem.Pools[k].TimeShared {
			c.GPUs += r.Pools[k].Count
		}
	}
	if float64(c.MovedGPUs) > c.MaxMoved*float64(c.GPUs)+1e-9 {
		r.run.Warnings = append(r.run.Warnings, fmt.Sprintf("%d of %d devices load something new, more than the share of %g asked for: shares of devices do not pack better", c.MovedGPUs, c.GPUs, c.MaxMoved))
	}
	o.Replan = c
}
