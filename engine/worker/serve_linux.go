package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"inferplan/engine"
)

// Loader is the part of an engine that a worker needs. It has one device, on which it loads stages, or blocks that
// the parent has cut.
type Loader interface {
	Info() engine.Info
	Device() engine.Device
	// Cut cuts a stage out of its model, and Load makes it ready to run. A worker that swaps stages calls them
	// beside its runs.
	Cut(ctx context.Context, s *StageSpec) (*engine.Submodel, error)
	Load(ctx context.Context, s *StageSpec, m *engine.Submodel) (engine.Block, error)
	LoadBlock(ctx context.Context, m *engine.Submodel, o engine.Options) (engine.Block, error)
	Close() error
}

// memoryPinner is a Loader that can lock memory of the host for direct copies by its device.
type memoryPinner interface {
	Pin(data []byte) (unpin func() error, err error)
}

// Opener opens an engine on a device.
type Opener func(ctx context.Context, h *Hello) (Loader, error)

// ControlFD is the descriptor on which a started worker finds its socket.
const ControlFD = 3

// Main implements the command `plan worker`. It serves the control socket on ControlFD with the engines of this
// build until the parent shuts it down or ends.
func Main(ctx context.Context) error {
	var st unix.Stat_t
	if err := unix.Fstat(ControlFD, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return fmt.Errorf("descriptor %d is not a control socket: a worker is started by 'plan serve' or 'plan profile', not by hand", ControlFD)
	}
	unix.CloseOnExec(ControlFD)
	return serve(ctx, ControlFD, Engines(), true)
}

// Serve runs a worker on a connected stream socket, which it closes. The
// calling goroutine keeps its operating-system thread for good: it is pinned
// to the device's CPUs.
func Serve(ctx context.Context, fd int, engines map[string]Opener) error {
	return serve(ctx, fd, engines, false)
}

// serve runs a worker on the socket fd until the parent shuts it down or ends. ownsProcess says that the process does
// nothing else. engines are those of this build, by name.
func serve(ctx context.Context, fd int, engines map[string]Opener, ownsProcess bool) error {
	s := &server{control: control{fd: fd, ownsProcess: ownsProcess}, engines: engines, segments: map[uint32]*Segment{}, blocks: map[uint32]engine.Block{}, probeBindings: map[uint32]probeBinding{}}
	// When the context ends, the shutdown makes recvmsg return end-of-file.
	socketShut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { unix.Shutdown(fd, unix.SHUT_RDWR); close(socketShut) })
	defer func() {
		if !stop() {
			<-socketShut // never shut down a descriptor that was closed and used again
		}
		unix.Close(fd)
	}()
	defer s.close()
	err := s.loop(ctx)
	if errors.Is(err, io.EOF) || errors.Is(err, errShutdown) {
		return nil
	}
	return err
}

// errShutdown ends the loop when the parent asks for it.
var errShutdown = errors.New("told to shut down")

// server is the state of a worker.
type server struct {
	control       control
	engines       map[string]Opener
	loader        Loader // the engine, nil before hello
	device        Device
	unpin         func() // unties the loop from its thread and CPUs
	stages        stageTable[stage]
	swaps         *swapper
	segments      map[uint32]*Segment     // attached shared memory, by number
	outputSegment *Segment                // the one that this worker writes to
	blocks        map[uint32]engine.Block // cut by the parent, for measuring
	probeBindings map[uint32]probeBinding // of these blocks
	cpuClock      int32                   // the clock of runs' CPU time: the thread's, or the process's if the device has several threads
}

// loop reads frames from the socket and handles them, one after the other. It returns only with an error.
func (s *server) loop(ctx context.Context) error {
	for {
		t, p, ok, err := s.control.decoder.NextFrame()
		if err != nil {
			return err
		}
		if !ok {
			if err := s.control.receive(); err != nil {
				return err
			}
			continue
		}
		if t == TypeRun {
			err = s.executeRun(ctx, p)
		} else {
			err = s.command(ctx, t, p)
		}
		if err != nil {
			return err
		}
	}
}

