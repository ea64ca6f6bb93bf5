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
	link   link
	config *JoinConfig
	index  int            // number of the offered device on this host
	setUps chan setUpStep // steps that wait for the goroutine of the set-up
	wg     sync.WaitGroup

	mu           sync.Mutex
	proc         *Process // the worker, nil before hello
	segment      *Segment // memory for inputs and outputs, nil before the first stage is made ready
	stages       stageTable[linkStage]
	layouts      map[uint32]*agentLayout // by stage
	loadedIDs    []uint32                // stages in the order in which they were loaded
	fp16         bool                    // models compute in float16
	readsResults bool                    // a goroutine forwards the results
	pendingRuns  []forwardedRun          // runs that the worker has not answered, in order
}

// setUpStep is a frame of the set-up.
type setUpStep struct {
	t       Type
	payload []byte
}

// agentLayout says where the slots of a stage lie in the agent's segment, and which are free.
type agentLayout struct {
	Layout
	freeSlots chan int32
}

// forwardedRun is a run that the worker works on.
type forwardedRun struct {
	id     uint64
	stage  *linkStage
	layout *agentLayout
	slot   int32
	batch  uint32
}

// serve handles the frames of the server until the connection ends. Then it ends the worker, a process of this host.
// The set-up runs on a goroutine of its own, so that beats (signs of life) are answered meanwhile.
func (a *agent) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	a.wg.Go(func() {
		for s := range a.setUps {
			if err := a.setUp(ctx, s); err != nil {
				a.config.Log.Warn("set-up", "error", err)
				a.link.conn.Close()
			}
		}
	})

	// Read frames until the connection ends. Then end the set-up and the worker.
	err := a.readFrames()
	cancel()
	a.link.conn.Close()
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

// readFrames reads the server's frames until the connection ends. It answers beats (signs of life) with this host's
// time, forwards runs to the worker, and passes steps of the set-up on to the goroutine that does them.
func (a *agent) readFrames() error {
	var buf [beatSize]byte
	for {
		t, p, err := a.link.nextFrame()
		if err != nil {
			return err
		}
		switch t {
		case TypeBeat:
			server, _, err := parseBeat(p)
			if err != nil {
				return err
			}
			if err := a.link.write(TypeBeat, appendBeat(buf[:0], server, monotonic()), nil); err != nil {
				return err
			}
		case TypePush:
			if err := a.forwardRun(p); err != nil {
				return err
			}
		case TypeHello, TypeLoad, TypePrepare, TypeKeep, TypeSwap:
			select {
			case a.setUps <- setUpStep{t, append([]byte(nil), p...)}:
			default:
				return fmt.Errorf("%w: %s before the last set-up step was answered", ErrProtocol, t)
			}
		default:
			return fmt.Errorf("%w: %s frame from the server", ErrProtocol, t)
		}
	}
}

// setUp does one step of the set-up that the server asks for (start the worker, load, prepare or keep a stage), and
// sends the answer. A swap is passed on. A step that fails is answered with the error.
func (a *agent) setUp(ctx context.Context, s setUpStep) error {
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
		reply, err = a.keepStage(ctx, s.payload)
	case TypeSwap:
		return a.swap(ctx, s.payload)
	}
	if err != nil {
		return a.link.writeJSON(TypeError, Failure{Answers: s.t.String(), Code: codeOf(err), Text: fmt.Sprintf("host %s: %v", a.config.Host, err)})
	}
	return a.link.writeJSON(answer, reply)
}

// hello starts the worker, on this host's device and with this host's CPUs, library and paths in place of the server's.
func (a *agent) hello(ctx context.Context, p []byte) (*Welcome, error) {
	h, err := parseJSON[Hello](TypeHello, p)
	if err != nil {
		return nil, err
	}
	if a.proc != nil {
		return nil, fmt.Errorf("%w: hello twice", ErrProtocol)
	}

	// Replace what is the server's: this host knows its device, its CPUs and its libraries.
	c := a.config
	h.Device, h.Library = c.deviceAt(a.index, h.Device.Share), c.Library
	if err := h.Execution.check(); err != nil {
		return nil, err
	}
	if h.Operators, err = c.localOperators(h.Operators); err != nil {
		return nil, err
	}

	// Start the worker.
	proc, err := Start(ctx, Config{Hello: h, Command: c.Command, Env: slices.Concat(c.Env, h.Env())})
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	a.proc, a.fp16 = proc, h.Execution.FP16
	a.mu.Unlock()
	return &proc.Welcome, nil
}

