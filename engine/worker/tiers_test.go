package worker

import (
	"bytes"
	"context"
	"encoding/gob"

	"net"
	"testing"
	"time"

	"inferplan/engine"
)

// message is what DyOrc measures (figure 3): 32 tensors of (128, 768).
var message = []engine.Spec{{Name: "x", Type: engine.F32, Shape: []int64{engine.BatchDim, 128, 768}}}

const messageTensors = 32

// idleLoader executes nothing: what is measured is the way to it.
type idleLoader struct{ *replayLoader }

func idleEngines() map[string]Opener {
	return map[string]Opener{"idle": func(ctx context.Context, h *Hello) (Loader, error) {
		l, err := openReplay(ctx, h)
		if err != nil {
			return nil, err
		}
		return idleLoader{l.(*replayLoader)}, nil
	}}
}

func (l idleLoader) Load(_ context.Context, _ *StageSpec, m *engine.Submodel) (engine.Block, error) {
	return idleBlock{m: m}, nil
}

type idleBlock struct {
	engine.Block
	m *engine.Submodel
}

func (b idleBlock) Submodel() *engine.Submodel                      { return b.m }
func (b idleBlock) Bind(engine.BindOptions) (engine.Binding, error) { return idleBinding{}, nil }
func (b idleBlock) Close() error                                    { return nil }

type idleBinding struct{ engine.Binding }

func (idleBinding) Run(context.Context) error { return nil }
func (idleBinding) Close() error              { return nil }

func idleConfig() Config {
	tiny := []engine.Spec{{Name: "y", Type: engine.F32, Shape: []int64{engine.BatchDim}}}
	c := replayConfig(make([]time.Duration, messageTensors)...)
	c.Hello.Engine, c.Env = "idle", []string{asWorker + "=idle"}
	maker, reader := c.Stages[0], c.Stages[0]
	maker.Inputs, maker.Outputs = tiny, message
	reader.ID, reader.Model, reader.Inputs, reader.Outputs = 1, "reader", message, tiny
	c.Stages = []StageSpec{maker, reader}
	return c
}

// end is one end of a message: a worker with a stage that makes it and one that
// reads it.
type end struct {
	p       *Process
	seg     *Segment
	layouts []Layout
	results []Result
}

func openEnd(b *testing.B, p *Process, err error, id uint32) *end {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { p.Kill(); p.Wait() })
	e := &end{p: p}
	base := int64(0)
	for i := range p.Stages {
		l := layoutOf(p.Stages[i], messageTensors, 2)
		l.Base = base
		base += l.Stride * int64(l.Slots)
		e.layouts = append(e.layouts, l)
	}
	if e.seg, err = NewSegment(id, base); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { e.seg.Close() })
	if err := p.Attach(context.Background(), e.seg, true); err != nil {
		b.Fatal(err)
	}
	for _, l := range e.layouts {
		if _, err := p.Prepare(context.Background(), l); err != nil {
			b.Fatal(err)
		}
	}
	return e
}

// run runs a stage and waits for its end.
func (e *end) run(b *testing.B, r RunCommand) {
	r.Batch = messageTensors
	if err := e.p.Send(r); err != nil {
		b.Fatal(err)
	}
	var err error
	if e.results, err = e.p.Receive(e.results[:0]); err != nil || e.results[0].Code != OK {
		b.Fatal(err, e.results)
	}
}

func (e *end) made() []byte {
	return e.seg.TensorAt(message, 0, messageTensors, e.layouts[0].OutputOffset(0))
}
func (e *end) read() []byte {
	return e.seg.TensorAt(message, 0, messageTensors, e.layouts[1].InputOffset(0))
}

// BenchmarkMessage is what a message of 32 tensors of (128, 768) costs from the
// stage that made it until one that reads it has run, by the way that it takes:
//
//	reference  the stages are in one worker
//	shm        in two workers, which share the memory
//	store      as outputs of tasks go: copied out of the one's memory, and into the other's
//	stream     to a worker of another host, here by the loopback device
//	general    serialized (gob), likewise
//
// A stage does nothing here, so that nobody touches what is not copied.
func BenchmarkMessage(b *testing.B) {
	ctx := context.Background()
	from := func(b *testing.B) *end {
		p, err := Start(ctx, idleConfig())
		return openEnd(b, p, err, 1)
	}
	size := Span(message, messageTensors)
	measure := func(b *testing.B, pass func()) {
		b.SetBytes(size)
		pass()
		b.ReportAllocs()
		b.ResetTimer()
		for range b.N {
			pass()
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N), "us/message")
	}
	b.Run("reference", func(b *testing.B) {
		e := from(b)
		r := RunCommand{Stage: 1, Segment: 1, InputOffset: uint64(e.layouts[0].OutputOffset(0)), OutputOffset: uint64(e.layouts[1].OutputOffset(0))}
		measure(b, func() { e.run(b, r) })
	})
	b.Run("shm", func(b *testing.B) {
		e := from(b)
		p, err := Start(ctx, idleConfig())
		to := openEnd(b, p, err, 2)
		if err := to.p.Attach(ctx, e.seg, false); err != nil {
			b.Fatal(err)
		}
		r := RunCommand{Stage: 1, Segment: 1, InputOffset: uint64(e.layouts[0].OutputOffset(0)), OutputOffset: uint64(to.layouts[1].OutputOffset(0))}
		measure(b, func() { to.run(b, r) })
	})
	b.Run("store", func(b *testing.B) {
		e := from(b)
		store := make([]byte, size)
		r := RunCommand{Stage: 1, Segment: 1, InputOffset: uint64(e.layouts[1].InputOffset(0)), OutputOffset: uint64(e.layouts[1].OutputOffset(0))}
		measure(b, func() {
			copy(store, e.made())
			copy(e.read(), store)
			e.run(b, r)
		})
	})
	b.Run("stream", func(b *testing.B) {
		lob := lobby(b, 0)
		c := joinConfig(lob)
		c.Env = []string{asWorker + "=idle"}
		join(b, c)
		p, err := lob.Start(ctx, b, idleConfig())
		e := openEnd(b, p, err, 1)
		r := RunCommand{Stage: 1, Segment: 1, InputOffset: uint64(e.layouts[1].InputOffset(0)), OutputOffset: uint64(e.layouts[1].OutputOffset(0))}
		measure(b, func() { e.run(b, r) })
	})
	b.Run("general", func(b *testing.B) { measure(b, general(b, from(b))) })
}

// general passes messages through a socket, serialized.
func general(b *testing.B, e *end) func() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { near.Close(); far.Close() })
	type tensors struct {
		Shape []int64
		Data  [][]byte
	}
	var out tensors
	each := len(e.made()) / messageTensors
	for i := range messageTensors {
		out.Data = append(out.Data, e.made()[i*each:(i+1)*each])
	}
	out.Shape = []int64{128, 768}
	r := RunCommand{Stage: 1, Segment: 1, InputOffset: uint64(e.layouts[1].InputOffset(0)), OutputOffset: uint64(e.layouts[1].OutputOffset(0))}
	return func() {
		sent := make(chan error, 1)
		go func() {
			var buf bytes.Buffer
			err := gob.NewEncoder(&buf).Encode(out)
			if err == nil {
				_, err = near.Write(buf.Bytes())
			}
			sent <- err
		}()
		var got tensors
		if err := gob.NewDecoder(far).Decode(&got); err != nil {
			b.Fatal(err)
		}
		if err := <-sent; err != nil {
			b.Fatal(err)
		}
		for i, t := range got.Data {
			copy(e.read()[i*each:], t)
		}
		e.run(b, r)
	}
}
