package worker

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"inferplan/engine"
)

// The environment of a worker follows its execution; over the wire nothing is lost.
func TestExecutionSetsEnvironment(t *testing.T) {
	got := Execution{FP16: true, Options: engine.Options{CUDAGraph: true, Provider: map[string]string{"use_tf32": "0", "gpu_mem_limit": "1073741824"}}}
	if text := got.String(); text != "float16, CUDA graphs, gpu_mem_limit=1073741824, use_tf32=0" {
		t.Errorf("%q", text)
	}
	if text := (Execution{}).String(); text != "the defaults" {
		t.Errorf("%q", text)
	}
	h := Hello{Device: Device{Kind: "H100", Share: 3}, Execution: got}
	if env := h.Env(); !slices.Equal(env, []string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=33", "NVIDIA_TF32_OVERRIDE=0"}) {
		t.Errorf("environment %q", env)
	}
	h.Device.Kind = "cpu-2"
	if env := h.Env(); env != nil {
		t.Errorf("a CPU's environment %q", env)
	}
	// Another host asks for no addresses.
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