// deviceAt returns the device with a number of this host, with its kind, its CPUs and its threads, as a share of 1/share.
func (c *JoinConfig) deviceAt(index, share int) Device {
	n := len(c.CPUs) / c.Count
	return Device{Kind: c.Kind, Index: index, Share: share, CPUs: c.CPUs[index*n : (index+1)*n], Threads: cmp.Or(n, c.Threads)}
}

// localOperators returns this host's paths of the libraries that the server names by hash.
func (c *JoinConfig) localOperators(wanted []modelfile.OperatorLibrary) (found []modelfile.OperatorLibrary, err error) {
	for _, l := range wanted {
		i := slices.IndexFunc(c.Operators, func(o modelfile.OperatorLibrary) bool { return o.SHA256 == l.SHA256 })
		if i < 0 {
			return nil, fmt.Errorf("%w: the models need %s, a library of custom operators with SHA-256 %s: name it with --ops on this host", engine.ErrModel, filepath.Base(l.Path), l.SHA256)
		}
		found = append(found, c.Operators[i])
	}
	return found, nil
}

// load has the worker load a stage (a range of a model's blocks), from this host's file of the model.
func (a *agent) load(ctx context.Context, p []byte) (*LoadedStage, error) {
	spec, err := parseJSON[StageSpec](TypeLoad, p)
	if err != nil {
		return nil, err
	}
	if err := a.locateModel(&spec); err != nil {
		return nil, err
	}
	var l LoadedStage
	if err := call(ctx, a.proc, TypeLoad, spec, TypeLoaded, &l); err != nil {
		return nil, err
	}
	return a.addStage(&spec, &l)
}

