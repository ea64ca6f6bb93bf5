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
type staged struct {
	core    *binding
	own     bool        // no other binding uses the core
	turn    *sync.Mutex // held while a binding that shares the tensors runs
	in, out []engine.Tensor
	closed  bool
}

// needsInputCopies reports whether some input lies in host memory while the device has other memory.
func (b *block) feeds(o engine.BindOptions) bool {
	if b.device.IsCPU() && !b.e.fed {
		return false
	}
	for i := range b.sub.Inputs {
		if b.fed(o, i) {
			return true
		}
	}
	return false
}

// needsInputCopy reports that for one input.
func (b *block) fed(o engine.BindOptions, i int) bool {
	if i >= len(o.Inputs) || o.Inputs[i] == nil {
		return o.HostIO
	}
	return o.Inputs[i].Bytes() != nil
}

// runLock returns the lock that a running binding of a batch size holds.
func (b *block) turn(batch int) *sync.Mutex {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.turns == nil {
		b.turns = map[int]*sync.Mutex{}
	}
	if b.turns[batch] == nil {
		b.turns[batch] = &sync.Mutex{}
	}
	return b.turns[batch]
}

// deviceInput returns the tensor on the device from which input i is read at a batch size.
func (b *block) feed(batch, i int) (engine.Tensor, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.s == nil {
		return nil, fmt.Errorf("block: %w", engine.ErrClosed)
	}
	key := feedKey{batch, i}
	if t := b.fedFrom[key]; t != nil {
		return t, nil
	}
	s, err := b.at(batch)
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
	if b.fedFrom == nil {
		b.fedFrom = map[feedKey]*tensor{}
	}
	b.fedFrom[key] = t
	return t, nil
}

type feedKey struct{ batch, input int }

// bindWithInputCopies binds a block whose inputs lie in host memory. Outputs are bound directly, because the
// runtime copies them at each run.
func (b *block) bindFed(o engine.BindOptions) (engine.Binding, error) {
	what := fmt.Sprintf("bind %s blocks [%d,%d) at batch %d", b.sub.Model, b.sub.From, b.sub.To, o.Batch)
	if o.Inputs != nil && len(o.Inputs) != len(b.sub.Inputs) {
		return nil, fmt.Errorf("%s: %w: %d inputs given, the block has %d", what, engine.ErrShape, len(o.Inputs), len(b.sub.Inputs))
	}

	// Give the runtime a tensor on the device for each fed input. The caller writes to host memory, which is
	// copied before a run.
	s := &staged{own: true, turn: b.turn(o.Batch)}
	inner := o
	inner.Inputs = make([]engine.Tensor, len(b.sub.Inputs))
	for i, spec := range b.sub.Inputs {
		var given engine.Tensor
		if o.Inputs != nil {
			given = o.Inputs[i]
		}
		if given != nil {
			if err := engine.Fits(given, spec, o.Batch); err != nil {
				return nil, fmt.Errorf("%s: input %d: %w", what, i, err)
			}
		}
		if !b.fed(o, i) {
			inner.Inputs[i] = given // if it is nil, bindDirect makes one on the device
			s.in = append(s.in, given)
			continue
		}
		if given == nil {
			h, err := engine.NewHostTensor(spec, o.Batch, nil)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", what, err)
			}
			given = h
		}
		t, err := b.feed(o.Batch, i)
		if err != nil {
			return nil, fmt.Errorf("%s: input %s: %w", what, spec, err)
		}
		inner.Inputs[i] = t
		s.in = append(s.in, given)
	}

	// Bind, and return the tensors that the runtime made for the inputs that the caller left out.
	var err error
	if s.core, err = b.bind(inner); err != nil {
		return nil, err
	}
	for i, t := range s.in {
		if t == nil {
			s.in[i] = s.core.in[i]
		}
	}
	s.out = s.core.out
	return s, nil
}

