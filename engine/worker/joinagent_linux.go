package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"inferplan/engine"
	"inferplan/formats/modelfile"
)

// agent runs one connection to the server. To the server it acts as the worker. It passes commands on to a worker
// process of this host, and results back.
type agent struct {
	link
	config *JoinConfig
	index  int
	setUps chan step
	wg     sync.WaitGroup

	mu      sync.Mutex
	proc    *Process
	segment *Segment
	stages  farStages
	layouts map[uint32]*farLayout
	loaded  []uint32
	half    bool
	running bool // a goroutine forwards the results
	pending []farRun
}

type step struct {
	t       Type
	payload []byte
}

type farLayout struct {
	Layout
	free chan int32
}

type farRun struct {
	id     uint64
	stage  *farStage
	layout *farLayout
	slot   int32
	batch  uint32
}

func (a *agent) live(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	a.wg.Go(func() {
		for s := range a.setUps {
			if err := a.setUp(ctx, s); err != nil {
				a.config.Log.Warn("set-up", "error", err)
				a.conn.Close()
			}
		}
	})
	err := a.read()
	cancel()
	a.conn.Close()
	close(a.setUps)
	a.mu.Lock()
	proc := a.proc
	a.mu.Unlock()
	if proc != nil {
		proc.Kill()
	}
	a.wg.Wait()
	if a.proc != nil {
		a.proc.Kill() // in case it was started after the first Kill
		<-a.proc.Exited()
	}
	if a.segment != nil {
		a.segment.Close()
	}
	return err
}

func (a *agent) read() error {
	var buf [beatSize]byte
	for {
		t, p, err := a.next()
		if err != nil {
			return err
		}
		switch t {
		case TypeBeat:
			server, _, err := parseBeat(p)
			if err != nil {
				return err
			}
			if err := a.write(TypeBeat, appendBeat(buf[:0], server, monotonic()), nil); err != nil {
				return err
			}
		case TypePush:
			if err := a.push(p); err != nil {
				return err
			}
		case TypeHello, TypeLoad, TypePrepare, TypeKeep, TypeSwap:
			select {
			case a.setUps <- step{t, append([]byte(nil), p...)}:
			default:
				return fmt.Errorf("%w: %s before the last set-up step was answered", ErrProtocol, t)
			}
		default:
			return fmt.Errorf("%w: %s frame from the server", ErrProtocol, t)
		}
	}
}

// setUp does one step of the set-up and sends the answer.
func (a *agent) setUp(ctx context.Context, s step) error {
	var reply any
	var err error
	answer := TypeReady
	switch s.t {
	case TypeHello:
		answer = TypeWelcome
		reply, err = a.hello(ctx, s.payload)
	case TypeLoad:
		answer = TypeLoaded
		reply, err = a.load(ctx, s.payload)
	case TypePrepare:
		reply, err = a.prepare(ctx, s.payload)
	case TypeKeep:
		answer = TypeKept
		reply, err = a.keep(ctx, s.payload)
	case TypeSwap:
		return a.swap(ctx, s.payload)
	}
	if err != nil {
		return a.writeJSON(TypeError, Failure{For: s.t.String(), Code: codeOf(err), Text: fmt.Sprintf("host %s: %v", a.config.Host, err)})
	}
	return a.writeJSON(answer, reply)
}

func (a *agent) hello(ctx context.Context, p []byte) (*Welcome, error) {
	h, err := parseJSON[Hello](TypeHello, p)
	if err != nil {
		return nil, err
	}
	if a.proc != nil {
		return nil, fmt.Errorf("%w: hello twice", ErrProtocol)
	}
	c := a.config
	h.Device.Kind, h.Device.Index, h.Library = c.Kind, a.index, c.Library
	each := len(c.CPUs) / c.Count
	h.Device.CPUs, h.Device.Threads = c.CPUs[a.index*each:(a.index+1)*each], each
	if err := h.Execution.check(); err != nil {
		return nil, err
	}
	if h.Operators, err = c.own(h.Operators); err != nil {
		return nil, err
	}
	proc, err := Start(ctx, Config{Hello: h, Command: c.Command, Env: slices.Concat(c.Env, h.Env())})
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	a.proc, a.half = proc, h.Execution.Half
	a.mu.Unlock()
	return &proc.Welcome, nil
}

// localOperators returns this host's paths of the libraries that the server names by hash.
func (c *JoinConfig) own(named []modelfile.OperatorLibrary) (out []modelfile.OperatorLibrary, err error) {
	for _, l := range named {
		i := slices.IndexFunc(c.Operators, func(o modelfile.OperatorLibrary) bool { return o.SHA256 == l.SHA256 })
		if i < 0 {
			return nil, fmt.Errorf("%w: the models need %s, a library of custom operators with SHA-256 %s: name it with --ops on this host", engine.ErrModel, filepath.Base(l.Path), l.SHA256)
		}
		out = append(out, c.Operators[i])
	}
	return out, nil
}

func (a *agent) load(ctx context.Context, p []byte) (*Loaded, error) {
	spec, err := parseJSON[StageSpec](TypeLoad, p)
	if err != nil {
		return nil, err
	}
	if err := a.find(&spec); err != nil {
		return nil, err
	}
	var l Loaded
	if err := call(ctx, a.proc, TypeLoad, spec, TypeLoaded, &l); err != nil {
		return nil, err
	}
	return a.note(&spec, &l)
}