// locateModel checks a stage (a range of a model's blocks) that the server asks for, and sets the path of its
// model's file on this host. The server names the file only.
func (a *agent) locateModel(spec *StageSpec) error {
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

// addStage records a stage that the worker has loaded, or keeps in memory, and returns l, the answer for the server.
func (a *agent) addStage(spec *StageSpec, l *LoadedStage) (*LoadedStage, error) {
	if err := errors.Join(checkSpecs(l.Inputs, spec.MaxBatch), checkSpecs(l.Outputs, spec.MaxBatch)); err != nil {
		return nil, err
	}
	a.stages.setStage(spec.ID, &linkStage{spec.MaxBatch, l.Inputs, l.Outputs})
	a.loadedIDs = append(a.loadedIDs, spec.ID)
	return l, nil
}

// layOut divides shared memory of this host into slots (places for one batch's inputs and outputs), agentSlots for
// each stage, and attaches it to the worker. Every stage has its inputs beside its outputs, because all inputs come
// from the server. It is called when all stages are loaded.
func (a *agent) layOut(ctx context.Context) error {
	// Lay out the slots of the stages one after the other. Slots begin at pages of 4096 bytes.
	var base int64
	layouts := map[uint32]*agentLayout{}
	for _, id := range a.loadedIDs {
		st := a.stages.stage(id)
		inputBytes, outputBytes, _ := st.tensorBytes(uint32(st.maxBatch))
		l := &agentLayout{Layout{ID: id, Base: base, InBytes: inputBytes, Stride: (inputBytes + outputBytes + 4095) &^ 4095, Slots: agentSlots}, make(chan int32, agentSlots)}
		for s := range agentSlots {
			l.freeSlots <- int32(s)
		}
		base += agentSlots * l.Stride
		layouts[id] = l
	}

	// Allocate the memory, and give it to the worker.
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

// prepare has the worker bind a stage's slots and warm it up. The first call divides the segment among the stages.
func (a *agent) prepare(ctx context.Context, p []byte) (*ReadyReply, error) {
	wanted, err := parseJSON[Layout](TypePrepare, p)
	if err != nil {
		return nil, err
	}
	if a.stages.stage(wanted.ID) == nil {
		return nil, fmt.Errorf("%w: stage %d is not loaded", ErrProtocol, wanted.ID)
	}
	if a.segment == nil {
		if err := a.layOut(ctx); err != nil {
			return nil, err
		}
	}
	l := a.layouts[wanted.ID].Layout
	l.WarmSlots = min(max(wanted.WarmSlots, 0), agentSlots)
	warm, err := a.proc.Prepare(ctx, l)
	return &ReadyReply{Answers: TypePrepare.String(), ID: wanted.ID, WarmNS: int64(warm)}, err
}

// forwardRun handles a run of the server (a push frame): it reads the input, which follows the frame, into a free
// slot and passes the run to the worker.
func (a *agent) forwardRun(p []byte) error {
	r, err := ParseRun(p)
	if err != nil {
		return err
	}
	st := a.stages.stage(r.Stage)
	in, _, ok := st.tensorBytes(r.Batch)
	a.mu.Lock()
	layout, proc, segment := a.layouts[r.Stage], a.proc, a.segment
	a.mu.Unlock()
	if !ok || layout == nil || r.InputOffset != uint64(in) {
		return fmt.Errorf("%w: run of stage %d, batch %d, with %d bytes of input", ErrProtocol, r.Stage, r.Batch, r.InputOffset)
	}

	// Wait for a free slot, and read the input into it.
	a.startResults()
	var slot int32
	select {
	case slot = <-layout.freeSlots:
	case <-time.After(a.link.silence):
		return fmt.Errorf("%w: more than %d runs of a stage at once", ErrProtocol, agentSlots)
	}
	offset := layout.InputOffset(int(slot))
	if err := a.link.readData(segment.Data[offset : offset+in]); err != nil {
		return err
	}
	a.mu.Lock()
	a.pendingRuns = append(a.pendingRuns, forwardedRun{r.ID, st, layout, slot, r.Batch})
	a.mu.Unlock()
	return proc.Send(RunCommand{ID: r.ID, Stage: r.Stage, Batch: r.Batch, Segment: segment.ID, InputOffset: uint64(offset), OutputOffset: uint64(layout.OutputOffset(int(slot)))})
}

// forwardResults sends the results of the worker to the server until the worker ends: of runs with their outputs,
// and of swaps.
func (a *agent) forwardResults(proc *Process, segment *Segment) error {
	var buf []Result
	for {
		var err error
		if buf, err = proc.Receive(buf[:0]); err != nil && !errors.Is(err, io.EOF) {
			return err
		}

		// Pass swaps on.
		for _, s := range proc.SwapResults() {
			if err := a.link.writeJSON(TypeSwapped, s); err != nil {
				return err
			}
		}

		// Pass results on in the order of the runs, with their outputs, and free the slots.
		for i := range buf {
			r := &buf[i]
			a.mu.Lock()
			if len(a.pendingRuns) == 0 || a.pendingRuns[0].id != r.ID {
				a.mu.Unlock()
				return fmt.Errorf("%w: the worker answered out of order", ErrProtocol)
			}
			run := a.pendingRuns[0]
			a.pendingRuns = a.pendingRuns[:copy(a.pendingRuns, a.pendingRuns[1:])]
			a.mu.Unlock()
			var output []byte
			if r.Code == OK {
				_, n, _ := run.stage.tensorBytes(run.batch)
				offset := run.layout.OutputOffset(int(run.slot))
				output = segment.Data[offset : offset+n]
			}
			if err := a.link.write(TypeDone, appendDone(nil, int64(len(output)), r), output); err != nil {
				return err
			}
			run.layout.freeSlots <- run.slot
		}
		if err != nil {
			return nil
		}
	}
}
