package pool

import (
	"fmt"
	"math"

	"inferplan/planner/kind"
	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// InputPipeline is a pipeline with its replicas that was chosen elsewhere.
type InputPipeline struct {
	Model, Batch int
	RPS          float64 // if 0, the rate that its replicas carry
	Stages       []InputStage
}

// InputStage is one stage of an InputPipeline: blocks [First, Last) on a share of the devices of a pool.
type InputStage struct{ First, Last, Pool, Share, Replicas int }

// AdoptDocuments turns pipelines that another program chose into an outcome that can be written as a plan, for
// the models and devices of the documents. It also returns the rate, in requests/s, that the replicas of each
// pipeline carry. A batch is taken to fill at the workload's batch_build_rps, if it names one.
func AdoptDocuments(in *kind.Problem, run *kind.SolveRun, pipelines []InputPipeline) (*kind.Outcome, []float64, error) {
	r, err := resolveDocuments(in, run)
	if err != nil {
		return nil, nil, err
	}
	for d := range r.models {
		if rps := r.models[d].workload.BatchBuildRPS; rps > 0 {
			r.problem.Models[d].BatchWaitMicros = r.options.BatchBuild * 1e6 / rps
		}
	}
	outcome, carriedRPS, err := adoptPipelines(r.problem, pipelines)
	if err != nil {
		return nil, nil, err
	}
	return r.planOutcome(outcome), carriedRPS, nil
}

// adoptPipelines makes an outcome of pipelines that were chosen elsewhere, and returns with it the rate, in
// requests/s, that the replicas of each pipeline carry. The numbers of replicas stay as they are. Times and
// rates are computed from the problem, and the replicas are placed on devices as those of our own plans are.
// The outcome has no bound: nothing is searched. All pools must be exclusive (no stages take turns on a
// device).
func adoptPipelines(p *Problem, pipelines []InputPipeline) (outcome *Outcome, carriedRPS []float64, err error) {
	var templates []stages.Template
	plan := &replicaPlan{modelRPS: make([]float64, len(p.Models)), value: math.Inf(1)}

	// The template of each pipeline, with the rate that its replicas carry.
	for i := range pipelines {
		t, err := p.templateOf(&pipelines[i])
		if err != nil {
			return nil, nil, fmt.Errorf("pipeline %d: %w", i, err)
		}
		planned := planPipeline{template: i, model: t.Model, rps: math.Inf(1)}
		for si := range t.Stages {
			n := pipelines[i].Stages[si].Replicas
			planned.replicas = append(planned.replicas, n)
			planned.rps = min(planned.rps, t.Stages[si].Rate*float64(n))
		}
		carriedRPS = append(carriedRPS, planned.rps)
		if promisedRPS := pipelines[i].RPS; promisedRPS > 0 {
			if promisedRPS > planned.rps*(1+1e-9) {
				return nil, nil, fmt.Errorf("pipeline %d: its replicas carry %.6g requests/s, not %.6g", i, planned.rps, promisedRPS)
			}
			planned.rps = min(planned.rps, promisedRPS)
		}
		plan.modelRPS[t.Model] += planned.rps
		plan.pipelines = append(plan.pipelines, planned)
		templates = append(templates, *t)
	}

	// The objective, the limits and the placement.
	for d := range p.Models {
		plan.value = min(plan.value, plan.modelRPS[d]/p.Models[d].Weight)
		plan.weightedSum += plan.modelRPS[d] * p.Models[d].Weight
	}
	adopted := &templateCatalogue{problem: p, templates: templates}
	if broken := adopted.brokenLimit(plan); broken != "" {
		return nil, nil, fmt.Errorf("the pipelines take %s", broken)
	}
	placement, fullPool := (&planPacking{p, adopted, plan, nil}).packAll()
	if fullPool >= 0 {
		return nil, nil, fmt.Errorf("the shares of %s do not fit its devices one by one", p.Pools[fullPool].Kind)
	}
	return &Outcome{
		Pipelines: adopted.placedPipelines(plan, placement), RPS: plan.modelRPS, Value: plan.value, Bound: math.NaN(),
		StoppedBy: milp.StoppedByWork, Templates: len(templates),
	}, carriedRPS, nil
}

// templateOf returns the template of an input pipeline, with its times and rates computed from the problem's
// measurements. It returns an error if the stages do not follow one another over all blocks, were not measured
// on their devices, or break the SLO of the model.
func (p *Problem) templateOf(pipeline *InputPipeline) (*stages.Template, error) {
	if pipeline.Model < 0 || pipeline.Model >= len(p.Models) {
		return nil, fmt.Errorf("model %d of %d", pipeline.Model, len(p.Models))
	}
	m := &p.Models[pipeline.Model]
	t := &stages.Template{Model: pipeline.Model, Batch: pipeline.Batch}
	nextBlock := 0

	// Check each stage and compute its times.
	for i, input := range pipeline.Stages {
		switch {
		case input.First != nextBlock || input.Last <= input.First || input.Last > m.NumBlocks():
			return nil, fmt.Errorf("stage %d holds blocks [%d, %d), expected them from %d on, of %d", i, input.First, input.Last, nextBlock, m.NumBlocks())
		case input.Pool < 0 || input.Pool >= len(p.Pools) || p.Pools[input.Pool].TimeShared:
			return nil, fmt.Errorf("stage %d is not on an exclusive pool", i)
		case input.Share < 1 || input.Share > len(m.ShareCosts[input.Pool]) || m.ShareCosts[input.Pool][input.Share-1].CostAt(pipeline.Batch) == nil:
			return nil, fmt.Errorf("stage %d: %s was not measured at batch %d on a share 1/%d of %s", i, m.Name, pipeline.Batch, input.Share, p.Pools[input.Pool].Kind)
		case input.Replicas < 1:
			return nil, fmt.Errorf("stage %d has %d replicas", i, input.Replicas)
		case input.Last < m.NumBlocks() && m.CutBytes[input.Last-1] < 0:
			return nil, fmt.Errorf("stage %d: the size of the cut after block %d is not known", i, input.Last-1)
		}
		nextBlock = input.Last
		stage := stages.Stage{FirstBlock: input.First, EndBlock: input.Last, Pool: input.Pool, Share: input.Share}
		costs := &m.ShareCosts[input.Pool][input.Share-1]
		undisturbed := costs.ExpectedTimes(pipeline.Batch)
		stage.MaxTime, stage.MeanTime = stages.MaxTime(costs, pipeline.Batch, input.First, input.Last), undisturbed.Mean(input.First, input.Last)
		if i > 0 {
			prev := &t.Stages[i-1]
			prev.TransferTime = p.TransferTime(prev.Pool, input.Pool, m.CutBytes[input.First-1], pipeline.Batch)
		}
		t.Stages = append(t.Stages, stage)
	}
	if nextBlock != m.NumBlocks() {
		return nil, fmt.Errorf("the stages hold %d of %d blocks", nextBlock, m.NumBlocks())
	}

	// Latency, rates and the SLO.
	for i := range t.Stages {
		t.Latency += t.Stages[i].MaxTime + t.Stages[i].TransferTime
		t.Stages[i].Rate = p.StageRate(t, i)
	}
	if totalTime := t.Latency + m.BatchWait(pipeline.Batch) + m.Margin; totalTime > m.SLO {
		return nil, fmt.Errorf("it takes %v with margin and batch building, the SLO of %s is %v", totalTime, m.Name, m.SLO)
	}
	return t, nil
}
