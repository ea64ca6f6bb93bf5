//go:build cgo && !noort

package ort

// #include "ort.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"inferplan/engine"
)

// ONNX Runtime copies an input in host memory to the GPU when it is bound, not when it runs: a run would not see
// what is written there later. So on a GPU a binding to inputs in host memory reads tensors on the device, one set
// per batch size, and each of its runs first copies the inputs there.
//
// A captured CUDA graph reads and writes the addresses that it was captured with, and the runtime copies nothing
// when it replays a graph. So a block with graphs that is bound to other memory (of the host, of another process)
// has one core binding per batch size with its own tensors, whose graph is captured once. Callers get staged
// bindings, which copy into and out of the core's tensors.

// stagedBinding is a binding that copies its inputs, and if it has a captured graph its outputs, at each run.
type stagedBinding struct {
	core            *binding
	ownsCore        bool        // no other binding uses the core
	runLock         *sync.Mutex // held while a binding that shares the tensors runs
	inputs, outputs []engine.Tensor
	isClosed        bool
}

// needsInputCopies reports whether some input lies in host memory while the device has other memory. fed is set by
// tests, to copy on a CPU as well.
func (b *block) needsInputCopies(o engine.BindOptions) bool {
	if b.device.IsCPU() && !b.engine.fed {
		return false
	}
	for i := range b.sub.Inputs {
		if b.needsInputCopy(o, i) {
			return true
		}
	}
	return false
}

// needsInputCopy reports whether input i lies in host memory: the given tensor does, or the engine is to allocate it
// there (HostIO).
func (b *block) needsInputCopy(o engine.BindOptions, i int) bool {
	if i >= len(o.Inputs) || o.Inputs[i] == nil {
		return o.HostIO
	}
	return o.Inputs[i].Bytes() != nil
}

// runLock returns the lock of a batch size. A running binding holds it, because all bindings of that size to host
// memory share their tensors on the device.
func (b *block) runLock(batch int) *sync.Mutex {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.runLocks == nil {
		b.runLocks = map[int]*sync.Mutex{}
	}
	if b.runLocks[batch] == nil {
		b.runLocks[batch] = &sync.Mutex{}
	}
	return b.runLocks[batch]
}

// deviceInput returns the tensor on the device from which the block reads input i at a batch size, where the caller's
// tensor lies in host memory and is copied before each run. The first call makes it, and all bindings of that size
// share it, under runLock. It is freed with the block.
func (b *block) deviceInput(batch, i int) (engine.Tensor, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session == nil {
		return nil, fmt.Errorf("block: %w", engine.ErrClosed)
	}
	key := inputKey{batch, i}
	if t := b.deviceInputs[key]; t != nil {
		return t, nil
	}

	// Make it, on the device. In tests the device may be a CPU, whose memory is the host's.
	s, err := b.sessionFor(batch)
	if err != nil {
		return nil, err
	}
	var t *tensor
	if b.device.IsCPU() {
		t, err = newHost(b.sub.Inputs[i], batch)
	} else {
		t, err = newDevice(s, b.device, b.sub.Inputs[i], batch)
	}
	if err != nil {
		return nil, err
	}
	if b.deviceInputs == nil {
		b.deviceInputs = map[inputKey]*tensor{}
	}
	b.deviceInputs[key] = t
	return t, nil
}

// inputKey names an input at a batch size.
type inputKey struct{ batch, input int }

