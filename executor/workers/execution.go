package workers

import (
	"maps"
	"slices"

	"inferplan/engine/worker"
	"inferplan/formats"
)

// graphKeys are the keys under which profiles name CUDA graphs.
var graphKeys = []string{"enable_cuda_graph", "trt_cuda_graph_enable"}

// PlannedExecution returns how a worker of a device kind executes models: as the plan's numbers for it were
// measured (precision, provider and its options), or by default if the plan does not say.
func PlannedExecution(plan *formats.Plan, kind string) worker.Execution {
	i := slices.IndexFunc(plan.Execution, func(e formats.Execution) bool { return e.Device == kind })
	if i < 0 {
		return worker.Execution{}
	}
	e := plan.Execution[i]
	x := worker.Execution{FP16: e.Precision == formats.PrecisionFP16}
	x.Options.TensorRT = e.Provider == "tensorrt"
	for _, k := range slices.Sorted(maps.Keys(e.Options)) {
		if slices.Contains(graphKeys, k) {
			x.Options.CUDAGraph = e.Options[k] == "1"
			continue
		}
		if x.Options.Provider == nil {
			x.Options.Provider = map[string]string{}
		}
		x.Options.Provider[k] = e.Options[k]
	}
	return x
}