// needsStaging reports whether a binding needs the tensors of a captured graph.
func (b *block) stages(o engine.BindOptions) bool {
	if b.e.staged {
		return true
	}
	if !b.o.CUDAGraph || b.device.IsCPU() {
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

// bindStaged makes a binding that copies into and out of the tensors of a captured graph.
func (b *block) bindStaged(o engine.BindOptions) (engine.Binding, error) {
	// All bindings of a batch size share one to the runtime. The first makes it.
	b.mu.Lock()
	core := b.cores[o.Batch]
	b.mu.Unlock()
	if core == nil {
		x, err := b.bind(engine.BindOptions{Batch: o.Batch})
		if err != nil {
			return nil, err
		}
		core = x
		b.mu.Lock()
		if b.cores == nil {
			b.cores = map[int]*binding{}
		}
		b.cores[o.Batch] = core
		b.mu.Unlock()
	}

	// Take the caller's tensors, new ones of the host if that is asked for, or else the shared ones.
	s := &staged{core: core, turn: b.turn(o.Batch)}
	for _, side := range []struct {
		what  string
		given []engine.Tensor
		own   []engine.Tensor
		into  *[]engine.Tensor
	}{{"input", o.Inputs, core.in, &s.in}, {"output", o.Outputs, core.out, &s.out}} {
		if side.given != nil && len(side.given) != len(side.own) {
			return nil, fmt.Errorf("bind %s at batch %d: %w: %d %ss given, the block has %d", b.sub.Model, o.Batch, engine.ErrShape, len(side.given), side.what, len(side.own))
		}
		for i, t := range side.own {
			x := t
			if side.given != nil && side.given[i] != nil {
				x = side.given[i]
				if err := engine.Fits(x, t.Spec(), o.Batch); err != nil {
					return nil, fmt.Errorf("bind %s at batch %d: %s %d: %w", b.sub.Model, o.Batch, side.what, i, err)
				}
			} else if o.HostIO {
				h, err := engine.NewHostTensor(t.Spec(), o.Batch, nil)
				if err != nil {
					return nil, err
				}
				x = h
			}
			*side.into = append(*side.into, x)
		}
	}
	return s, nil
}

// copyTensor copies between a tensor of the core and one of the caller.
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

func (s *staged) Batch() int               { return s.core.batch }
func (s *staged) Inputs() []engine.Tensor  { return s.in }
func (s *staged) Outputs() []engine.Tensor { return s.out }

// Run copies in, runs and copies out.
func (s *staged) Run(ctx context.Context) error {
	if s.closed {
		return s.core.fail(engine.ErrClosed)
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	for i, t := range s.in {
		if err := copyTensor(s.core.in[i], t); err != nil {
			return s.core.fail(err)
		}
	}
	if err := s.core.Run(ctx); err != nil {
		return err
	}
	for i, t := range s.out {
		if err := copyTensor(t, s.core.out[i]); err != nil {
			return s.core.fail(err)
		}
	}
	return nil
}

// RunN times runs with their copies.
func (s *staged) RunN(n int) (engine.Timing, error) {
	if n < 1 {
		return engine.Timing{}, s.core.fail(fmt.Errorf("%d runs: expected at least 1", n))
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

// Close leaves a shared core to the block.
func (s *staged) Close() error {
	s.closed = true
	if s.own {
		return s.core.Close()
	}
	return nil
}

// Tensor returns a tensor in m, from an offset on. It becomes invalid when m is closed, so its bindings must be
// closed before.
func (m *Memory) Tensor(spec engine.Spec, batch int, off int64) (engine.Tensor, error) {
	size := spec.BytesAt(batch)
	if m.at == 0 {
		return nil, fmt.Errorf("tensor %s: GPU memory: %w", spec, engine.ErrClosed)
	}
	if off < 0 || size < 0 || size > int64(m.size)-off {
		return nil, fmt.Errorf("tensor %s: %w: %d bytes from %d on in %d bytes of GPU memory", spec, engine.ErrShape, size, off, m.size)
	}
	t := &tensor{spec: spec, batch: batch, size: int(size), device: m.index, view: true}
	var err error
	if t.value, err = deviceValue(m.index, m.at+C.uint64_t(off), t.size, spec, batch); err != nil {
		return nil, err
	}
	if err := goError(C.ip_value_data(t.value, &t.data)); err != nil {
		t.free()
		return nil, err
	}
	m.views = append(m.views, t)
	return t, nil
}

// closeViews frees the tensors in m.
func (m *Memory) closeViews() {
	for _, t := range m.views {
		t.free()
	}
	m.views = nil
}

// ShareMemory allocates memory of a GPU and returns a handle for other processes.
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
