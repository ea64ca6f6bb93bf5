package workers

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"inferplan/engine"
	"inferplan/engine/worker"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/modelfile"
	"inferplan/policy"
)

// stageLoad describes what a worker loads for a stage.
type stageLoad struct {
	spec     worker.StageSpec
	isFirst  bool
	isLast   bool
	model    int32
	maxBatch int
}

// cpuSets hands out CPUs to the devices of a plan: to kinds with a CPUPlace from there, to others from one common list.
type cpuSets struct {
	options    *Options
	commonCPUs []int
	nextIndex  map[string]int // by kind; "" is the common list
}

// takeCPUs returns the CPUs and the number of threads for the next device of a kind: the next CPUs of the list that the
// options give for the kind, or of the CPUs common to all workers. For a GPU without such a list it returns none. If too
// few are left, it returns an error, unless CPUs may be shared. gpu is the device's number, for errors.
func (s *cpuSets) takeCPUs(kind string, gpu int32) (cpus []int, threads int, err error) {
	place, hasPlace := s.options.CPUPlaces[kind]
	// Find the list and how many CPUs a device takes: the options' threads, or the number in the kind's name (cpu-4). nextIndex
	// has, by key, how far a list is used: each kind has its own list, except that the key "" stands for the common CPUs.
	n, hasCount := formats.CPUThreads(kind)
	key := kind
	switch {
	case hasPlace && place.Threads > 0:
		n = place.Threads
	case hasPlace && !hasCount:
		n = 1
	case hasPlace:
	case hasCount:
		key = ""
		if s.commonCPUs == nil {
			if s.commonCPUs, err = workerCPUs(s.options.CPUs); err != nil {
				return nil, 0, err
			}
		}
		place.CPUs = s.commonCPUs
	case formats.IsCPU(kind):
		return nil, 0, fmt.Errorf("%w: %w: device kind %s does not say how many CPUs it has: name them (--place %s=0-3)", turn.ErrPlan, engine.ErrNoDevice, kind, kind)
	default:
		return nil, 0, nil
	}

	// Take the next n of the list.
	firstIndex := s.nextIndex[key]
	if firstIndex+n > len(place.CPUs) && (!s.options.ShareCPUs || len(place.CPUs) == 0) {
		return nil, 0, fmt.Errorf("%w: %w: the plan's device %d of kind %s needs %d more of this machine's CPUs, of which %d are left of %v",
			turn.ErrPlan, engine.ErrNoDevice, gpu, kind, n, max(0, len(place.CPUs)-firstIndex), place.CPUs)
	}
	for k := range n {
		cpu := place.CPUs[(firstIndex+k)%len(place.CPUs)]
		if !slices.Contains(cpus, cpu) {
			cpus = append(cpus, cpu)
		}
	}
	s.nextIndex[key] = firstIndex + n
	return cpus, n, nil
}

// workerCPUs returns the numbers of the CPUs that workers may use: the configured ones, or, if that is nil, all of this
// process except the first, which is left to the front end. A single CPU is shared.
func workerCPUs(configured []int) ([]int, error) {
	if configured != nil {
		return configured, nil
	}
	available, err := engine.CPUs()
	if err != nil {
		return nil, err
	}
	if len(available) > 1 {
		available = available[1:]
	}
	return available, nil
}

// isRemote returns true if a device of the plan is on another host.
func isRemote(t *policy.Tables, device int, o *Options) bool {
	d := &t.Devices[device]
	return o.AllRemote || int(t.KindCounts[d.Kind]-d.GPU) <= o.Remote[t.Kinds[d.Kind]]
}

