package documents

import (
	"cmp"
	"fmt"
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/planner/pool/problem"
	"inferplan/policy/reserve"
)

// policyFor returns the run-time policy of a plan. If the profile was sampled on real devices, whose times vary, the
// policy gets guards: parts of each deadline that it keeps in reserve. They are in the plan so that simulation and
// execution decide alike. Imported times are taken as exact.
func policyFor(profile *formats.Profile) formats.PolicySpec {
	spec := formats.PolicySpec{Name: reserve.Name}
	if slices.ContainsFunc(profile.Models, hasSamples) {
		spec.Params = reserve.WithGuards(nil)
	}
	return spec
}

// hasSamples reports whether some time of a model was sampled on a device by the profiler. Imported times have no samples.
func hasSamples(m formats.ProfileModel) bool {
	for i := range m.Measurements {
		for _, b := range m.Measurements[i].Blocks {
			if b.Samples > 0 {
				return true
			}
		}
	}
	return false
}

// PlanOutcome writes the outcome of a search as the parts of a plan document: objective and bound, what is
// deployed and promised, warnings and limits.
func (r *Resolved) PlanOutcome(outcome *problem.Outcome) *kind.Outcome {
	objective := r.Input.Values.Word("objective")
	o := &kind.Outcome{
		Algorithm: r.Input.Values.Word("algorithm"), Values: r.Input.Values, Objective: kind.BoundedObjective(objective, outcome.Value, outcome.Bound),
		Sense: kind.SenseOf(objective), StoppedBy: outcome.StoppedBy, Pools: r.Pools, Policy: policyFor(r.Input.Profile), Candidates: outcome.Templates, Phases: outcome.Phases,
	}

	// What is deployed and what is promised.
	section := &formats.PoolPlan{}
	for d := range r.models {
		o.Deployment = append(o.Deployment, r.deployedModel(d, outcome))
		section.Models = append(section.Models, r.servedModel(d, outcome))
	}
	section.Headroom = r.headrooms()
	if o.Objective.Bound != nil {
		o.Objective.BoundAmong = BoundScope(r.Input.Values, r.Input.Values.WholeNumber("blocks"), o.Deployment, o.Pools)
	}
	o.Section = section

	// Warnings, moves and limits.
	for _, d := range outcome.ExemptModels {
		r.run.Warnings = append(r.run.Warnings, fmt.Sprintf(
			"%s: its requests may wait behind another batch on a time-shared device for longer than its SLO leaves; certify the plan, relax the SLO or add a device",
			r.Problem.Models[d].Name))
	}
	r.run.Warnings = append(r.run.Warnings, outcome.Warnings...)
	r.writeReplan(outcome, o)
	o.Limits = outcome.Limits
	return o
}

// headrooms returns, for the plan, by model the margin (part of its SLO that is kept back) and the utilisation (part of the
// rate that its replicas carry that is promised). If all models have the option's margin and utilisation 1, it returns
// nil, because the plan's options say that.
func (r *Resolved) headrooms() []formats.Headroom {
	var list []formats.Headroom
	differs := false
	optionHeadroom := formats.Headroom{Margin: r.Input.Values.Number("margin"), Utilisation: 1}
	for i := range r.models {
		list = append(list, r.models[i].headroom)
		differs = differs || r.models[i].headroom != optionHeadroom
	}
	if !differs {
		return nil
	}
	return list
}

// servedModel returns what the plan promises to the requests for model d: the rate, its SLO and the percentile
// that keeps it.
func (r *Resolved) servedModel(d int, outcome *problem.Outcome) formats.Served {
	m, problemModel := &r.models[d], &r.Problem.Models[d]
	return formats.Served{
		Model: m.workload.Model, Class: m.workload.Class, SLOUS: document.Micros(problemModel.SLO), MarginUS: document.Micros(problemModel.Margin),
		Percentile: cmp.Or(m.workload.Percentile, "p99"), Weight: m.weight, RPS: outcome.RPS[d] * m.headroom.Utilisation,
	}
}

// deployedModel returns where model d runs, for the plan: its pipelines with their places.
func (r *Resolved) deployedModel(d int, outcome *problem.Outcome) formats.Deployed {
	m := &r.models[d]
	deployed := m.profile.NewDeployment()
	deployed.Model, deployed.Class, deployed.NumBlocks = m.workload.Model, m.workload.Class, r.Problem.Models[d].NumBlocks()
	for i := range outcome.Pipelines {
		if outcome.Pipelines[i].Model == d {
			deployed.Pipelines = append(deployed.Pipelines, r.writePipeline(d, &outcome.Pipelines[i]))
		}
	}
	return deployed
}

// writePipeline returns a pipeline of model d as the plan document has it: rate, latency, and of each stage the blocks,
// devices, times, places and the cut behind it. Rates are those promised: utilisation times those that replicas carry.
func (r *Resolved) writePipeline(d int, pipeline *problem.Pipeline) formats.Pipeline {
	model := &r.Problem.Models[d]
	planPipeline := formats.Pipeline{
		Batch: pipeline.Batch, RPS: pipeline.RPS * r.models[d].headroom.Utilisation,
		BatchBuildUS: document.Micros(model.BatchWait(pipeline.Batch)),
	}
	for i := range pipeline.Stages {
		// The stage with its times.
		s := &pipeline.Stages[i]
		stage := formats.Stage{
			Blocks: [2]int{s.FirstBlock, s.EndBlock}, Device: r.Problem.Pools[s.Pool].Kind, Share: s.Share,
			Replicas: pipeline.Replicas[i], GPUs: pipeline.Devices[i], RPS: s.Rate * float64(pipeline.Replicas[i]),
		}
		if r.Problem.Pools[s.Pool].TimeShared {
			stage.RPS = planPipeline.RPS // a stage that shares time carries no more than the pipeline's rate
		}
		model.ShareCosts[s.Pool][s.Share-1].WriteStage(&stage, r.models[d].profile, pipeline.Batch)
		planPipeline.LatencyUS += stage.InferUS[pipeline.Batch-1]

		// Its places.
		stage.Placement = slices.Clone(pipeline.Placement[i])

		// The cut after it.
		if i+1 < len(pipeline.Stages) {
			cut := r.models[d].cuts[s.EndBlock-1]
			stage.Cut = &formats.Cut{Tensors: cut.Tensors, DType: cut.DType, Bytes: cut.Bytes}
			for b := 1; b <= pipeline.Batch; b++ {
				stage.Cut.TransferUS = append(stage.Cut.TransferUS, document.Micros(r.Problem.TransferTime(s.Pool, pipeline.Stages[i+1].Pool, cut.Bytes, b)))
			}
			planPipeline.LatencyUS += stage.Cut.TransferUS[pipeline.Batch-1]
		}
		planPipeline.Stages = append(planPipeline.Stages, stage)
	}
	return planPipeline
}
