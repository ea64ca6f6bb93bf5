package workers

import (
	"reflect"
	"testing"

	"inferplan/engine"
	"inferplan/engine/worker"
	"inferplan/formats"
)

// A plan is served with the execution that its profile was measured with.
func TestPlannedExecution(t *testing.T) {
	plan := &formats.Plan{Execution: []formats.Execution{
		{Device: "H100", Provider: "cuda", Precision: formats.PrecisionFP16, Options: map[string]string{"use_tf32": "0", "enable_cuda_graph": "1", "gpu_mem_limit": "1073741824"}},
		{Device: "L4", Provider: "tensorrt", Options: map[string]string{"trt_cuda_graph_enable": "0"}},
	}}
	want := worker.Execution{FP16: true, Options: engine.Options{CUDAGraph: true, Provider: map[string]string{"use_tf32": "0", "gpu_mem_limit": "1073741824"}}}
	got := PlannedExecution(plan, "H100")
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := PlannedExecution(plan, "L4"); !got.Options.TensorRT || got.Options.CUDAGraph || got.Options.Provider != nil {
		t.Errorf("%+v", got)
	}
	if got := PlannedExecution(plan, "cpu-1"); !reflect.DeepEqual(got, worker.Execution{}) {
		t.Errorf("%+v", got)
	}
}
