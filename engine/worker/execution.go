package worker

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"inferplan/engine"
)

// Execution says how models are executed on a device: options of every load,
// and whether whole models compute in float16.
type Execution struct {
	Options engine.Options `json:"options"`
	FP16    bool           `json:"half,omitempty"`
}

// check refuses options of a server that a host must not accept: provider options that are addresses or may name
// files, and entries of the session, which name files.
func (x Execution) check() error {
	if len(x.Options.Session) > 0 {
		return fmt.Errorf("%w: session entries from another host", ErrProtocol)
	}
	for k := range x.Options.Provider {
		if strings.Contains(k, "user_compute_stream") || strings.Contains(k, "external") || strings.HasPrefix(k, "trt_") {
			return fmt.Errorf("%w: provider option %q from another host", ErrProtocol, k)
		}
	}
	return nil
}

// Env returns variables that CUDA's libraries read when they are opened.
func (x Execution) Env() []string {
	if x.Options.Provider["use_tf32"] == "0" {
		// The provider falls back to TF32 where it finds no other kernel; this
		// forbids it to CUDA's libraries altogether.
		return []string{"NVIDIA_TF32_OVERRIDE=0"}
	}
	return nil
}

// String lists, for users, the options that differ from the defaults.
func (x Execution) String() string {
	var parts []string
	if x.Options.TensorRT {
		parts = append(parts, "TensorRT")
	}
	if x.FP16 {
		parts = append(parts, "float16")
	}
	if x.Options.CUDAGraph {
		parts = append(parts, "CUDA graphs")
	}
	for _, k := range slices.Sorted(maps.Keys(x.Options.Provider)) {
		parts = append(parts, k+"="+x.Options.Provider[k])
	}
	if parts == nil {
		return "the defaults"
	}
	return strings.Join(parts, ", ")
}
