//go:build cgo && !noort

package ort

/*
#include <stdlib.h>
#include "ort.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"inferplan/engine"
	"inferplan/engine/graph"
)

// live counts the objects in C memory, for leak checks.
var live struct{ sessions, bindings, values atomic.Int64 }

// Live counts the sessions, bindings and tensors that are not closed yet.
func Live() (sessions, bindings, values int64) {
	return live.sessions.Load(), live.bindings.Load(), live.values.Load()
}

// cStrings are strings in C memory, which Go's garbage collector does not free: call free after their use.
type cStrings struct{ p []*C.char }

// add copies a string into C memory.
func (s *cStrings) add(v string) *C.char {
	c := C.CString(v)
	s.p = append(s.p, c)
	return c
}

func (s *cStrings) free() {
	for _, c := range s.p {
		C.free(unsafe.Pointer(c))
	}
}

// pairs copies the keys and values of a map into two C arrays of the same order, that of the keys, and returns them
// with their length. The arrays are added to the list arrays, which the caller frees.
func (s *cStrings) pairs(m map[string]string, arrays *[]unsafe.Pointer) (keys, values **C.char, n C.int) {
	if len(m) == 0 {
		return nil, nil, 0
	}
	names := make([]string, 0, len(m))
	for k := range m {
		names = append(names, k)
	}
	sort.Strings(names)
	size := C.size_t(len(m)) * C.size_t(unsafe.Sizeof(uintptr(0)))
	keyArray, valueArray := C.malloc(size), C.malloc(size)
	*arrays = append(*arrays, keyArray, valueArray)
	keySlice, valueSlice := unsafe.Slice((**C.char)(keyArray), len(m)), unsafe.Slice((**C.char)(valueArray), len(m))
	for i, name := range names {
		keySlice[i], valueSlice[i] = s.add(name), s.add(m[name])
	}
	return (**C.char)(keyArray), (**C.char)(valueArray), C.int(len(m))
}

// levels are ONNX Runtime's numbers of the optimisation levels.
var levels = map[string]C.int{"": 99, "all": 99, "extended": 2, "basic": 1, "none": 0}

// cudaDefaults are the options of the CUDA provider that this package sets unless the caller does. The algorithm
// of a convolution is the first that cuDNN's heuristics B propose: whatever the option is called, ONNX Runtime
// 1.29 times none. (HEURISTIC asks heuristics A, DEFAULT the fallback.) Memory grows by the needed bytes and is
// not doubled, because every session has its own pool. use_tf32 has the provider's own default; it is listed so
// that profiles can name it.
var cudaDefaults = map[string]string{
	"cudnn_conv_algo_search": "EXHAUSTIVE",
	"arena_extend_strategy":  "kSameAsRequested",
	"use_tf32":               "1",
}

// ProviderOptions returns the options that a device's execution provider (CUDA or TensorRT) gets, given the options
// of a load, so that a profile can name them. A CPU has none.
func (e *Engine) ProviderOptions(d engine.Device, o engine.Options) map[string]string {
	return providerOptions(d, o)
}

// providerOptions returns the defaults of this package for the device, overridden by those of the caller.
func providerOptions(d engine.Device, o engine.Options) map[string]string {
	out := map[string]string{}
	if d.IsCPU() {
		return out
	}
	i, _ := d.Index()
	out["device_id"] = strconv.Itoa(i)
	graphKey := "enable_cuda_graph"
	if o.TensorRT {
		graphKey = "trt_cuda_graph_enable"
	} else {
		maps.Copy(out, cudaDefaults)
	}
	if o.CUDAGraph {
		out[graphKey] = "1"
	}
	maps.Copy(out, o.Provider)
	return out
}

// Names of ONNX Runtime's session settings.
const (
	noFallbackKey       = "session.disable_cpu_ep_fallback"                      // "1" makes an operator that the GPU cannot execute an error
	recordAssignmentKey = "session.record_ep_graph_assignment_info"              // "1" records which provider executes which operator
	weightFolderKey     = "session.model_external_initializers_file_folder_path" // the folder of the files of weights
)

// session makes a session of ONNX Runtime, which can run a model on a device, from the model's bytes: for any batch
// size or, if batch is not 0, for that one. A GPU that cannot execute all operators is an error (ErrFallback), unless
// o.Session allows the CPU to execute the rest. The caller frees it.
func (e *Engine) session(model []byte, d engine.Device, o engine.Options, batch int) (*C.ip_session, error) {
	level, ok := levels[o.Optimization]
	if !ok {
		return nil, fmt.Errorf("optimisation %q: expected all, extended, basic or none", o.Optimization)
	}
	if len(model) == 0 {
		return nil, fmt.Errorf("%w: no ONNX bytes (the slice was made without data)", engine.ErrModel)
	}
	threads := o.Threads
	if threads == 0 {
		threads = max(1, len(d.CPUs))
	}

	// Set the options of the device.
	config := map[string]string{
		"session.intra_op.allow_spinning": "0",
		"session.inter_op.allow_spinning": "0",
	}
	c := C.ip_options{threads: C.int(threads), level: level}
	switch {
	case d.IsCPU():
		if o.CUDAGraph || o.TensorRT || len(o.Provider) > 0 {
			return nil, fmt.Errorf("device %s: CUDA graphs, TensorRT and provider options need a GPU", d.ID)
		}
		if e.waits {
			c.waits = 1
		}
	case strings.HasPrefix(d.ID, "cuda:"):
		if err := e.checkGPU(d, o.TensorRT); err != nil {
			return nil, err
		}
		i, err := d.Index()
		if err != nil {
			return nil, err
		}
		// Wait for runs through the driver.
		if err := openDriver(); err != nil {
			return nil, err
		}
		c.provider, c.device = C.IP_CUDA, C.int(i)
		config[noFallbackKey] = "1"
		if o.TensorRT {
			c.provider = C.IP_TENSORRT
		}
	default:
		return nil, fmt.Errorf("device %q: %w: expected a form such as cpu:0 or cuda:0", d.ID, engine.ErrNoDevice)
	}

	// Make the session, and explain an error.
	maps.Copy(config, o.Session)
	s, err := newSession(model, c, batch, config, providerOptions(d, o), e.operators)
	if err == nil {
		return s, nil
	}
	if m := unknownOperator.FindStringSubmatch(err.Error()); m != nil {
		return nil, e.unknownOperatorError(m[1], m[2])
	}
	if m := noOperator.FindStringSubmatch(err.Error()); m != nil {
		return nil, e.unknownOperatorError("", m[1])
	}
	kind := engine.ErrModel
	if strings.Contains(err.Error(), "fallback to CPU EP has been explicitly disabled") {
		kind = engine.ErrFallback
	}
	return nil, fmt.Errorf("device %s: %w: %v", d.ID, kind, err)
}

// unknownOperator matches ONNX Runtime's error for an unknown operator: DOMAIN:OPERATOR(VERSION). noOperator matches
// that for an operator of ONNX itself, in the operator set (opset) that the model names.
var unknownOperator = regexp.MustCompile(`(\S*?):?(\w+)\(-?\d+\) is not a registered function/op`)

var noOperator = regexp.MustCompile(`No Op registered for (\w+) with domain_version`)

// unknownOperatorError returns the error for an operator that neither ONNX Runtime nor a given library of custom
// operators has. It says what the user can do. An empty domain is that of ONNX's own operators.
func (e *Engine) unknownOperatorError(domain, operator string) error {
	if domain == "" {
		return fmt.Errorf("%w: operator %s of ONNX is unknown to this ONNX Runtime (%s) at the model's operator set: export it with another one (opset)", engine.ErrModel, operator, e.info.Version)
	}
	library := "ONNX Runtime does not have"
	if len(e.operators) > 0 {
		library = "neither ONNX Runtime nor " + strings.Join(e.operators, ", ") + " has"
	}
	return fmt.Errorf("%w: operator %s of the domain %s is a custom one, which %s: name the library that has it with --ops LIBRARY.so", engine.ErrModel, operator, domain, library)
}

// strictSession makes a session in which the device executes every operator, when a block is loaded. A model may
// compute with its own shapes, for which the CUDA provider has no operators. With a fixed batch size these are
// constants. So if the device refuses the model for any batch size, it is tried at batch size 1, and static is then
// true: each batch size needs a session of its own. The error names the operators that the device cannot execute.
func (e *Engine) strictSession(model []byte, d engine.Device, o engine.Options) (s *C.ip_session, static bool, err error) {
	if e.static {
		s, err = e.session(model, d, o, 1)
		return s, true, err
	}
	if s, err = e.session(model, d, o, 0); err == nil || !errors.Is(err, engine.ErrFallback) {
		return s, false, err
	}
	if s, secondErr := e.session(model, d, o, 1); secondErr == nil {
		return s, true, nil
	}

	// Name the operators, up to eight of them, that only the CPU can execute.
	nodes, secondErr := e.assignmentOf(model, d, o)
	if list := nodes[cpuProvider]; secondErr == nil && len(list) > 0 {
		text := strings.Join(list[:min(len(list), 8)], ", ")
		if omitted := len(list) - 8; omitted > 0 {
			text += fmt.Sprintf(" and %d more", omitted)
		}
		err = fmt.Errorf("device %s: %w: %d operators would run on the CPU: %s", d.ID, engine.ErrFallback, len(list), text)
	}
	return nil, false, err
}

// newSession passes a model and its options to ONNX Runtime, and returns the session. c has the options that are
// numbers. The other parameters are copied into C memory for the call: the batch size that replaces the symbolic one
// (if it is not 0), settings of the session (config) and of the execution provider, and the paths of libraries of
// custom operators.
func newSession(model []byte, c C.ip_options, batch int, config, provider map[string]string, operators []string) (*C.ip_session, error) {
	var texts cStrings
	var arrays []unsafe.Pointer
	defer func() {
		texts.free()
		for _, p := range arrays {
			C.free(p)
		}
	}()

	// Copy the options into C memory.
	if batch > 0 {
		c.batch_name, c.batch = texts.add(graph.BatchName), C.int(batch)
	}
	c.config_keys, c.config_values, c.n_config = texts.pairs(config, &arrays)
	c.provider_keys, c.provider_values, c.n_provider = texts.pairs(provider, &arrays)
	if n := len(operators); n > 0 {
		list := C.malloc(C.size_t(n) * C.size_t(unsafe.Sizeof(uintptr(0))))
		arrays = append(arrays, list)
		for i, path := range operators {
			unsafe.Slice((**C.char)(list), n)[i] = texts.add(path)
		}
		c.operators, c.n_operators = (**C.char)(list), C.int(n)
	}

	// Make the session.
	var s *C.ip_session
	if err := goError(C.ip_session_new(unsafe.Pointer(&model[0]), C.size_t(len(model)), &c, &s)); err != nil {
		return nil, err
	}
	live.sessions.Add(1)
	return s, nil
}

// cpuProvider is the name of ONNX Runtime's own operators.
const cpuProvider = "CPUExecutionProvider"

// assignment returns the operators of a session by the execution provider (CPU, CUDA, TensorRT) that executes them,
// each as "TYPE NAME", in the order of the graph. The session must have recorded them (recordAssignmentKey).
func assignment(s *C.ip_session) (map[string][]string, error) {
	var text *C.char
	if err := goError(C.ip_session_nodes(s, &text)); err != nil {
		return nil, err
	}
	defer C.free(unsafe.Pointer(text))
	out := map[string][]string{}
	for line := range strings.Lines(C.GoString(text)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3)
		if len(f) == 3 {
			out[f[0]] = append(out[f[0]], strings.TrimSpace(f[1]+" "+f[2]))
		}
	}
	return out, nil
}

// Assignment returns which execution provider (CPU, CUDA, TensorRT) would execute which operators of a submodel, for
// reports. Those that the device's provider lacks are listed under the CPU's.
func (e *Engine) Assignment(m *engine.Submodel, d engine.Device, o engine.Options) (map[string][]string, error) {
	return e.assignmentOf(m.ONNX, d, o)
}

// assignmentOf returns, by provider, the operators of a model that the provider would execute. It makes a session
// that records the assignment and may fall back to the CPU: one that may not would fail instead of showing it. The
// batch size is 1, because operators that compute with shapes are then constants, and do not run.
func (e *Engine) assignmentOf(model []byte, d engine.Device, o engine.Options) (map[string][]string, error) {
	o.Session = maps.Clone(o.Session)
	if o.Session == nil {
		o.Session = map[string]string{}
	}
	o.Session[noFallbackKey], o.Session[recordAssignmentKey] = "0", "1"
	s, err := e.session(model, d, o, 1)
	if err != nil {
		return nil, err
	}
	defer freeSession(s)
	return assignment(s)
}

// freeSession frees a session, and counts it off the live ones.
func freeSession(s *C.ip_session) {
	C.ip_session_free(s)
	live.sessions.Add(-1)
}