// command handles all frames but runs. If a step fails, the parent gets an error frame. Only a frame that breaks
// the protocol ends the worker.
func (s *server) command(ctx context.Context, t Type, p []byte) error {
	if s.loader == nil && t != TypeHello {
		return fmt.Errorf("%w: %s before hello", ErrProtocol, t)
	}
	var reply any
	answer := TypeReady
	var err error
	switch t {
	case TypeHello:
		answer = TypeWelcome
		reply, err = s.hello(ctx, p)
	case TypeLoad:
		answer = TypeLoaded
		reply, err = s.load(ctx, p)
	case TypeSegment:
		reply, err = s.segment(p)
	case TypePrepare:
		reply, err = s.prepare(ctx, p)
	case TypeKeep:
		answer = TypeKept
		reply, err = s.swaps.keepStage(ctx, p)
	case TypeSwap:
		return s.swaps.enqueue(p)
	case TypeShare:
		answer = TypeShare
		reply, err = s.shareMemory(p)
	case TypeProbe:
		answer = TypeProbe
		reply, err = s.probe(ctx, p)
	case TypeShutdown:
		return errShutdown
	default:
		return fmt.Errorf("%w: %s frame from the parent", ErrProtocol, t)
	}
	if err != nil {
		return s.control.answer(TypeError, Failure{Answers: t.String(), Code: codeOf(err), Text: err.Error()})
	}
	return s.control.answer(answer, reply)
}

// hello handles the parent's first frame: it pins this thread to the device's CPUs, and opens the engine on the device.
func (s *server) hello(ctx context.Context, p []byte) (*Welcome, error) {
	h, err := parseJSON[Hello](TypeHello, p)
	if err != nil {
		return nil, err
	}
	if s.loader != nil {
		return nil, fmt.Errorf("%w: hello twice", ErrProtocol)
	}
	open := s.engines[h.Engine]
	if open == nil {
		return nil, fmt.Errorf("%w: engine %q is not in this build, which has %v", engine.ErrNoLibrary, h.Engine, slices.Sorted(maps.Keys(s.engines)))
	}

	// Pin this thread to the device's CPUs.
	s.device, s.cpuClock = h.Device, unix.CLOCK_THREAD_CPUTIME_ID
	if len(h.Device.CPUs) > 0 {
		// Pin before the engine starts threads, because they inherit the set.
		if s.unpin, err = engine.PinThread(h.Device.CPUs...); err != nil {
			return nil, fmt.Errorf("%w: %w", engine.ErrNoDevice, err)
		}
	} else {
		runtime.LockOSThread()
		s.unpin = runtime.UnlockOSThread
	}
	if max(h.Device.Threads, len(h.Device.CPUs)) > 1 {
		s.cpuClock = unix.CLOCK_PROCESS_CPUTIME_ID
	}

	// Open the engine.
	loader, err := open(ctx, &h)
	if err != nil {
		return nil, fmt.Errorf("open engine %s on device %s %d: %w", h.Engine, h.Device.Kind, h.Device.Index, err)
	}
	s.loader, s.swaps = loader, newSwapper(ctx, s, h.Memory)
	info := loader.Info()
	return &Welcome{PID: os.Getpid(), Engine: info.Name, Version: info.Version, Device: loader.Device().ID}, nil
}

// load handles a load frame: it cuts a stage (a range of a model's blocks) out of its model and loads it onto the
// device, unless another stage has loaded the same blocks. It fills in the table of stages.
func (s *server) load(ctx context.Context, p []byte) (*LoadedStage, error) {
	spec, err := parseJSON[StageSpec](TypeLoad, p)
	if err != nil {
		return nil, err
	}
	if err := spec.check(); err != nil {
		return nil, err
	}
	if s.stages.stage(spec.ID) != nil {
		return nil, fmt.Errorf("stage %d is loaded already", spec.ID)
	}

	// Load the blocks, unless another stage has loaded the same.
	start := monotonic()
	content := s.sharedContent(&spec)
	weights := int64(0)
	if content == nil {
		submodel, err := s.loader.Cut(ctx, &spec)
		var block engine.Block
		if err == nil {
			block, err = s.loader.Load(ctx, &spec, submodel)
		}
		if err != nil {
			return nil, fmt.Errorf("load blocks [%d,%d) of %s: %w", spec.From, spec.To, spec.Model, err)
		}
		content = &stageContent{spec: contentOf(&spec), block: block}
		weights = block.Submodel().WeightBytes
	}
	sub := content.block.Submodel()
	s.stages.setStage(spec.ID, newStage(&spec, content))
	return &LoadedStage{ID: spec.ID, Inputs: sub.Inputs, Outputs: sub.Outputs, WeightBytes: weights, LoadNS: monotonic() - start}, nil
}

