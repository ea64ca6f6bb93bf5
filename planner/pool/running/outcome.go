package running

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
	"inferplan/planner/pool/documents"
	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// Adopt returns the outcome of an observed deployment, as if a search had found it. Of each pipeline the batch size is
// given, which is the largest that runs, and of each stage the device, the share, the places and the blocks. A stage
// without blocks is the whole model. Nothing is kept back, unless the options or the workload say so. It returns an
// error if a model of the workload does not run, or runs where the profile does not say what it costs.
func Adopt(_ context.Context, in *kind.Problem, run *kind.SolveRun, deployment *kind.Observed) (*kind.Outcome, error) {
	if len(deployment.Servers) > 0 {
		return nil, in.FieldError("workload", "models", "models that run by themselves", "language models with classes of requests (llm): what runs are servers of these", "")
	}
	adopted, observed := *in, deployment.Deployment
	if err := setOptions(&adopted, run, observed); err != nil {
		return nil, err
	}
	resolved, err := documents.Resolve(&adopted, run)
	if err != nil {
		return nil, err
	}
	run.WarnStaleModels(&in.Documents, resolved.Profiles())
	a := &adoption{resolved: resolved, run: run}
	for i := range observed {
		if err := a.addModel(&observed[i]); err != nil {
			return nil, err
		}
	}
	if err := a.checkServed(); err != nil {
		return nil, err
	}
	setRates(resolved.Problem, a.pipelines)
	return resolved.PlanOutcome(a.outcome()), nil
}

// adoption is an observed deployment on its way to an outcome.
type adoption struct {
	resolved  *documents.Resolved
	run       *kind.SolveRun
	pipelines []problem.Pipeline
}

// setOptions chooses the options that describe an observed deployment, where the user chose none: nothing is kept
// back, stages of different models may share a device, and pipelines have as many stages as they have.
func setOptions(in *kind.Problem, run *kind.SolveRun, observed []formats.Deployed) error {
	mostStages := in.Values.WholeNumber("max-partitions")
	for i := range observed {
		mostStages = lists.Max(mostStages, len(observed[i].Pipelines), func(k int) int { return len(observed[i].Pipelines[k].Stages) })
	}
	for _, o := range []struct {
		name  string
		value any
		note  string
	}{
		{"margin", 0.0, "margin 0: what runs keeps nothing of its SLOs back for queues, so that only simulation shows which rates hold"},
		{"gpu-rounding", "fractional", ""},
		{"max-partitions", mostStages, ""},
	} {
		if in.Values.IsChosen(o.name) {
			continue
		}
		if err := in.Values.Set(o.name, o.value); err != nil {
			return err
		}
		if o.note != "" {
			run.Assume("%s", o.note)
		}
	}
	return nil
}

// addModel adds the pipelines of an observed model. A model that the workload does not ask for is left out, with a
// warning. It returns an error if the workload asks for SLO classes or length buckets of it, which what runs does not
// tell apart.
func (a *adoption) addModel(observed *formats.Deployed) error {
	model := a.resolved.ModelIndex(observed.Key())
	if parts := a.partsOf(observed); model < 0 && len(parts) > 0 {
		return a.resolved.Input.FieldError("workload", "models", document.List(parts), observed.Model+" as a whole: one queue of what runs has all of its requests", "")
	}
	if model < 0 {
		a.run.Warn("%s runs, and the workload does not ask for it: it is left out, and what it takes of its devices is idle in the plan", observed.Key())
		return nil
	}
	for i := range observed.Pipelines {
		pipeline, err := a.observedPipeline(model, &observed.Pipelines[i])
		if err != nil {
			return err
		}
		if pipeline != nil {
			a.pipelines = append(a.pipelines, *pipeline)
		}
	}
	return nil
}

// partsOf returns the names of the SLO classes and length buckets that are requested of an observed model without a class.
func (a *adoption) partsOf(observed *formats.Deployed) (names []string) {
	profiles := a.resolved.Profiles()
	for d, m := range formats.ModelsOf(a.resolved.Input.Workload) {
		isBucket := profiles[d].Bucket != nil && profiles[d].Bucket.BaseModel == observed.Model
		if observed.Class == "" && (m.Model == observed.Model || isBucket) {
			names = append(names, m.Key().String())
		}
	}
	return names
}

// checkServed returns an error for a model of the workload without a pipeline.
func (a *adoption) checkServed() error {
	for d := range a.resolved.Problem.Models {
		if !slices.ContainsFunc(a.pipelines, func(p problem.Pipeline) bool { return p.Model == d }) {
			name := a.resolved.Problem.Models[d].Name
			return a.resolved.Input.FieldError("workload", fmt.Sprintf("models[%d].model", d), name+", which does not run within its SLO", "models that run",
				"leave it out of the workload, or relax its SLO, to plan what runs")
		}
	}
	return nil
}

// outcome returns the pipelines as the outcome of a search that proved nothing. Floors that they miss are warnings.
func (a *adoption) outcome() *problem.Outcome {
	models := a.resolved.Problem.Models
	o := &problem.Outcome{Pipelines: a.pipelines, RPS: make([]float64, len(models)), Value: math.Inf(1), Bound: math.NaN(), StoppedBy: milp.StoppedByWork, Templates: len(a.pipelines)}
	slices.SortStableFunc(o.Pipelines, func(p, q problem.Pipeline) int {
		return cmp.Or(cmp.Compare(p.Model, q.Model), cmp.Compare(q.RPS, p.RPS))
	})
	for i := range o.Pipelines {
		o.RPS[o.Pipelines[i].Model] += o.Pipelines[i].RPS
	}
	o.ExemptModels = modelsThatWait(a.resolved.Problem, o.Pipelines)
	for d := range models {
		o.Value = min(o.Value, o.RPS[d]/models[d].Weight)
		if floor := models[d].MinRPS; !problem.MeetsFloor(o.RPS[d], floor) {
			a.run.Warn("%s: what runs carries %.5g of the %.5g requests/s that are asked", models[d].Name, o.RPS[d], floor)
		}
	}
	return o
}

// deviceNumbers returns the devices of a stage's placement, each as often as it has replicas.
func deviceNumbers(runs []problem.DeviceRun) []int {
	var devices []int
	for _, r := range runs {
		devices = append(devices, lists.Map(r.Replicas, func(i int) int { return r.FirstDevice + i/max(r.PerDevice, 1) })...)
	}
	return devices
}

// stagesOf returns the stages of an observed pipeline in the form of the search. A device kind that the cluster does
// not have gets the pool -1.
func (a *adoption) stagesOf(model int, observed *formats.Pipeline) []stages.Stage {
	var list []stages.Stage
	for i := range observed.Stages {
		s := &observed.Stages[i]
		stage := stages.Stage{FirstBlock: s.Blocks[0], EndBlock: s.Blocks[1], Share: max(s.Share, 1)}
		if s.Blocks == [2]int{} {
			stage.EndBlock = a.resolved.Problem.Models[model].NumBlocks()
		}
		stage.Pool = slices.IndexFunc(a.resolved.Pools, func(p formats.Pool) bool { return p.Device == s.Device })
		list = append(list, stage)
	}
	return list
}