// bindWithInputCopies binds a block of which some inputs lie in host memory while it runs on a GPU. Each run first
// copies these to tensors on the device. Outputs are bound directly, because the runtime copies them at each run.
func (b *block) bindWithInputCopies(o engine.BindOptions) (engine.Binding, error) {
	action := fmt.Sprintf("bind %s blocks [%d,%d) at batch %d", b.sub.Model, b.sub.From, b.sub.To, o.Batch)
	if o.Inputs != nil && len(o.Inputs) != len(b.sub.Inputs) {
		return nil, fmt.Errorf("%s: %w: %d inputs given, the block has %d", action, engine.ErrShape, len(o.Inputs), len(b.sub.Inputs))
	}

	// Give the runtime a tensor on the device for each fed input. The caller writes to host memory, which is
	// copied before a run.
	s := &stagedBinding{ownsCore: true, runLock: b.runLock(o.Batch)}
	coreOptions := o
	coreOptions.Inputs = make([]engine.Tensor, len(b.sub.Inputs))
	for i, spec := range b.sub.Inputs {
		var givenTensor engine.Tensor
		if o.Inputs != nil {
			givenTensor = o.Inputs[i]
		}
		if givenTensor != nil {
			if err := engine.CheckFits(givenTensor, spec, o.Batch); err != nil {
				return nil, fmt.Errorf("%s: input %d: %w", action, i, err)
			}
		}
		if !b.needsInputCopy(o, i) {
			coreOptions.Inputs[i] = givenTensor // if it is nil, bindDirect makes one on the device
			s.inputs = append(s.inputs, givenTensor)
			continue
		}
		if givenTensor == nil {
			h, err := engine.NewHostTensor(spec, o.Batch, nil)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", action, err)
			}
			givenTensor = h
		}
		t, err := b.deviceInput(o.Batch, i)
		if err != nil {
			return nil, fmt.Errorf("%s: input %s: %w", action, spec, err)
		}
		coreOptions.Inputs[i] = t
		s.inputs = append(s.inputs, givenTensor)
	}

	// Bind, and return the tensors that the runtime made for the inputs that the caller left out.
	var err error
	if s.core, err = b.bindDirect(coreOptions); err != nil {
		return nil, err
	}
	for i, t := range s.inputs {
		if t == nil {
			s.inputs[i] = s.core.inputs[i]
		}
	}
	s.outputs = s.core.outputs
	return s, nil
}

// needsStaging reports whether a binding must copy into and out of the tensors of a captured CUDA graph: the block
// has graphs, and a tensor is host memory, another process's memory or another engine's. staged is set by tests, to
// do so on a CPU as well.
func (b *block) needsStaging(o engine.BindOptions) bool {
	if b.engine.staged {
		return true
	}
	if !b.options.CUDAGraph || b.device.IsCPU() {
		return false
	}
	foreign := func(list []engine.Tensor) bool {
		for _, t := range list {
			if x, ours := t.(*tensor); t != nil && (!ours || x.device < 0 || x.view) {
				return true
			}
		}
		return false
	}
	return o.HostIO || foreign(o.Inputs) || foreign(o.Outputs)
}

// bindStaged makes a staged binding: its runs copy the caller's inputs into the tensors of a captured CUDA graph,
// replay the graph, and copy the outputs out. All staged bindings of a batch size share those tensors (the core).
func (b *block) bindStaged(o engine.BindOptions) (engine.Binding, error) {
	// All bindings of a batch size share one to the runtime. The first makes it.
	b.mu.Lock()
	core := b.stagedCores[o.Batch]
	b.mu.Unlock()
	if core == nil {
		x, err := b.bindDirect(engine.BindOptions{Batch: o.Batch})
		if err != nil {
			return nil, err
		}
		core = x
		b.mu.Lock()
		if b.stagedCores == nil {
			b.stagedCores = map[int]*binding{}
		}
		b.stagedCores[o.Batch] = core
		b.mu.Unlock()
	}

	// Take the caller's tensors, new ones of the host if that is asked for, or else the shared ones.
	s := &stagedBinding{core: core, runLock: b.runLock(o.Batch)}
	for _, side := range []struct {
		what   string          // for errors
		given  []engine.Tensor // the caller's
		shared []engine.Tensor // the core's
		result *[]engine.Tensor
	}{{"input", o.Inputs, core.inputs, &s.inputs}, {"output", o.Outputs, core.outputs, &s.outputs}} {
		if side.given != nil && len(side.given) != len(side.shared) {
			return nil, fmt.Errorf("bind %s at batch %d: %w: %d %ss given, the block has %d", b.sub.Model, o.Batch, engine.ErrShape, len(side.given), side.what, len(side.shared))
		}
		for i, t := range side.shared {
			x := t
			if side.given != nil && side.given[i] != nil {
				x = side.given[i]
				if err := engine.CheckFits(x, t.Spec(), o.Batch); err != nil {
					return nil, fmt.Errorf("bind %s at batch %d: %s %d: %w", b.sub.Model, o.Batch, side.what, i, err)
				}
			} else if o.HostIO {
				h, err := engine.NewHostTensor(t.Spec(), o.Batch, nil)
				if err != nil {
					return nil, err
				}
				x = h
			}
			*side.result = append(*side.result, x)
		}
	}
	return s, nil
}

