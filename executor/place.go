package executor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"inferplan/engine"
	"inferplan/engine/worker"
	"inferplan/formats"
	"inferplan/policy"
)

// stagePlan is what a worker must load for a stage.
type stagePlan struct {
	spec    worker.StageSpec
	first   bool
	last    bool
	model   int32
	batches int
}

// cpuThreads returns n of a device kind cpu-<n>.
func cpuThreads(kind string) (int, bool) {
	rest, ok := strings.CutPrefix(kind, "cpu-")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(rest)
	return n, err == nil && n > 0
}

// placeDevices maps the plan's devices to this machine.
func placeDevices(t *policy.Tables, o *Options) ([]worker.Device, error) {
	out := make([]worker.Device, len(t.Devices))
	var cpus []int
	next := 0
	for i, d := range t.Devices {
		kind := t.Kinds[d.Kind]
		out[i] = worker.Device{Kind: kind, Index: int(d.GPU), Share: int(d.Share)}
		n, isCPU := cpuThreads(kind)
		if !isCPU || o.Engine == "replay" {
			continue
		}
		out[i].Threads = n
		if cpus == nil {
			if cpus = o.CPUs; cpus == nil {
				all, err := engine.CPUs()
				if err != nil {
					return nil, err
				}
				if cpus = all; len(all) > 1 {
					cpus = all[1:] // one is left to the front end
				}
			}
		}
		if next+n > len(cpus) && !o.ShareCPUs {
			return nil, fmt.Errorf("%w: %w: the plan's device %d of kind %s needs %d more of this machine's CPUs, of which %d are left of %v",
				ErrPlan, engine.ErrNoDevice, d.GPU, kind, n, max(0, len(cpus)-next), cpus)
		}
		for k := range n {
			cpu := cpus[(next+k)%len(cpus)]
			if !slices.Contains(out[i].CPUs, cpu) {
				out[i].CPUs = append(out[i].CPUs, cpu)
			}
		}
		next += n
	}
	return out, nil
}

// planStages lists what each stage of the plan loads, in the order of
// Tables.Stages.
func planStages(plan *formats.Plan, t *policy.Tables, o *Options) ([]stagePlan, error) {
	var out []stagePlan
	for mi := range plan.Models {
		m := &plan.Models[mi]
		path := ""
		if o.Engine != "replay" {
			var err error
			if path, err = findModel(o.ModelsDir, m); err != nil {
				return nil, err
			}
		}
		inputs, err := specs(m.Inputs, "input")
		if err != nil {
			return nil, fmt.Errorf("%w: models[%d] %s: %w", ErrPlan, mi, m.Model, err)
		}
		outputs, err := specs(m.Outputs, "output")
		if err != nil {
			return nil, fmt.Errorf("%w: models[%d] %s: %w", ErrPlan, mi, m.Model, err)
		}
		var dims map[string][]int64
		if o.Engine != "replay" && len(m.Inputs) > 0 {
			dims = map[string][]int64{}
			for _, t := range m.Inputs {
				dims[t.Name] = t.Shape
			}
		}
		for pi := range m.Pipelines {
			p := &m.Pipelines[pi]
			var in *formats.Cut
			for si := range p.Stages {
				s := &p.Stages[si]
				sp := stagePlan{model: int32(mi), first: si == 0, last: si == len(p.Stages)-1, batches: p.Batch}
				sp.spec = worker.StageSpec{
					ID: uint32(len(out)), Model: m.Model, Path: path, SHA256: m.SHA256,
					From: s.Blocks[0], To: s.Blocks[1], Blocks: m.NumBlocks, MaxBatch: p.Batch,
					Seed: o.Seed, Dims: dims,
				}
				if in != nil {
					sp.spec.CutIn, sp.spec.FP16In = in.Tensors, in.DType == "FP16"
				}
				if s.Cut != nil {
					sp.spec.CutOut, sp.spec.FP16Out = s.Cut.Tensors, s.Cut.DType == "FP16"
				}
				if o.Engine == "replay" {
					for _, d := range s.InferUS {
						sp.spec.InferNS = append(sp.spec.InferNS, int64(d.D()))
					}
					sp.spec.Inputs, sp.spec.Outputs = replayTensors(inputs, in), replayTensors(outputs, s.Cut)
				}
				out = append(out, sp)
				in = s.Cut
			}
		}
	}
	if len(out) != len(t.Stages) {
		return nil, fmt.Errorf("%w: %d stages in the plan, %d in its tables", ErrPlan, len(out), len(t.Stages))
	}
	return out, nil
}

// replayTensors are a stage's boundary for an engine that has no model: the
// model's own, or at a cut the bytes that the plan counts.
func replayTensors(own []engine.Spec, cut *formats.Cut) []engine.Spec {
	if cut == nil {
		return own
	}
	name := "cut"
	if len(cut.Tensors) > 0 {
		name = cut.Tensors[0]
	}
	return []engine.Spec{{Name: name, Type: engine.U8, Shape: []int64{engine.BatchDim, max(cut.Bytes, 1)}}}
}

var datatypes = map[string]engine.DType{
	"FP32": engine.F32, "FP16": engine.F16, "FP64": engine.F64, "INT64": engine.I64, "INT32": engine.I32, "INT8": engine.I8,
	"UINT8": engine.U8, "BOOL": engine.Bool,
}

// specs turns a plan's tensors into the engine's. A plan without them (its
// models were imported) is replayed with one float per sample.
func specs(tensors []formats.TensorInfo, missing string) ([]engine.Spec, error) {
	if len(tensors) == 0 {
		return []engine.Spec{{Name: missing, Type: engine.F32, Shape: []int64{engine.BatchDim, 1}}}, nil
	}
	out := make([]engine.Spec, len(tensors))
	for i, t := range tensors {
		d, ok := datatypes[t.DType]
		if !ok {
			return nil, fmt.Errorf("%s %q: datatype %q: expected FP32, FP16, FP64, INT64, INT32, INT8, UINT8 or BOOL", missing, t.Name, t.DType)
		}
		shape := slices.Clone(t.Shape)
		if len(shape) == 0 {
			return nil, fmt.Errorf("%s %q has no batch dimension", missing, t.Name)
		}
		shape[0] = engine.BatchDim
		for k, n := range shape[1:] {
			if n < 1 {
				return nil, fmt.Errorf("%s %q: shape %v: dimension %d is not fixed", missing, t.Name, t.Shape, k+1)
			}
		}
		out[i] = engine.Spec{Name: t.Name, Type: d, Shape: shape}
	}
	return out, nil
}

// findModel finds a model's file: by its name, else by its hash.
func findModel(dir string, m *formats.PlanModel) (string, error) {
	path := filepath.Join(dir, m.Model+".onnx")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.onnx"))
	if err != nil {
		return "", fmt.Errorf("%w: model %s: %w", ErrPlan, m.Model, err)
	}
	slices.Sort(files)
	if m.SHA256 != "" {
		for _, f := range files {
			if sum, err := formats.Digest(f); err == nil && sum == m.SHA256 {
				return f, nil
			}
		}
	}
	return "", fmt.Errorf("%w: model %s: neither %s nor a file of its hash among the %d models of %s; name the folder with --models", ErrPlan, m.Model, path, len(files), dir)
}
