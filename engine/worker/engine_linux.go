package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"inferplan/engine"
)

// Engine is an engine.Engine that executes in a worker, one call at a time. If a context ends during its call, the
// engine can only be closed.
type Engine struct {
	p      *Process
	device engine.Device
	last   atomic.Uint32 // the number given last to a block or binding

	mu     sync.Mutex
	broken error
}

// StartEngine starts a worker on a device, with the engine that c.Hello names. The
// context bounds the start only; Close ends the process.
func StartEngine(ctx context.Context, d engine.Device, c Config) (*Engine, error) {
	c.Hello.Device = Device{Kind: d.ID, Share: d.Share, CPUs: d.CPUs}
	p, err := Start(ctx, c)
	if err != nil {
		return nil, err
	}
	return &Engine{p: p, device: d}, nil
}

// runProbe has the worker do one probe. data goes to the worker, or is filled by it if the probe reads.
func (e *Engine) step(ctx context.Context, q Probe, data []byte) (t engine.Timing, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := cmp.Or(e.broken, ctx.Err()); err != nil {
		return t, err
	}
	var with []*Segment
	if q.Size = int64(len(data)); q.Size > 0 {
		seg, err := NewSegment(0, q.Size)
		if err != nil {
			return t, err
		}
		defer seg.Close()
		with = append(with, seg)
		if q.Do != "read" {
			copy(seg.Data, data)
		}
	}
	err = call(ctx, e.p, TypeProbe, q, TypeProbe, &t, with...)
	if err == nil && q.Do == "read" && with != nil {
		copy(data, with[0].Data)
	}
	if answer := (*RemoteError)(nil); err != nil && !errors.As(err, &answer) {
		e.broken = err
	}
	return t, err
}

// releaseRemote sends a probe that closes something. It ignores errors that say that this was closed before, or
// ended with the process.
func (e *Engine) drop(q Probe) error {
	_, err := e.step(context.Background(), q, nil)
	if answer := (*RemoteError)(nil); errors.As(err, &answer) && !errors.Is(err, engine.ErrClosed) {
		return err
	}
	return nil
}

// Info names the engine in the worker.
func (e *Engine) Info() engine.Info {
	return engine.Info{Name: e.p.Welcome.Engine, Version: e.p.Welcome.Version}
}

// Devices lists the worker's device.
func (e *Engine) Devices() ([]engine.Device, error) { return []engine.Device{e.device}, nil }

// Load sends the submodel over and loads it there, on the worker's device.
func (e *Engine) Load(ctx context.Context, m *engine.Submodel, d engine.Device, o engine.Options) (engine.Block, error) {
	b := &workerBlock{e, e.last.Add(1), m, d}
	q := Probe{Do: "load", Block: b.id, Submodel: *m, Options: o}
	q.Submodel.ONNX = nil
	if d.ID != e.device.ID {
		return nil, fmt.Errorf("load onto %s: %w: the worker's is %s", d.ID, engine.ErrNoDevice, e.device.ID)
	}
	if _, err := e.step(ctx, q, m.ONNX); err != nil {
		return nil, err
	}
	return b, nil
}

// Close ends the process. It returns an error if the process ended by itself with one.
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if errors.Is(e.broken, engine.ErrClosed) {
		return nil
	}
	e.broken = fmt.Errorf("engine in another process: %w", engine.ErrClosed)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // time for the worker to free its memory
	defer cancel()
	if err := e.p.Shutdown(ctx); err != nil {
		return fmt.Errorf("worker %d: %w", e.p.PID(), err)
	}
	return nil
}

type workerBlock struct {
	e      *Engine
	id     uint32
	model  *engine.Submodel
	device engine.Device
}

func (b *workerBlock) Submodel() *engine.Submodel { return b.model }
func (b *workerBlock) Device() engine.Device      { return b.device }
func (b *workerBlock) Close() error               { return b.e.drop(Probe{Do: "unload", Block: b.id}) }

func (b *workerBlock) Bind(o engine.BindOptions) (engine.Binding, error) {
	x := &workerBinding{e: b.e, id: b.e.last.Add(1), batch: o.Batch}
	q := Probe{Do: "bind", Block: b.id, Binding: x.id, Batch: o.Batch, HostIO: o.HostIO}
	var err error
	if x.inputs, q.Inputs, err = x.side(false, b.model.Inputs, o.Inputs); err != nil {
		return nil, err
	}
	if x.outputs, q.Outputs, err = x.side(true, b.model.Outputs, o.Outputs); err != nil {
		return nil, err
	}
	if _, err := b.e.step(context.Background(), q, nil); err != nil {
		return nil, err
	}
	return x, nil
}

type workerBinding struct {
	e               *Engine
	id              uint32
	batch           int
	inputs, outputs []engine.Tensor
}

// listTensors returns the inputs or outputs of a binding and their references. Tensors in boundTensors, if not
// nil, take the place of new ones.
func (x *workerBinding) side(output bool, specs []engine.Spec, given []engine.Tensor) (list []engine.Tensor, refs []TensorRef, err error) {
	for i, s := range specs {
		list = append(list, &workerTensor{x.e, TensorRef{x.id, output, i}, s, x.batch})
	}
	refs = make([]TensorRef, len(given))
	for i, g := range given {
		if g == nil {
			continue
		}
		t, ok := g.(*workerTensor)
		if !ok || t.e != x.e {
			return nil, nil, fmt.Errorf("tensor %s: %w: it lies in another process than the block", g.Spec().Name, engine.ErrShape)
		}
		refs[i] = t.ref
		if i < len(list) { // the engine refuses more
			list[i] = t
		}
	}
	return list, refs, nil
}

func (x *workerBinding) Batch() int               { return x.batch }
func (x *workerBinding) Inputs() []engine.Tensor  { return x.inputs }
func (x *workerBinding) Outputs() []engine.Tensor { return x.outputs }
func (x *workerBinding) Close() error             { return x.e.drop(Probe{Do: "unbind", Binding: x.id}) }

func (x *workerBinding) Run(ctx context.Context) error {
	_, err := x.e.step(ctx, Probe{Do: "run", Binding: x.id, Runs: 1}, nil)
	return err
}

func (x *workerBinding) RunN(n int) (engine.Timing, error) {
	return x.e.step(context.Background(), Probe{Do: "run", Binding: x.id, Runs: n}, nil)
}

// workerTensor is a tensor in the worker's memory. Bytes returns nil, as for a tensor on a GPU.
type workerTensor struct {
	e     *Engine
	ref   TensorRef
	spec  engine.Spec
	batch int
}

func (t *workerTensor) Spec() engine.Spec      { return t.spec }
func (t *workerTensor) Batch() int             { return t.batch }
func (t *workerTensor) Bytes() []byte          { return nil }
func (t *workerTensor) Write(src []byte) error { return t.copy("write", src) }
func (t *workerTensor) Read(dst []byte) error  { return t.copy("read", dst) }

func (t *workerTensor) copy(do string, data []byte) error {
	_, err := t.e.step(context.Background(), Probe{Do: do, Tensor: t.ref}, data)
	return err
}
