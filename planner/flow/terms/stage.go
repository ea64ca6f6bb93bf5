package terms

import (
	"time"

	"inferplan/formats"
	"inferplan/planner/lists"
	"inferplan/planner/stages"
)

// AddStage adds to a deployment a pipeline of one stage, which runs the whole model in batches of the given size. costs
// are those of the model on the stage's devices.
func AddStage(d *formats.Deployed, s formats.Stage, profile *formats.ProfileModel, costs *stages.ShareCosts, batch int) {
	s.Blocks = [2]int{0, d.NumBlocks}
	costs.WriteStage(&s, profile, batch)
	d.Pipelines = append(d.Pipelines, formats.Pipeline{Batch: batch, RPS: s.RPS, LatencyUS: s.InferUS[batch-1], Stages: []formats.Stage{s}})
}

// MaxBatchTime returns the longest time that a plan states for a batch of a model, of any size up to the planned one and on any of its
// devices. If the plan does not deploy the model, it returns 0.
func MaxBatchTime(p *formats.Plan, name string) time.Duration {
	maxTime := time.Duration(0)
	for i := range p.Deployment {
		if p.Deployment[i].Model != name {
			continue
		}
		for _, pl := range p.Deployment[i].Pipelines {
			for _, s := range pl.Stages {
				maxTime = lists.Max(maxTime, len(s.InferUS), func(i int) time.Duration { return s.InferUS[i].D() })
			}
		}
	}
	return maxTime
}
