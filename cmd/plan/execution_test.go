package main

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"inferplan/engine"
	"inferplan/engine/worker"
)

// Flags change what they name of what was planned, and nothing else.
func TestExecutionFlags(t *testing.T) {
	planned := worker.Execution{Options: engine.Options{CUDAGraph: true, Provider: map[string]string{"use_tf32": "0", "prefer_nhwc": "1"}}}
	o := executionOptions{}
	if got, err := o.changeExecution(planned); err != nil || !reflect.DeepEqual(got, planned) {
		t.Errorf("no flags: %+v, %v", got, err)
	}
	o = executionOptions{tf32: "on", graphs: "off", fp16: "on", search: "heuristic", memory: "2GiB", provider: map[string]string{"prefer_nhwc": "0"}}
	want := worker.Execution{FP16: true, Options: engine.Options{Provider: map[string]string{
		"use_tf32": "1", "prefer_nhwc": "0", "cudnn_conv_algo_search": "HEURISTIC", "gpu_mem_limit": "2147483648"}}}
	if got, err := o.changeExecution(planned); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v (%v)", got, want, err)
	}
	if planned.Options.Provider["use_tf32"] != "0" {
		t.Error("the plan's options were changed")
	}
	for _, bad := range []executionOptions{
		{tf32: "maybe"}, {graphs: "1"}, {fp16: "yes"}, {search: "best"}, {memory: "much"}, {memory: "0B"},
		{tf32: "on", provider: map[string]string{"use_tf32": "0"}},
	} {
		_, err := bad.changeExecution(worker.Execution{})
		var code *exitError
		if !errors.As(err, &code) || code.code != exitUsage {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// Serve says once per kind where it departs from what the plan promises.
func TestExecutionOfServe(t *testing.T) {
	var notes []string
	o := executionOptions{tf32: "off"}
	f, err := o.forServe(func(format string, a ...any) { notes = append(notes, fmt.Sprintf(format, a...)) })
	if err != nil {
		t.Fatal(err)
	}
	measured := worker.Execution{Options: engine.Options{Provider: map[string]string{"use_tf32": "1"}}}
	for range 2 {
		if x := f("H100", measured); x.Options.Provider["use_tf32"] != "0" {
			t.Errorf("%+v", x)
		}
	}
	if x := f("cpu-1", worker.Execution{}); !reflect.DeepEqual(x, worker.Execution{}) {
		t.Errorf("a CPU with %+v", x)
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "H100 executes with use_tf32=0") || !strings.Contains(notes[0], "measured with use_tf32=1") {
		t.Errorf("notes %q", notes)
	}
}