// checkRemote returns an error if the options ask for more devices of a kind on other hosts than the plan t has, for a
// kind that it does not have, or for any without an address where their workers can join.
func checkRemote(t *policy.Tables, o *Options) error {
	if o.AllRemote && o.Lobby == nil {
		return fmt.Errorf("%w: all devices are remote, and nowhere for workers to join (--join-listen)", turn.ErrPlan)
	}
	for _, kind := range slices.Sorted(maps.Keys(o.Remote)) {
		k := slices.Index(t.Kinds, kind)
		switch n := o.Remote[kind]; {
		case k < 0:
			return fmt.Errorf("%w: remote devices of kind %s: the plan has the kinds %s", turn.ErrPlan, kind, strings.Join(t.Kinds, ", "))
		case n < 0 || n > int(t.KindCounts[k]):
			return fmt.Errorf("%w: %d remote devices of kind %s: the plan has %d", turn.ErrPlan, n, kind, t.KindCounts[k])
		case n > 0 && o.Lobby == nil:
			return fmt.Errorf("%w: remote devices of kind %s, and nowhere for workers to join (--join-listen)", turn.ErrPlan, kind)
		}
	}
	return nil
}

// placeDevices returns for each device of the plan where on this machine its worker runs: its kind, number and
// CPUs. Devices on other hosts, those that are not ours, and all devices of the engine replay (which only waits)
// get no CPUs. It returns an error if the machine has too few.
func placeDevices(t *policy.Tables, o *Options, replay bool, isOurs []bool) ([]worker.Device, error) {
	if err := checkRemote(t, o); err != nil {
		return nil, err
	}
	out := make([]worker.Device, len(t.Devices))
	sets := cpuSets{options: o, nextIndex: map[string]int{}}
	for i, d := range t.Devices {
		kind := t.Kinds[d.Kind]
		out[i] = worker.Device{Kind: kind, Index: int(d.GPU), Share: int(d.Share)}
		if replay || !isOurs[i] || isRemote(t, i, o) {
			continue
		}
		var err error
		if out[i].CPUs, out[i].Threads, err = sets.takeCPUs(kind, d.GPU); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// planStages returns what each stage of the plan loads, in the order of Tables.Stages. Only stages on devices for which
// isOurs is true need a file, because workers execute them.
func planStages(plan *formats.Plan, t *policy.Tables, o *turn.Options, isOurs []bool) ([]stageLoad, error) {
	var out []stageLoad
	for mi := range plan.Deployment {
		m := &plan.Deployment[mi]
		path := ""
		if o.Engine != "replay" && hasWorkers(t, len(out), isOurs) {
			var err error
			if path, err = worker.FindModel(o.ModelsDir, m); err != nil {
				return nil, fmt.Errorf("%w: %w", turn.ErrPlan, err)
			}
		}

		// The tensors of the model, and the shapes for which it is prepared.
		runsWhole := m.HasNoBatchAxis()
		inputs, err := TensorSpecs(m.Inputs, runsWhole, "input")
		if err != nil {
			return nil, fmt.Errorf("%w: %w", turn.ErrPlan, &document.Error{Path: fmt.Sprintf("deployment[%d].inputs", mi), Found: err.Error()})
		}
		outputs, err := TensorSpecs(m.Outputs, runsWhole, "output")
		if err != nil {
			return nil, fmt.Errorf("%w: %w", turn.ErrPlan, &document.Error{Path: fmt.Sprintf("deployment[%d].outputs", mi), Found: err.Error()})
		}
		// One load per stage.
		for pi, specs := range worker.StageSpecs(m, path, o.Seed) {
			p := &m.Pipelines[pi]
			for si, spec := range specs {
				spec.ID = uint32(len(out))
				if o.Engine == "replay" {
					spec.Dims = nil
					for _, d := range p.Stages[si].InferUS {
						spec.InferNS = append(spec.InferNS, int64(d.D()))
					}
					spec.Inputs, spec.Outputs = inputs, replayTensors(outputs, p.Stages[si].Cut)
					if si > 0 {
						spec.Inputs = replayTensors(inputs, p.Stages[si-1].Cut)
					}
				}
				out = append(out, stageLoad{spec: spec, model: int32(mi), isFirst: si == 0, isLast: si == len(specs)-1, maxBatch: p.Batch})
			}
		}
	}
	if len(out) != len(t.Stages) {
		return nil, fmt.Errorf("%w: %d stages in the plan, %d in its tables", turn.ErrPlan, len(out), len(t.Stages))
	}
	return out, nil
}

// hasWorkers returns whether worker processes execute a stage of the plan, and no other backend does.
func hasWorkers(t *policy.Tables, stage int, isOurs []bool) bool {
	if stage >= len(t.Stages) {
		return true
	}
	devices := t.DevicesOf(int32(stage))
	return len(devices) == 0 || isOurs[devices[0]]
}

// replayTensors returns the outputs or inputs of a stage for the engine replay, which has no models: those of the
// model, or at a cut between stages one tensor of the bytes that the plan counts.
func replayTensors(modelTensors []engine.Spec, cut *formats.Cut) []engine.Spec {
	if cut == nil {
		return modelTensors
	}
	name := "cut"
	if len(cut.Tensors) > 0 {
		name = cut.Tensors[0]
	}
	return []engine.Spec{{Name: name, Type: engine.U8, Shape: []int64{engine.BatchDim, max(cut.Bytes, 1)}}}
}

var datatypes = map[string]engine.DType{
	"FP32": engine.F32, "FP16": engine.F16, "BF16": engine.BF16, "FP64": engine.F64, "INT64": engine.I64, "INT32": engine.I32, "INT16": engine.I16,
	"INT8": engine.I8, "UINT64": engine.U64, "UINT32": engine.U32, "UINT16": engine.U16, "UINT8": engine.U8, "BOOL": engine.Bool,
}

// TensorSpecs returns a plan's tensors in the form of the engine. runsWhole says that the model has no dimension
// for the batch; otherwise the first one is it. A plan without tensors, whose models were imported, is replayed
// with one float per sample. direction is input or output, for names and errors.
func TensorSpecs(tensors []formats.TensorInfo, runsWhole bool, direction string) ([]engine.Spec, error) {
	if len(tensors) == 0 {
		return []engine.Spec{{Name: direction, Type: engine.F32, Shape: []int64{engine.BatchDim, 1}}}, nil
	}
	out := make([]engine.Spec, len(tensors))
	for i, t := range tensors {
		d, ok := datatypes[t.DType]
		if !ok {
			return nil, fmt.Errorf("%s %q: datatype %q: expected one of %s", direction, t.Name, t.DType, strings.Join(slices.Sorted(maps.Keys(datatypes)), ", "))
		}
		shape := slices.Clone(t.Shape)
		if len(shape) == 0 {
			return nil, fmt.Errorf("%s %q has no batch dimension", direction, t.Name)
		}
		if !runsWhole {
			shape[0] = engine.BatchDim
		}
		for k, n := range shape {
			if n < 1 && (k > 0 || runsWhole) {
				return nil, fmt.Errorf("%s %q: shape %v: dimension %d is not fixed", direction, t.Name, t.Shape, k)
			}
		}
		out[i] = engine.Spec{Name: t.Name, Type: d, Shape: shape}
	}
	return out, nil
}

// findOperators returns the libraries of custom operators that the models of a plan need, each once, with the path where
// it was found. If one is missing, it returns turn.ErrPlan. The engine replay needs none.
func findOperators(plan *formats.Plan, o *turn.Options) ([]modelfile.OperatorLibrary, error) {
	if o.Engine == "replay" {
		return nil, nil
	}
	var out []modelfile.OperatorLibrary
	for i := range plan.Deployment {
		out = modelfile.UniqueOperators(out, plan.Deployment[i].Operators)
	}
	for i := range out {
		path, err := out[i].Find(o.ModelsDir)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", turn.ErrPlan, err)
		}
		out[i].Path = path
	}
	return out, nil
}
