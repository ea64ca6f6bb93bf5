package triton

import (
	"fmt"
	"slices"
	"strings"

	"inferplan/engine"
	"inferplan/engine/worker"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/triton/configpb"
	"inferplan/formats/usage"
)

// variant is a way in which a deployed model runs.
type variant struct {
	name      string
	deployed  *formats.Deployed
	promise   formats.Served
	pipeline  int // index of the first pipeline in the deployment
	batch     int
	parts     []part
	pipelines []*formats.Pipeline
}

// part is a stage of a variant. If the variant has several pipelines, they are whole, and so is the part.
type part struct {
	name string
	execution
	spec            worker.StageSpec
	stages          []*formats.Stage
	inputs, outputs []engine.Spec // the tensors that go in and out
	weightFolder    string
	weightFiles     []string // files in the folder that hold weights of the part, with slashes
}

// execution says how the runtime executes a part.
type execution struct {
	fp16        bool // computes in float16
	threads     int  // of a CPU device; 0 on GPUs
	accelerator *configpb.ModelOptimizationPolicy_ExecutionAccelerators_Accelerator
}

// key returns a text that differs between executions.
func (x *execution) key() string {
	return fmt.Sprint(x.fp16, x.threads, x.accelerator.GetName(), x.accelerator.GetParameters())
}

// executionOn returns how the plan executes models on a kind of device.
func executionOn(plan *formats.Plan, device string) execution {
	var x execution
	x.threads, _ = formats.CPUThreads(device)
	planned := document.First(plan.Execution, func(e *formats.Execution) bool { return e.Device == device })
	if planned == nil {
		return x
	}
	x.fp16 = planned.Precision == formats.PrecisionFP16
	if planned.Provider != "" && !formats.IsCPU(device) {
		x.accelerator = &configpb.ModelOptimizationPolicy_ExecutionAccelerators_Accelerator{Name: planned.Provider, Parameters: planned.Options}
	}
	return x
}

// deployedVariants returns the variants of all deployed models, in the order of the plan. modelsDir holds the files of
// models.
func deployedVariants(plan *formats.Plan, modelsDir string) ([]*variant, error) {
	var all []*variant
	takenNames := map[string]string{} // the model by the name of a part or variant
	for i := range plan.Deployment {
		d := &plan.Deployment[i]
		if len(d.Operators) > 0 {
			return nil, &usage.Error{Err: &document.Error{Path: fmt.Sprintf("deployment[%d].operators", i), Found: "libraries of operators", Expected: "a model of ONNX's own operators",
				Hint: "model_operations in config.pbtxt loads such libraries; this export does not write them"}}
		}
		path, err := worker.FindModel(modelsDir, d)
		if err != nil {
			return nil, &usage.Error{Err: err}
		}
		variants := variantsOf(plan, i, path)
		for k, v := range variants {
			v.setNames(k, len(variants))
			names := []string{v.name}
			if len(v.parts) > 1 {
				for n := range v.parts {
					names = append(names, v.parts[n].name)
				}
			}
			for _, name := range names {
				if other, isTaken := takenNames[name]; isTaken || strings.ContainsAny(name, "/\\") {
					return nil, &usage.Error{Err: &document.Error{Path: fmt.Sprintf("deployment[%d].model", i), Found: document.Quote(name) + " as the name of a folder" + holder(other), Expected: "a free name without slashes"}}
				}
				takenNames[name] = d.Key().String()
			}
		}
		all = append(all, variants...)
	}
	return all, nil
}

// holder names the model that has a name already, for an error.
func holder(model string) string {
	if model == "" {
		return ""
	}
	return ", which " + model + " has"
}

// variantsOf returns the variants of deployment i. path is the file of the model.
func variantsOf(plan *formats.Plan, i int, path string) []*variant {
	d := &plan.Deployment[i]
	var list []*variant
	for pi, specs := range worker.StageSpecs(d, path, 0) {
		p := &d.Pipelines[pi]
		first := executionOn(plan, p.Stages[0].Device)

		// A whole pipeline joins the variant of its batch size and execution.
		if at := slices.IndexFunc(list, func(v *variant) bool {
			return len(v.parts) == 1 && len(specs) == 1 && v.batch == p.Batch && v.parts[0].key() == first.key()
		}); at >= 0 {
			list[at].pipelines = append(list[at].pipelines, p)
			list[at].parts[0].stages = append(list[at].parts[0].stages, &p.Stages[0])
			continue
		}
		v := &variant{deployed: d, promise: plan.PromiseFor(i), pipeline: pi, batch: p.Batch, pipelines: []*formats.Pipeline{p}}
		for si := range specs {
			v.parts = append(v.parts, part{execution: executionOn(plan, p.Stages[si].Device), spec: specs[si], stages: []*formats.Stage{&p.Stages[si]}})
		}
		list = append(list, v)
	}
	return list
}

// setNames names a variant and its parts. k is its index among the n variants of its model.
func (v *variant) setNames(k, n int) {
	v.name = v.deployed.Model
	if v.deployed.Class != "" {
		v.name += "." + v.deployed.Class
	}
	if n > 1 {
		v.name += fmt.Sprintf("-%d", k+1)
	}
	for i := range v.parts {
		v.parts[i].name = v.name
		if len(v.parts) > 1 {
			v.parts[i].name += fmt.Sprintf(".stage%d", i+1)
		}
	}
}
