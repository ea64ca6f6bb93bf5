package placement

import (
	"fmt"
	"math"
	"slices"

	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/templates"
	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// Adopt makes an outcome (a finished plan) of pipelines that a baseline chose, and returns with it the rate, in
// requests/s, that the replicas of each pipeline carry. Of each pipeline the model, the batch size, the place of
// every stage (blocks, pool and share) and its replicas are given. If its RPS is above 0, the pipeline promises that
// rate, else all that its replicas carry. Times and rates are computed from the problem, and the replicas are placed on
// devices as those of a searched plan are. The outcome has no bound (NaN), because nothing is searched. All pools of the
// pipelines must be exclusive (no stages take turns on a device). If a pipeline breaks its SLO or promises more than it
// carries, or all together do not fit the devices or miss a floor, it returns an error.
func Adopt(p *problem.Problem, pipelines []problem.Pipeline) (outcome *problem.Outcome, carriedRPS []float64, err error) {
	var adoptedTemplates []stages.Template
	plan := &Plan{ModelRPS: make([]float64, len(p.Models)), Value: math.Inf(1)}

	// The template of each pipeline, with the rate that its replicas carry: that of its slowest stage.
	for i := range pipelines {
		t := pipelines[i].Template
		t.Stages = slices.Clone(t.Stages)
		if err := templates.Complete(p, &t); err != nil {
			return nil, nil, fmt.Errorf("pipeline %d: %w", i, err)
		}
		planned := PlanPipeline{Template: i, Model: t.Model, RPS: math.Inf(1)}
		for si := range t.Stages {
			n := pipelines[i].Replicas[si]
			if n < 1 {
				return nil, nil, fmt.Errorf("pipeline %d: stage %d has %d replicas", i, si, n)
			}
			planned.Replicas = append(planned.Replicas, n)
			planned.RPS = min(planned.RPS, t.Stages[si].Rate*float64(n))
		}
		carriedRPS = append(carriedRPS, planned.RPS)
		if promisedRPS := pipelines[i].RPS; promisedRPS > 0 {
			if promisedRPS > planned.RPS*(1+1e-9) {
				return nil, nil, fmt.Errorf("pipeline %d: its replicas carry %.6g requests/s, not %.6g", i, planned.RPS, promisedRPS)
			}
			planned.RPS = min(planned.RPS, promisedRPS)
		}
		plan.ModelRPS[t.Model] += planned.RPS
		plan.Pipelines = append(plan.Pipelines, planned)
		adoptedTemplates = append(adoptedTemplates, t)
	}

	// The values of the plan, its limits, and its places on devices. No plan runs whose contents should stay (nil).
	for d := range p.Models {
		plan.Value = min(plan.Value, plan.ModelRPS[d]/p.Models[d].Weight)
		plan.WeightedSum += plan.ModelRPS[d] * p.Models[d].Weight
	}
	catalogue := &templates.Catalogue{Problem: p, Templates: adoptedTemplates}
	if broken := brokenLimit(catalogue, plan); broken != "" {
		return nil, nil, fmt.Errorf("the pipelines take %s", broken)
	}
	placement, fullPool := (&planPacking{p, catalogue, plan, nil}).packAll()
	if fullPool >= 0 {
		return nil, nil, fmt.Errorf("the shares of %s do not fit its devices one by one", p.Pools[fullPool].Kind)
	}
	return &problem.Outcome{
		Pipelines: PlacedPipelines(catalogue, plan, placement), RPS: plan.ModelRPS, Value: plan.Value, Bound: math.NaN(),
		StoppedBy: milp.StoppedByWork, Templates: len(adoptedTemplates),
	}, carriedRPS, nil
}
