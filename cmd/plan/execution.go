package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"inferplan/engine"
	"inferplan/engine/worker"
	"inferplan/formats"
	"inferplan/formats/document"
)

// executionOptions are the flags about how models are executed on a GPU. Flags that are empty mean the default:
// profile's own, and for serve the execution that the plan was measured with.
type executionOptions struct {
	tf32, graphs, fp16, search, memory string
	provider                           map[string]string
}

// flags defines the flags that change how engines execute models. otherwise says in the help what holds without
// --tf32.
func (o *executionOptions) flags(f *pflag.FlagSet, otherwise string) {
	f.StringVar(&o.tf32, "tf32", "", "GPUs: let convolutions and products round their inputs to TF32 (on or off; default "+otherwise+")")
	f.StringVar(&o.graphs, "cuda-graph", "", "GPUs: capture a CUDA graph per batch size and replay it (--cuda-graph, or --cuda-graph=off)")
	f.StringVar(&o.fp16, "fp16", "", "compute whole models in float16, weights and activations (--fp16, or --fp16=off)")
	f.StringVar(&o.search, "conv-search", "", "GPUs: how the algorithm of a convolution is chosen (exhaustive, heuristic or default)")
	f.StringVar(&o.memory, "gpu-memory", "", "GPUs: most memory of a session, such as 2GiB")
	f.StringToStringVar(&o.provider, "provider-option", nil, "GPUs: option of ONNX Runtime's provider, KEY=VALUE (prefer_nhwc=1)")
	for _, name := range []string{"cuda-graph", "fp16"} {
		f.Lookup(name).NoOptDefVal = "on"
	}
}

// completeExecution lets the shell complete these flags.
func completeExecution(cmd *cobra.Command) {
	for _, name := range []string{"tf32", "cuda-graph", "fp16"} {
		completeFlag(cmd, name, "on", "off")
	}
	completeFlag(cmd, "conv-search", "exhaustive", "heuristic", "default")
}

// Keys of the provider's options that the flags set.
const (
	keyTF32   = "use_tf32"
	keySearch = "cudnn_conv_algo_search"
	keyMemory = "gpu_mem_limit"
)

// applySwitch calls set with the value of an on/off flag, if the flag was given.
func applySwitch(name, value string, set func(on bool) error) error {
	switch value {
	case "":
		return nil
	case "on", "off":
		return set(value == "on")
	}
	return usageErrorf("--%s %q: expected on or off", name, value)
}

// changeExecution returns the execution with the changes that the flags name. x is the execution without the flags.
// Its map is not changed.
func (o *executionOptions) changeExecution(x worker.Execution) (worker.Execution, error) {
	// Collect the provider's options. A flag must not contradict an option that was given by name.
	set := map[string]string{}
	maps.Copy(set, o.provider)
	key := func(flag, name, value string) error {
		if knownKey, isDuplicate := set[name]; isDuplicate && knownKey != value {
			return usageErrorf("--%s and --provider-option %s=%s: expected one of them", flag, name, knownKey)
		}
		set[name] = value
		return nil
	}
	if err := firstError(
		applySwitch("tf32", o.tf32, func(on bool) error { return key("tf32", keyTF32, map[bool]string{true: "1", false: "0"}[on]) }),
		applySwitch("cuda-graph", o.graphs, func(on bool) error { x.Options.CUDAGraph = on; return nil }),
		applySwitch("fp16", o.fp16, func(on bool) error { x.FP16 = on; return nil }),
	); err != nil {
		return x, err
	}

	// Read the flags that take a word or a size.
	if o.search != "" {
		if !slices.Contains([]string{"exhaustive", "heuristic", "default"}, o.search) {
			return x, usageErrorf("--conv-search %q: expected exhaustive, heuristic or default", o.search)
		}
		if err := key("conv-search", keySearch, strings.ToUpper(o.search)); err != nil {
			return x, err
		}
	}
	if o.memory != "" {
		b, err := document.ParseMemory(o.memory)
		if err != nil {
			return x, usageErrorf("--gpu-memory: %w", err)
		}
		if b <= 0 {
			return x, usageErrorf("--gpu-memory %s: expected a size such as 2GiB", o.memory)
		}
		if err := key("gpu-memory", keyMemory, fmt.Sprint(int64(b))); err != nil {
			return x, err
		}
	}

	// Copy before changing: the map may be shared.
	if len(set) > 0 {
		provider := map[string]string{}
		maps.Copy(provider, x.Options.Provider)
		maps.Copy(provider, set)
		x.Options.Provider = provider
	}
	return x, nil
}

// forProfile returns the options by which this process's engine executes models, and whether they compute in float16.
// It also sets the environment variables that the engine's libraries read.
func (o *executionOptions) forProfile() (engine.Options, bool, error) {
	x, err := o.changeExecution(worker.Execution{})
	if err != nil {
		return engine.Options{}, false, err
	}
	for _, kv := range x.Env() { // before any library reads the variables
		k, v, _ := strings.Cut(kv, "=")
		if err := os.Setenv(k, v); err != nil {
			return engine.Options{}, false, err
		}
	}
	return x.Options, x.FP16, nil
}

// forServe returns a function that the server calls for each worker: it changes the execution that the plan names for
// a kind of device by the command's flags. The first time that this makes a difference on a kind, note is called with
// a warning, because the plan's times were then measured otherwise.
func (o *executionOptions) forServe(note func(format string, a ...any)) (func(kind string, x worker.Execution) worker.Execution, error) {
	if _, err := o.changeExecution(worker.Execution{}); err != nil {
		return nil, err
	}
	noted := map[string]bool{}
	return func(kind string, plannedExecution worker.Execution) worker.Execution {
		x, _ := o.changeExecution(plannedExecution) // the flags were checked above
		if formats.IsCPU(kind) {                    // the flags' options are for GPUs, except the precision
			x.Options = plannedExecution.Options
		}
		if planned, chosen := plannedExecution.String(), x.String(); planned != chosen && !noted[kind] {
			noted[kind] = true
			note("warning: %s executes with %s; the plan's times were measured with %s", kind, chosen, planned)
		}
		return x
	}, nil
}
