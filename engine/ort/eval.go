//go:build cgo && !noort

package ort

/*
#include <stdlib.h>
#include <string.h>
#include "ort.h"
*/
import "C"

import (
	"context"
	"fmt"
	"unsafe"

	"inferplan/engine"
	"inferplan/engine/graph"
)

// smallValue is the size, in bytes, up to which a probe reports the values of a tensor.
const smallValue = 4096

// Output is a tensor of Eval's result.
type Output struct {
	Type  engine.DType
	Shape []int64
	Data  []byte
}

// Eval runs a model once on the CPU and returns the named outputs, whose shapes need not be known. Outputs of more
// than limit bytes have no data. A negative limit means no limit.
func (e *Engine) Eval(ctx context.Context, model []byte, inputs []engine.Tensor, wanted []string, o engine.Options, limit int) (map[string]Output, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s, err := e.session(model, engine.CPUDevice(0), o, 0)
	if err != nil {
		return nil, err
	}
	defer freeSession(s)
	return runSession(s, inputs, wanted, limit)
}

// runSession runs a session once with the given inputs, which it finds by their names, and returns the wanted
// outputs by name. Outputs of more than limit bytes have no data, unless limit is negative.
func runSession(s *C.ip_session, inputs []engine.Tensor, wanted []string, limit int) (map[string]Output, error) {
	byName := map[string]engine.Tensor{}
	for _, t := range inputs {
		byName[t.Spec().Name] = t
	}

	// Copy the inputs into C memory, in the order of the session.
	var values []unsafe.Pointer
	defer func() {
		for _, v := range values {
			freeValue(v)
		}
	}()
	for i := range int(C.ip_session_count(s, 0)) {
		name := C.GoString(C.ip_session_name(s, 0, C.int(i)))
		t := byName[name]
		if t == nil {
			return nil, fmt.Errorf("%w: no value for input %q", engine.ErrShape, name)
		}
		// The values are in C memory, because the run keeps pointers to them.
		copied, err := newHost(t.Spec(), t.Batch())
		if err != nil {
			return nil, err
		}
		defer C.free(copied.data)
		values = append(values, copied.value)
		if err := t.Read(copied.bytes); err != nil {
			return nil, err
		}
	}

	// Run, with the names of the outputs in C memory.
	var texts cStrings
	defer texts.free()
	n := len(wanted)
	size := C.size_t(max(n, 1)) * C.size_t(unsafe.Sizeof(uintptr(0)))
	names, outs := C.malloc(size), C.calloc(1, size)
	defer C.free(names)
	defer C.free(outs)
	for i, w := range wanted {
		unsafe.Slice((**C.char)(names), n)[i] = texts.add(w)
	}
	results := unsafe.Slice((*unsafe.Pointer)(outs), n)
	err := withArray(values, func(in *unsafe.Pointer) error {
		return goError(C.ip_eval(s, in, C.int(n), (**C.char)(names), (*unsafe.Pointer)(outs)))
	})
	defer func() {
		for _, v := range results {
			C.ip_value_free(v)
		}
	}()
	if err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}

	// Copy the outputs.
	outputs := map[string]Output{}
	for i, w := range wanted {
		var typ, rank C.int
		var dims [64]C.int64_t
		var bytes C.size_t
		if err := goError(C.ip_value_info(results[i], &typ, &dims[0], 64, &rank, &bytes)); err != nil {
			return nil, fmt.Errorf("output %s: %w", w, err)
		}
		out := Output{Type: engine.DType(typ), Shape: make([]int64, int(rank))}
		for k := range out.Shape {
			out.Shape[k] = int64(dims[k])
		}
		if limit < 0 || int(bytes) <= limit {
			out.Data = make([]byte, int(bytes))
			if bytes > 0 {
				var p unsafe.Pointer
				if err := goError(C.ip_value_data(results[i], &p)); err != nil {
					return nil, fmt.Errorf("output %s: %w", w, err)
				}
				copy(out.Data, unsafe.Slice((*byte)(p), int(bytes)))
			}
		}
		outputs[w] = out
	}
	return outputs, nil
}

// Probe runs a model on the CPU with inputs of zeros, once per run at its batch size, and returns what each run made
// of the named tensors: type, shape and, if it is small, the values. It is a graph.Probe, by which package graph
// learns shapes.
func (e *Engine) Probe(ctx context.Context, model []byte, inputs []engine.Spec, runs ...graph.ProbeRun) ([]map[string]graph.Value, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s, err := e.session(model, engine.CPUDevice(0), engine.Options{Optimization: "basic"}, 0)
	if err != nil {
		return nil, err
	}
	defer freeSession(s)

	// Run it once for each batch size, on zeros.
	var results []map[string]graph.Value
	for _, r := range runs {
		if err := ctx.Err(); err != nil {
			return results, err
		}
		zeroInputs := make([]engine.Tensor, len(inputs))
		for i, spec := range inputs {
			if zeroInputs[i], err = engine.NewHostTensor(spec, r.Batch, nil); err != nil {
				return results, err
			}
		}
		outputs, err := runSession(s, zeroInputs, r.Names, smallValue)
		if err != nil {
			return results, err
		}
		values := make(map[string]graph.Value, len(outputs))
		for name, o := range outputs {
			values[name] = graph.Value(o)
		}
		results = append(results, values)
	}
	return results, nil
}