// segment handles a segment frame: it maps memory that processes share, whose descriptor came with the frame, and
// locks it for direct copies by a GPU.
func (s *server) segment(p []byte) (*ReadyReply, error) {
	spec, err := parseJSON[SegmentSpec](TypeSegment, p)
	if err != nil {
		return nil, err
	}
	seg, err := s.mapReceived(TypeSegment, spec.ID, spec.Size)
	if err != nil {
		return nil, err
	}
	if s.segments[spec.ID] != nil {
		seg.Close()
		return nil, fmt.Errorf("segment %d is attached already", spec.ID)
	}
	// A GPU copies from and to locked memory directly. If the memory cannot be locked, copies go through the
	// driver's own buffers, which is slower.
	if p, ok := s.loader.(memoryPinner); ok {
		if seg.unpin, err = p.Pin(seg.Data); err != nil {
			fmt.Fprintf(os.Stderr, "worker: segment %d stays pageable, copies to the GPU are slower: %v\n", spec.ID, err)
		}
	}
	s.segments[spec.ID] = seg
	if spec.ForOutput {
		s.outputSegment = seg
	}
	return &ReadyReply{Answers: TypeSegment.String(), ID: spec.ID, Pinned: seg.unpin != nil}, nil
}

// mapReceived maps the memory whose descriptor came with a frame.
func (s *server) mapReceived(t Type, id uint32, size int64) (*Segment, error) {
	fd, err := s.control.descriptor(t)
	if err != nil {
		return nil, err
	}
	return mapSegment(id, fd, size)
}

// prepare handles a prepare frame: it binds the slots (places of inputs and outputs in shared memory) of a stage,
// and warms the stage up.
func (s *server) prepare(ctx context.Context, p []byte) (*ReadyReply, error) {
	l, err := parseJSON[Layout](TypePrepare, p)
	if err != nil {
		return nil, err
	}
	st := s.stages.stage(l.ID)
	if st == nil {
		return nil, fmt.Errorf("stage %d is not loaded", l.ID)
	}
	start := monotonic()
	if err := s.makeReady(ctx, st, l); err != nil {
		return nil, err
	}
	// Collect the garbage of loading now rather than during a run.
	runtime.GC()
	debug.FreeOSMemory()
	return &ReadyReply{Answers: TypePrepare.String(), ID: l.ID, WarmNS: monotonic() - start}, nil
}

// executeRun handles a run frame: it runs a stage (a range of a model's blocks) once on a batch in shared memory, and
// sends the result with its times. A run that fails is answered with the error. The first run begins the steady
// state, in which the garbage collector is off.
func (s *server) executeRun(ctx context.Context, p []byte) error {
	r, err := ParseRun(p)
	if err != nil {
		return err
	}
	if s.control.ownsProcess && !s.control.steady && s.swaps.isIdle() {
		s.control.beSteady(s.swaps.queue != nil) // a worker that swapped has collected memory already
	}
	res := Result{ID: r.ID, Stage: r.Stage, Start: monotonic()}

	// Find the stage and the binding of its tensors, and run it.
	if st := s.stages.stage(r.Stage); st == nil {
		res.Code, res.Text = OtherFailure, fmt.Sprintf("stage %d is not loaded", r.Stage)
	} else if b, err := s.bind(st, bindingKey{uint32(st.executedBatch(int(r.Batch))), r.Segment, r.InputOffset, r.OutputOffset, r.InputOnDevice, r.OutputOnDevice}); err != nil {
		res.Code, res.Text = codeOf(err), err.Error()
	} else {
		cpu := clock(s.cpuClock)
		if err := b.Run(ctx); err != nil {
			res.Code, res.Text = codeOf(err), err.Error()
		}
		res.CPU = clock(s.cpuClock) - cpu
	}
	res.End = monotonic()
	res.Total = clock(unix.CLOCK_PROCESS_CPUTIME_ID)
	if err := ctx.Err(); err != nil {
		return err
	}
	s.control.outFrame = AppendResult(s.control.outFrame[:0], &res)
	return s.control.sendFrame()
}

// close frees all that the worker holds: stages, segments (shared memory) and the engine, when the loop has ended. A
// load that hangs is left to the end of the process.
func (s *server) close() {
	if s.swaps != nil && !s.swaps.close(s.control.ownsProcess) {
		return
	}
	for _, st := range s.stages.loaded() {
		st.close()
	}
	// Free the device's memory before its engine.
	for _, seg := range s.segments {
		seg.Close()
	}
	if s.loader != nil {
		s.loader.Close()
	}
	for _, fd := range s.control.fds {
		unix.Close(fd)
	}
	if s.unpin != nil {
		s.unpin()
	}
}

// sleepUntil waits until a moment of CLOCK_MONOTONIC, in nanoseconds. It returns early if ctx ends.
func sleepUntil(ctx context.Context, wakeAt int64) error {
	for {
		remaining := wakeAt - monotonic()
		if remaining <= 0 {
			return nil
		}
		// Sleep in pieces of 100 ms, so that the end of the context is noticed.
		ts := unix.NsecToTimespec(min(wakeAt, monotonic()+int64(100*time.Millisecond)))
		if err := unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil); err != nil && err != unix.EINTR {
			return fmt.Errorf("sleep: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}
