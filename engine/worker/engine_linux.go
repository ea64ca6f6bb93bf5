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
	lastID atomic.Uint32 // the number given last to a block or binding

	mu     sync.Mutex
	broken error // why no more calls are possible
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

// runProbe has the worker do one step of measuring. data, a model or a tensor, goes to the worker in shared memory,
// or is filled by it if the probe reads. A broken connection ends the engine; an error that the worker reports does
// not. It is called by the engine, blocks and tensors that stand in this process for those in the worker.
func (e *Engine) runProbe(ctx context.Context, probe Probe, data []byte) (t engine.Timing, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := cmp.Or(e.broken, ctx.Err()); err != nil {
		return t, err
	}

	// Put the data, or room for them, into shared memory.
	var segments []*Segment
	if probe.Size = int64(len(data)); probe.Size > 0 {
		seg, err := NewSegment(0, probe.Size)
		if err != nil {
			return t, err
		}
		defer seg.Close()
		segments = append(segments, seg)
		if probe.Operation != "read" {
			copy(seg.Data, data)
		}
	}

	// Have the worker do it. Only an error of the connection ends the engine.
	err = call(ctx, e.p, TypeProbe, probe, TypeProbe, &t, segments...)
	if err == nil && probe.Operation == "read" && segments != nil {
		copy(data, segments[0].Data)
	}
	if answer := (*RemoteError)(nil); err != nil && !errors.As(err, &answer) {
		e.broken = err
	}
	return t, err
}

// releaseRemote has the worker close a block or binding (q says which). It ignores errors that say that this was
// closed before, or ended with the process.
func (e *Engine) releaseRemote(q Probe) error {
	_, err := e.runProbe(context.Background(), q, nil)
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

// Load sends the submodel to the worker and loads it there, on the worker's device, which d must be.
func (e *Engine) Load(ctx context.Context, m *engine.Submodel, d engine.Device, o engine.Options) (engine.Block, error) {
	b := &workerBlock{e, e.lastID.Add(1), m, d}
	q := Probe{Operation: "load", Block: b.id, Submodel: *m, Options: o}
	q.Submodel.ONNX = nil
	if d.ID != e.device.ID {
		return nil, fmt.Errorf("load onto %s: %w: the worker's is %s", d.ID, engine.ErrNoDevice, e.device.ID)
	}
	if _, err := e.runProbe(ctx, q, m.ONNX); err != nil {
		return nil, err
	}
	return b, nil
}

// Close ends the worker process, for which it waits up to ten seconds. It returns an error if the process ended with
// one. A second call does nothing.
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

// workerBlock is a block that the worker has loaded, under a number.
type workerBlock struct {
	engine *Engine
	id     uint32
	model  *engine.Submodel
	device engine.Device
}

func (b *workerBlock) Submodel() *engine.Submodel { return b.model }
func (b *workerBlock) Device() engine.Device      { return b.device }
func (b *workerBlock) Close() error {
	return b.engine.releaseRemote(Probe{Operation: "unload", Block: b.id})
}

// Bind has the worker bind the block. Given tensors must be those of other bindings of the same worker.
func (b *workerBlock) Bind(o engine.BindOptions) (engine.Binding, error) {
	x := &workerBinding{engine: b.engine, id: b.engine.lastID.Add(1), batch: o.Batch}
	q := Probe{Operation: "bind", Block: b.id, Binding: x.id, Batch: o.Batch, HostIO: o.HostIO}
	var err error
	if x.inputs, q.Inputs, err = x.listTensors(false, b.model.Inputs, o.Inputs); err != nil {
		return nil, err
	}
	if x.outputs, q.Outputs, err = x.listTensors(true, b.model.Outputs, o.Outputs); err != nil {
		return nil, err
	}
	if _, err := b.engine.runProbe(context.Background(), q, nil); err != nil {
		return nil, err
	}
	return x, nil
}

// workerBinding is a binding in the worker, under a number.
type workerBinding struct {
	engine          *Engine
	id              uint32
	batch           int
	inputs, outputs []engine.Tensor
}

// listTensors returns the inputs or outputs of a binding, and the references that name them in the bind request.
// Tensors in boundTensors, if not nil, are those of other bindings and take the place of new ones. output says which
// of the two.
func (x *workerBinding) listTensors(output bool, specs []engine.Spec, boundTensors []engine.Tensor) (list []engine.Tensor, refs []TensorRef, err error) {
	for i, s := range specs {
		list = append(list, &workerTensor{x.engine, TensorRef{x.id, output, i}, s, x.batch})
	}
	refs = make([]TensorRef, len(boundTensors))
	for i, g := range boundTensors {
		if g == nil {
			continue
		}
		t, ok := g.(*workerTensor)
		if !ok || t.engine != x.engine {
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
func (x *workerBinding) Close() error {
	return x.engine.releaseRemote(Probe{Operation: "unbind", Binding: x.id})
}

func (x *workerBinding) Run(ctx context.Context) error {
	_, err := x.engine.runProbe(ctx, Probe{Operation: "run", Binding: x.id, RunCount: 1}, nil)
	return err
}

func (x *workerBinding) RunN(n int) (engine.Timing, error) {
	return x.engine.runProbe(context.Background(), Probe{Operation: "run", Binding: x.id, RunCount: n}, nil)
}

// workerTensor is a tensor in the worker's memory. Bytes returns nil, as for a tensor on a GPU.
type workerTensor struct {
	engine *Engine
	ref    TensorRef
	spec   engine.Spec
	batch  int
}

func (t *workerTensor) Spec() engine.Spec      { return t.spec }
func (t *workerTensor) Batch() int             { return t.batch }
func (t *workerTensor) Bytes() []byte          { return nil }
func (t *workerTensor) Write(src []byte) error { return t.copyData("write", src) }
func (t *workerTensor) Read(dst []byte) error  { return t.copyData("read", dst) }

func (t *workerTensor) copyData(operation string, data []byte) error {
	_, err := t.engine.runProbe(context.Background(), Probe{Operation: operation, Tensor: t.ref}, data)
	return err
}
