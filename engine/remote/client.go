package remote

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"sync"

	"inferplan/engine"
)

// ErrGone: the process has ended, was killed, or the connection broke.
var ErrGone = errors.New("the engine's process is gone")

// Engine is the caller's side. Calls from several goroutines are made one after
// the other.
type Engine struct {
	conn io.ReadWriteCloser
	info engine.Info
	stop func() error // waits for the process
	pid  int

	mu     sync.Mutex
	in     *gob.Decoder
	out    *gob.Encoder
	broken error
}

var _ engine.Engine = (*Engine)(nil)

// Connect is an engine on a connection whose other end is with Serve.
func Connect(ctx context.Context, conn io.ReadWriteCloser) (*Engine, error) {
	e := &Engine{conn: conn, in: gob.NewDecoder(conn), out: gob.NewEncoder(conn)}
	r, err := e.call(ctx, &request{Op: opInfo})
	if err != nil {
		conn.Close()
		return nil, err
	}
	e.info = r.Info
	return e, nil
}

// call makes one call. Where the context ends first the connection is given
// up: the process ends with it.
func (e *Engine) call(ctx context.Context, q *request) (*response, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.broken != nil {
		return nil, e.broken
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { e.conn.Close() })()
	var r response
	err := e.out.Encode(q)
	if err == nil {
		err = e.in.Decode(&r)
	}
	if err != nil {
		e.broken = fmt.Errorf("%w (%s: %w)", ErrGone, q.Op, err)
		if ctx.Err() != nil {
			e.broken = ctx.Err()
		}
		e.conn.Close()
		return nil, e.broken
	}
	return &r, r.err()
}

// Info names the engine in the process.
func (e *Engine) Info() engine.Info { return e.info }

// Devices lists what the engine in the process can execute on.
func (e *Engine) Devices() ([]engine.Device, error) {
	r, err := e.call(context.Background(), &request{Op: opDevices})
	if err != nil {
		return nil, err
	}
	return r.Devices, nil
}

// Load sends the submodel over and loads it there.
func (e *Engine) Load(ctx context.Context, m *engine.Submodel, d engine.Device, o engine.Options) (engine.Block, error) {
	r, err := e.call(ctx, &request{Op: opLoad, Model: m, Device: d, Options: o})
	if err != nil {
		return nil, err
	}
	return &block{e: e, id: r.ID, model: m, device: d}, nil
}

// Close ends the process and frees what is loaded there.
func (e *Engine) Close() error {
	e.mu.Lock()
	first := !errors.Is(e.broken, engine.ErrClosed)
	gone := e.broken
	e.broken = fmt.Errorf("engine in another process: %w", engine.ErrClosed)
	e.mu.Unlock()
	if !first {
		return nil
	}
	err := e.conn.Close()
	if gone != nil {
		err = nil // closed when it broke
	}
	if e.stop != nil {
		err = errors.Join(err, e.stop())
	}
	return err
}

type block struct {
	e      *Engine
	id     uint64
	model  *engine.Submodel
	device engine.Device
}

func (b *block) Submodel() *engine.Submodel { return b.model }
func (b *block) Device() engine.Device      { return b.device }

func (b *block) Bind(o engine.BindOptions) (engine.Binding, error) {
	q := &request{Op: opBind, ID: b.id, Batch: o.Batch, HostIO: o.HostIO}
	var err error
	if q.Inputs, err = b.e.names(o.Inputs); err != nil {
		return nil, err
	}
	if q.Outputs, err = b.e.names(o.Outputs); err != nil {
		return nil, err
	}
	r, err := b.e.call(context.Background(), q)
	if err != nil {
		return nil, err
	}
	return &binding{e: b.e, id: r.ID, batch: o.Batch, inputs: b.e.refer(r.Inputs), outputs: b.e.refer(r.Outputs)}, nil
}

// Close is nothing where the process is gone: it took its blocks with it.
func (b *block) Close() error { return b.e.drop(opUnload, b.id) }

func (e *Engine) drop(o op, id uint64) error {
	_, err := e.call(context.Background(), &request{Op: o, ID: id})
	if errors.Is(err, ErrGone) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// names turns tensors of this engine into their numbers.
func (e *Engine) names(list []engine.Tensor) ([]uint64, error) {
	if list == nil {
		return nil, nil
	}
	out := make([]uint64, len(list))
	for i, t := range list {
		if t == nil {
			continue
		}
		x, ok := t.(*tensor)
		if !ok || x.e != e {
			return nil, fmt.Errorf("tensor %s: %w: it lies in another process than the block", t.Spec().Name, engine.ErrShape)
		}
		out[i] = x.ref.ID
	}
	return out, nil
}

func (e *Engine) refer(list []tensorRef) []engine.Tensor {
	out := make([]engine.Tensor, len(list))
	for i, r := range list {
		out[i] = &tensor{e, r}
	}
	return out
}

type binding struct {
	e               *Engine
	id              uint64
	batch           int
	inputs, outputs []engine.Tensor
}

func (b *binding) Batch() int               { return b.batch }
func (b *binding) Inputs() []engine.Tensor  { return b.inputs }
func (b *binding) Outputs() []engine.Tensor { return b.outputs }

func (b *binding) Run(ctx context.Context) error {
	_, err := b.e.call(ctx, &request{Op: opRun, ID: b.id})
	return err
}

func (b *binding) RunN(n int) (engine.Timing, error) {
	if n < 1 {
		return engine.Timing{}, fmt.Errorf("run a binding %d times: expected at least 1", n)
	}
	r, err := b.e.call(context.Background(), &request{Op: opRun, ID: b.id, Runs: n})
	if err != nil {
		return engine.Timing{}, err
	}
	return r.Timing, nil
}

func (b *binding) Close() error { return b.e.drop(opUnbind, b.id) }

// tensor is memory in the process; Bytes is nil as for a tensor on a GPU.
type tensor struct {
	e   *Engine
	ref tensorRef
}

func (t *tensor) Spec() engine.Spec { return t.ref.Spec }
func (t *tensor) Batch() int        { return t.ref.Batch }
func (t *tensor) Bytes() []byte     { return nil }

func (t *tensor) Write(src []byte) error {
	_, err := t.e.call(context.Background(), &request{Op: opWrite, ID: t.ref.ID, Data: src})
	return err
}

func (t *tensor) Read(dst []byte) error {
	if want := t.ref.Spec.BytesAt(t.ref.Batch); int64(len(dst)) != want {
		return fmt.Errorf("tensor %s: %w: room for %d bytes, expected %d", t.ref.Spec.Name, engine.ErrShape, len(dst), want)
	}
	r, err := t.e.call(context.Background(), &request{Op: opRead, ID: t.ref.ID})
	if err != nil {
		return err
	}
	copy(dst, r.Data)
	return nil
}