// locateModel checks a stage that the server asks for, and sets the path of its model's file on this host.
func (a *agent) find(spec *StageSpec) error {
	if err := spec.check(); err != nil {
		return err
	}
	// The name comes from another host: it names a file of the folder and no other.
	name := cmp.Or(spec.File, spec.Model)
	if name == "" || name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		return fmt.Errorf("%w: model %q: expected the name of a file", ErrProtocol, name)
	}
	if a.proc == nil || a.segment != nil {
		return fmt.Errorf("%w: a stage before hello or after the first was made ready", ErrProtocol)
	}
	spec.Path = filepath.Join(a.config.Models, name+".onnx")
	return nil
}

// addStage records a stage that the worker has loaded, or keeps.
func (a *agent) note(spec *StageSpec, l *Loaded) (*Loaded, error) {
	if err := errors.Join(checkSpecs(l.Inputs, spec.MaxBatch), checkSpecs(l.Outputs, spec.MaxBatch)); err != nil {
		return nil, err
	}
	a.stages.set(spec.ID, &farStage{spec.MaxBatch, l.Inputs, l.Outputs})
	a.loaded = append(a.loaded, spec.ID)
	return l, nil
}

// layOut divides this host's segment among the stages. Every stage has its inputs beside its outputs, because all
// inputs come from the server.
func (a *agent) layOut(ctx context.Context) error {
	var base int64
	layouts := map[uint32]*farLayout{}
	for _, id := range a.loaded {
		st := a.stages.get(id)
		in, out, _ := st.spans(uint32(st.maxBatch))
		l := &farLayout{Layout{ID: id, Base: base, InBytes: in, Stride: (in + out + 4095) &^ 4095, Slots: farSlots}, make(chan int32, farSlots)}
		for s := range farSlots {
			l.free <- int32(s)
		}
		base += farSlots * l.Stride
		layouts[id] = l
	}
	seg, err := NewSegment(0, max(base, 4096))
	if err != nil {
		return err
	}
	if err := a.proc.Attach(ctx, seg, true); err != nil {
		seg.Close()
		return err
	}
	a.mu.Lock()
	a.segment, a.layouts = seg, layouts
	a.mu.Unlock()
	return nil
}

func (a *agent) prepare(ctx context.Context, p []byte) (*Ready, error) {
	want, err := parseJSON[Layout](TypePrepare, p)
	if err != nil {
		return nil, err
	}
	if a.stages.get(want.ID) == nil {
		return nil, fmt.Errorf("%w: stage %d is not loaded", ErrProtocol, want.ID)
	}
	if a.segment == nil {
		if err := a.layOut(ctx); err != nil {
			return nil, err
		}
	}
	l := a.layouts[want.ID].Layout
	l.Warm = min(max(want.Warm, 0), farSlots)
	warm, err := a.proc.Prepare(ctx, l)
	return &Ready{For: TypePrepare.String(), ID: want.ID, WarmNS: int64(warm)}, err
}

// forwardRun reads a run's input into a free slot and passes the run to the worker.
func (a *agent) push(p []byte) error {
	r, err := ParseRun(p)
	if err != nil {
		return err
	}
	st := a.stages.get(r.Stage)
	in, _, ok := st.spans(r.Batch)
	a.mu.Lock()
	layout, proc, segment := a.layouts[r.Stage], a.proc, a.segment
	a.mu.Unlock()
	if !ok || layout == nil || r.In != uint64(in) {
		return fmt.Errorf("%w: run of stage %d, batch %d, with %d bytes of input", ErrProtocol, r.Stage, r.Batch, r.In)
	}
	a.listen()
	var slot int32
	select {
	case slot = <-layout.free:
	case <-time.After(a.silence):
		return fmt.Errorf("%w: more than %d runs of a stage at once", ErrProtocol, farSlots)
	}
	at := layout.In(int(slot))
	if err := a.data(segment.Data[at : at+in]); err != nil {
		return err
	}
	a.mu.Lock()
	a.pending = append(a.pending, farRun{r.ID, st, layout, slot, r.Batch})
	a.mu.Unlock()
	return proc.Send(Run{ID: r.ID, Stage: r.Stage, Batch: r.Batch, Segment: segment.ID, In: uint64(at), Out: uint64(layout.Out(int(slot)))})
}

// forwardResults sends the results of the worker to the server until the worker ends.
func (a *agent) results(proc *Process, segment *Segment) error {
	var buf []Result
	for {
		var err error
		if buf, err = proc.Receive(buf[:0]); err != nil && !errors.Is(err, io.EOF) {
			return err
		}

		// Pass swaps on.
		for _, s := range proc.Swapped() {
			if err := a.writeJSON(TypeSwapped, s); err != nil {
				return err
			}
		}

		// Pass results on in the order of the runs, with their outputs, and free the slots.
		for i := range buf {
			r := &buf[i]
			a.mu.Lock()
			if len(a.pending) == 0 || a.pending[0].id != r.ID {
				a.mu.Unlock()
				return fmt.Errorf("%w: the worker answered out of order", ErrProtocol)
			}
			run := a.pending[0]
			a.pending = a.pending[:copy(a.pending, a.pending[1:])]
			a.mu.Unlock()
			var out []byte
			if r.Code == OK {
				_, n, _ := run.stage.spans(run.batch)
				at := run.layout.Out(int(run.slot))
				out = segment.Data[at : at+n]
			}
			if err := a.write(TypeDone, appendDone(nil, int64(len(out)), r), out); err != nil {
				return err
			}
			run.layout.free <- run.slot
		}
		if err != nil {
			return nil
		}
	}
}
