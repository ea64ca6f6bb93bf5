package worker

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"inferplan/engine"
	"inferplan/formats"
)

// What a profile was measured with is what a plan of it is served with.
func TestPlannedExecution(t *testing.T) {
	plan := &formats.Plan{Execution: []formats.Execution{
		{Device: "H100", Provider: "cuda", Precision: formats.PrecisionFP16, Options: map[string]string{"use_tf32": "0", "enable_cuda_graph": "1", "gpu_mem_limit": "1073741824"}},
		{Device: "L4", Provider: "tensorrt", Options: map[string]string{"trt_cuda_graph_enable": "0"}},
	}}
	want := Execution{Half: true, Options: engine.Options{CUDAGraph: true, Provider: map[string]string{"use_tf32": "0", "gpu_mem_limit": "1073741824"}}}
	got := PlannedExecution(plan, "H100")
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if text := got.String(); text != "float16, CUDA graphs, gpu_mem_limit=1073741824, use_tf32=0" {
		t.Errorf("%q", text)
	}
	if got := PlannedExecution(plan, "L4"); !got.Options.TensorRT || got.Options.CUDAGraph || got.Options.Provider != nil {
		t.Errorf("%+v", got)
	}
	if got := PlannedExecution(plan, "cpu-1"); !reflect.DeepEqual(got, Execution{}) || got.String() != "the defaults" {
		t.Errorf("%+v", got)
	}
	h := Hello{Device: Device{Kind: "H100", Share: 3}, Execution: got}
	h.Execution = PlannedExecution(plan, "H100")
	if env := h.Env(); !slices.Equal(env, []string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=33", "NVIDIA_TF32_OVERRIDE=0"}) {
		t.Errorf("environment %q", env)
	}
	h.Device.Kind = "cpu-2"
	if env := h.Env(); env != nil {
		t.Errorf("a CPU's environment %q", env)
	}
	// Over the wire nothing is lost, and another host asks for no addresses.
	b, err := appendJSON(nil, TypeHello, h)
	if err != nil {
		t.Fatal(err)
	}
	back, err := parseJSON[Hello](TypeHello, b[HeaderSize:])
	if err != nil || !reflect.DeepEqual(back, h) {
		t.Errorf("%+v, %v", back, err)
	}
	if err := h.Execution.check(); err != nil {
		t.Error(err)
	}
	for _, x := range []Execution{
		{Options: engine.Options{Provider: map[string]string{"user_compute_stream": "140737488355328"}}},
		{Options: engine.Options{Provider: map[string]string{"gpu_external_alloc": "1"}}},
		{Options: engine.Options{Session: map[string]string{"session.load_model_format": "ORT"}}},
	} {
		if err := x.check(); !errors.Is(err, ErrProtocol) {
			t.Errorf("%+v: %v", x, err)
		}
	}
}
