//go:build cgo && !noort

package ort

/*
#include <stdlib.h>
#include "ort.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"inferplan/engine"
)

// block is a loaded submodel.
//
// On a GPU there is a session per batch size. A convolution of the CUDA provider keeps the plan of only the last
// shape. A session that runs at changing batch sizes would make plans, and search for algorithms, at every change.
// The price is that the device holds the weights once per batch size in use.
type block struct {
	engine  *Engine
	sub     *engine.Submodel
	device  engine.Device
	options engine.Options

	mu            sync.Mutex
	session       *C.ip_session         // the session for any batch size; on a GPU, the one for firstBatch
	firstBatch    int                   // 0 until the first Bind
	static        bool                  // sessions run only at their batch size; session is for 1 until the first Bind
	otherSessions map[int]*C.ip_session // on a GPU, the sessions of the other batch sizes
	onnx          []byte                // the model, kept on a GPU to make more sessions
	bindings      map[*binding]struct{}
	stagedCores   map[int]*binding // the bindings behind staged ones, by batch size
	deviceInputs  map[inputKey]*tensor
	runLocks      map[int]*sync.Mutex // locks for bindings that share tensors, by batch size
	lastGraph     int                 // number of the CUDA graph made last
}

// sessionFor returns the session (ONNX Runtime's loaded model) for a batch size, and makes it when that size is first
// used. The caller holds b.mu. On the CPU one session serves all sizes; b.onnx is then nil. b.static says that
// sessions are for one batch size, because the model computes with its own shapes.
func (b *block) sessionFor(batch int) (*C.ip_session, error) {
	if b.onnx == nil || b.firstBatch == batch {
		return b.session, nil
	}

	// The first batch size takes the session that Load made, unless that is for batch size 1 only.
	if b.firstBatch == 0 && (!b.static || batch == 1) {
		b.firstBatch = batch
		return b.session, nil
	}
	if s := b.otherSessions[batch]; s != nil {
		return s, nil
	}

	// Every other batch size gets a session of its own.
	fixedBatch := 0 // any
	if b.static {
		fixedBatch = batch
	}
	s, err := b.engine.session(b.onnx, b.device, b.options, fixedBatch)
	if err != nil {
		return nil, err
	}
	if b.firstBatch == 0 { // the session for batch size 1 is not used yet
		freeSession(b.session)
		b.session, b.firstBatch = s, batch
		return s, nil
	}
	b.otherSessions[batch] = s
	return s, nil
}

// Load loads a submodel onto a device: it makes the session, and checks that its inputs and outputs are the declared
// ones. The block stays on the list of the engine, which closes it if the caller does not. static then says that each
// batch size needs a session of its own.
func (e *Engine) Load(ctx context.Context, m *engine.Submodel, d engine.Device, o engine.Options) (engine.Block, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	action := fmt.Sprintf("load %s blocks [%d,%d)", m.Model, m.From, m.To) // for errors
	if m.Folder != "" {
		entries := map[string]string{weightFolderKey: m.Folder}
		maps.Copy(entries, o.Session)
		o.Session = entries
	}

	// Make the session, and check its inputs and outputs.
	s, static, err := e.strictSession(m.ONNX, d, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", action, err)
	}
	if err := sameBoundary(s, m, static); err != nil {
		freeSession(s)
		return nil, fmt.Errorf("%s: %w", action, err)
	}

	// Keep the block, with the model's bytes if more batch sizes will need sessions of their own.
	b := &block{engine: e, sub: m, device: d, options: o, session: s, static: static, bindings: map[*binding]struct{}{}}
	if !d.IsCPU() || e.perBatch || static {
		b.onnx, b.otherSessions = m.ONNX, map[int]*C.ip_session{}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		freeSession(s)
		return nil, fmt.Errorf("%s: engine: %w", action, engine.ErrClosed)
	}
	e.blocks[b] = struct{}{}
	return b, nil
}

// sameBoundary returns an error if the inputs and outputs of the session differ from those that the submodel
// declares, in number, name, type or shape. A dimension that the session leaves free fits any. With static, the
// session is for batch size 1, and has 1 in place of the batch.
func sameBoundary(s *C.ip_session, m *engine.Submodel, static bool) error {
	for k, specs := range [][]engine.Spec{m.Inputs, m.Outputs} {
		sideName := [2]string{"input", "output"}[k]
		if n := int(C.ip_session_count(s, C.int(k))); n != len(specs) {
			return fmt.Errorf("%w: %d %ss in the model, %d declared", engine.ErrModel, n, sideName, len(specs))
		}
		for i, declared := range specs {
			var typ, rank C.int
			var dims [64]C.int64_t
			if err := goError(C.ip_session_info(s, C.int(k), C.int(i), &typ, &dims[0], 64, &rank)); err != nil {
				return fmt.Errorf("%w: %s %s: %v", engine.ErrModel, sideName, declared.Name, err)
			}
			actual := engine.Spec{Name: C.GoString(C.ip_session_name(s, C.int(k), C.int(i))), Type: engine.DType(typ)}
			isSame := actual.Name == declared.Name && actual.Type == declared.Type && int(rank) == len(declared.Shape)
			for j := range int(rank) {
				actual.Shape = append(actual.Shape, int64(dims[j]))
				isFixed := static && actual.Shape[j] == 1 && declared.Shape[j] == engine.BatchDim
				isSame = isSame && (actual.Shape[j] < 0 || actual.Shape[j] == declared.Shape[j] || isFixed)
			}
			if !isSame {
				return fmt.Errorf("%w: %s %d is %s in the model, declared is %s", engine.ErrModel, sideName, i, actual, declared)
			}
		}
	}
	return nil
}

func (b *block) Submodel() *engine.Submodel { return b.sub }
func (b *block) Device() engine.Device      { return b.device }

// Close frees the sessions of a loaded block, and the bindings (its tensors for a batch size) that are still open.
func (b *block) Close() error {
	b.mu.Lock()
	var openBindings []*binding
	for x := range b.bindings {
		openBindings = append(openBindings, x)
	}
	b.mu.Unlock()

	// Close the bindings without the lock, which they take themselves.
	var errs []error
	for _, x := range openBindings {
		errs = append(errs, x.Close())
	}

	// Then free the block's own tensors and its sessions.
	b.mu.Lock()
	for _, t := range b.deviceInputs {
		t.release()
	}
	b.deviceInputs = nil
	if b.session != nil {
		freeSession(b.session)
		for _, s := range b.otherSessions {
			freeSession(s)
		}
		b.session, b.otherSessions, b.onnx, b.stagedCores = nil, nil, nil, nil
	}
	b.mu.Unlock()
	b.engine.mu.Lock()
	delete(b.engine.blocks, b)
	b.engine.mu.Unlock()
	return errors.Join(errs...)
}

// binding is a block with its tensors.
type binding struct {
	block           *block
	session         *C.ip_session
	handle          *C.ip_binding // the binding in C; nil once closed
	batch           int
	inputs, outputs []engine.Tensor
	ownTensors      []*tensor        // tensors that Bind allocated
	values          []unsafe.Pointer // values over the caller's memory
	pins            runtime.Pinner
	mu              sync.Mutex // two Closes may run at once
}

// Bind allocates the tensors that the caller does not pass, and binds all of them. On a GPU, tensors in other memory
// may need a copy at each run (see needsStaging, needsInputCopies).
func (b *block) Bind(o engine.BindOptions) (engine.Binding, error) {
	if o.Batch > 0 && b.needsStaging(o) {
		return b.bindStaged(o)
	}
	if o.Batch > 0 && b.needsInputCopies(o) {
		return b.bindWithInputCopies(o)
	}
	x, err := b.bindDirect(o)
	if err != nil {
		return nil, err
	}
	return x, nil
}

// bindDirect makes a binding whose tensors the runtime itself reads and writes: those of the caller, and new ones where
// the caller passes none.
func (b *block) bindDirect(o engine.BindOptions) (*binding, error) {
	action := fmt.Sprintf("bind %s blocks [%d,%d) at batch %d", b.sub.Model, b.sub.From, b.sub.To, o.Batch)
	if o.Batch < 1 {
		return nil, fmt.Errorf("%s: %w: the batch must be at least 1", action, engine.ErrShape)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session == nil {
		return nil, fmt.Errorf("%s: block: %w", action, engine.ErrClosed)
	}
	x := &binding{block: b, batch: o.Batch}
	var err error
	if x.session, err = b.sessionFor(o.Batch); err != nil {
		return nil, fmt.Errorf("%s: %w", action, err)
	}

	// Collect the tensors, and bind them in C. With CUDA graphs, each binding captures one of its own, by number.
	var inputValues, outputValues []unsafe.Pointer
	if x.inputs, inputValues, err = x.collectTensors("input", b.sub.Inputs, o.Inputs, o); err == nil {
		x.outputs, outputValues, err = x.collectTensors("output", b.sub.Outputs, o.Outputs, o)
	}
	if err == nil {
		graph := 0
		if b.options.CUDAGraph {
			b.lastGraph++
			graph = b.lastGraph
		}
		err = withArray(inputValues, func(pi *unsafe.Pointer) error {
			return withArray(outputValues, func(po *unsafe.Pointer) error {
				return goError(C.ip_binding_new(x.session, pi, po, C.int(graph), &x.handle))
			})
		})
	}
	if err != nil {
		x.release()
		return nil, fmt.Errorf("%s: %w", action, err)
	}
	live.bindings.Add(1)
	b.bindings[x] = struct{}{}
	return x, nil
}

// withArray calls f with a copy of the pointers in C memory, or with nil if there are none. C code may not keep
// pointers to Go memory that holds pointers.
func withArray(p []unsafe.Pointer, f func(*unsafe.Pointer) error) error {
	if len(p) == 0 {
		return f(nil)
	}
	a := C.malloc(C.size_t(len(p)) * C.size_t(unsafe.Sizeof(p[0])))
	defer C.free(a)
	copy(unsafe.Slice((*unsafe.Pointer)(a), len(p)), p)
	return f((*unsafe.Pointer)(a))
}

// collectTensors returns the tensors of one side of a binding (input or output) and the runtime's values (OrtValue)
// over them, one per spec: the caller's tensors where they are given, and otherwise new ones on the device, or on the
// host if o.HostIO is set. A given tensor of another type, shape or batch size is an error.
func (x *binding) collectTensors(sideName string, specs []engine.Spec, givenTensors []engine.Tensor, o engine.BindOptions) ([]engine.Tensor, []unsafe.Pointer, error) {
	if givenTensors != nil && len(givenTensors) != len(specs) {
		return nil, nil, fmt.Errorf("%w: %d %ss given, the block has %d", engine.ErrShape, len(givenTensors), sideName, len(specs))
	}
	tensors := make([]engine.Tensor, len(specs))
	values := make([]unsafe.Pointer, len(specs))
	for i, spec := range specs {
		// Make a tensor where the caller gives none.
		if givenTensors == nil || givenTensors[i] == nil {
			var t *tensor
			var err error
			if x.block.device.IsCPU() || o.HostIO {
				t, err = newHost(spec, o.Batch)
			} else {
				t, err = newDevice(x.session, x.block.device, spec, o.Batch)
			}
			if err != nil {
				return nil, nil, fmt.Errorf("%s %s: %w", sideName, spec, err)
			}
			x.ownTensors = append(x.ownTensors, t)
			tensors[i], values[i] = t, t.value
			continue
		}
		t := givenTensors[i]

		// Check the given tensor. One of this engine has a value of the runtime already.
		if err := engine.CheckFits(t, spec, o.Batch); err != nil {
			return nil, nil, fmt.Errorf("%s %d: %w", sideName, i, err)
		}
		tensors[i] = t
		if ours, ok := t.(*tensor); ok {
			if ours.value == nil {
				return nil, nil, fmt.Errorf("%s %d: tensor %s: %w", sideName, i, spec.Name, engine.ErrClosed)
			}
			values[i] = ours.value
			continue
		}

		// Make a value of the runtime over other memory of the host, pinned against Go's garbage collector.
		data := t.Bytes()
		if data == nil {
			return nil, nil, fmt.Errorf("%s %d: %w: memory of another engine's device", sideName, i, engine.ErrShape)
		}
		if a := uintptr(min(spec.Type.Size(), 8)); uintptr(unsafe.Pointer(&data[0]))%a != 0 {
			return nil, nil, fmt.Errorf("%s %d: %w: memory for %s must be aligned to %d bytes", sideName, i, engine.ErrShape, spec.Type, a)
		}
		x.pins.Pin(&data[0])
		v, err := hostValue(data, spec, o.Batch)
		if err != nil {
			return nil, nil, fmt.Errorf("%s %d: %w", sideName, i, err)
		}
		x.values = append(x.values, v)
		values[i] = v
	}
	return tensors, values, nil
}

func (x *binding) Batch() int               { return x.batch }
func (x *binding) Inputs() []engine.Tensor  { return x.inputs }
func (x *binding) Outputs() []engine.Tensor { return x.outputs }

// runError returns an error of a run with the block and batch size that it was for.
func (x *binding) runError(err error) error {
	return fmt.Errorf("run %s blocks [%d,%d) at batch %d: %w", x.block.sub.Model, x.block.sub.From, x.block.sub.To, x.batch, err)
}

// Run executes the block once on the bound tensors, and returns when the outputs are complete.
func (x *binding) Run(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if x.handle == nil {
		return x.runError(engine.ErrClosed)
	}
	if m := C.ip_run_once(x.handle); m != nil {
		return x.runError(goError(m))
	}
	return nil
}

// RunN executes n times in a loop in C, so that Go's own work is not in the measured times.
func (x *binding) RunN(n int) (engine.Timing, error) {
	if x.handle == nil {
		return engine.Timing{}, x.runError(engine.ErrClosed)
	}
	if n < 1 {
		return engine.Timing{}, x.runError(fmt.Errorf("%d runs: expected at least 1", n))
	}
	var cpu, wall, host C.int64_t
	if m := C.ip_run(x.handle, C.int(n), &cpu, &wall, &host); m != nil {
		return engine.Timing{}, x.runError(goError(m))
	}
	return engine.Timing{Runs: n, CPU: time.Duration(cpu), Wall: time.Duration(wall), Host: time.Duration(host)}, nil
}

// Close frees the binding and the tensors that Bind allocated. A second call does nothing.
func (x *binding) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.handle == nil {
		return nil
	}
	C.ip_binding_free(x.handle)
	x.handle = nil
	live.bindings.Add(-1)
	x.release()
	x.block.mu.Lock()
	delete(x.block.bindings, x)
	x.block.mu.Unlock()
	return nil
}

// release frees the tensors that Bind allocated, and the runtime's values over the caller's memory.
func (x *binding) release() {
	for _, t := range x.ownTensors {
		t.release()
	}
	for _, v := range x.values {
		freeValue(v)
	}
	x.ownTensors, x.values = nil, nil
	x.pins.Unpin()
}