// copyTensor copies between a tensor of the core (the binding to a captured graph) and one of the caller, whether
// they lie on the host or on the GPU.
func copyTensor(dst, src engine.Tensor) error {
	if dst == src {
		return nil
	}
	if b := src.Bytes(); b != nil {
		return dst.Write(b)
	}
	if b := dst.Bytes(); b != nil {
		return src.Read(b)
	}
	d, ok1 := dst.(*tensor)
	s, ok2 := src.(*tensor)
	if !ok1 || !ok2 || d.size != s.size {
		return fmt.Errorf("tensor %s: %w: memory of another engine's device", src.Spec().Name, engine.ErrShape)
	}
	return copyBytes(d.device, d.data, s.data, d.size, onDevice)
}

func (s *stagedBinding) Batch() int               { return s.core.batch }
func (s *stagedBinding) Inputs() []engine.Tensor  { return s.inputs }
func (s *stagedBinding) Outputs() []engine.Tensor { return s.outputs }

// Run copies the caller's inputs to the tensors of the core (the binding that ONNX Runtime knows), runs it, and
// copies its outputs to the caller's. Bindings that share these tensors run one after the other.
func (s *stagedBinding) Run(ctx context.Context) error {
	if s.isClosed {
		return s.core.runError(engine.ErrClosed)
	}
	s.runLock.Lock()
	defer s.runLock.Unlock()
	for i, t := range s.inputs {
		if err := copyTensor(s.core.inputs[i], t); err != nil {
			return s.core.runError(err)
		}
	}
	if err := s.core.Run(ctx); err != nil {
		return err
	}
	for i, t := range s.outputs {
		if err := copyTensor(t, s.core.outputs[i]); err != nil {
			return s.core.runError(err)
		}
	}
	return nil
}

// RunN times n runs with their copies, by the wall clock only.
func (s *stagedBinding) RunN(n int) (engine.Timing, error) {
	if n < 1 {
		return engine.Timing{}, s.core.runError(fmt.Errorf("%d runs: expected at least 1", n))
	}
	sum := engine.Timing{Runs: n}
	begin := time.Now()
	for range n {
		if err := s.Run(context.Background()); err != nil {
			return engine.Timing{}, err
		}
	}
	sum.Wall = time.Since(begin)
	return sum, nil
}

// Close ends the use of this binding. A core that other bindings share stays open until the block is closed.
func (s *stagedBinding) Close() error {
	s.isClosed = true
	if s.ownsCore {
		return s.core.Close()
	}
	return nil
}

// Tensor returns a tensor in m, from an offset on. It becomes invalid when m is closed, so its bindings must be
// closed before.
func (m *Memory) Tensor(spec engine.Spec, batch int, offset int64) (engine.Tensor, error) {
	size := spec.BytesAt(batch)
	if m.at == 0 {
		return nil, fmt.Errorf("tensor %s: GPU memory: %w", spec, engine.ErrClosed)
	}
	if offset < 0 || size < 0 || size > int64(m.size)-offset {
		return nil, fmt.Errorf("tensor %s: %w: %d bytes from %d on in %d bytes of GPU memory", spec, engine.ErrShape, size, offset, m.size)
	}
	t := &tensor{spec: spec, batch: batch, size: int(size), device: m.index, view: true}
	var err error
	if t.value, err = deviceValue(m.index, m.at+C.uint64_t(offset), t.size, spec, batch); err != nil {
		return nil, err
	}
	if err := goError(C.ip_value_data(t.value, &t.data)); err != nil {
		t.release()
		return nil, err
	}
	m.views = append(m.views, t)
	return t, nil
}

// closeViews frees the tensors that Tensor has made in this memory.
func (m *Memory) closeViews() {
	for _, t := range m.views {
		t.release()
	}
	m.views = nil
}

// ShareMemory allocates size bytes on GPU number index, and returns them with a handle by which other processes can
// map them.
func ShareMemory(index int, size int64) (*Memory, Handle, error) {
	m, err := Allocate(index, int(size))
	if err != nil {
		return nil, Handle{}, err
	}
	h, err := m.Export()
	if err != nil {
		return nil, h, errors.Join(err, m.Close())
	}
	return m, h, nil
}
