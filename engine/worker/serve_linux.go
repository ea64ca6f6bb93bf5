package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"inferplan/engine"
)

// Loader is what a worker needs of an engine: one device, on which it loads
// stages, or blocks that the parent cut.
type Loader interface {
	Info() engine.Info
	Device() engine.Device
	Load(ctx context.Context, s *StageSpec) (engine.Block, error)
	LoadBlock(ctx context.Context, m *engine.Submodel, o engine.Options) (engine.Block, error)
	Close() error
}

// pinner is a Loader whose device copies from memory of the host, which it can
// lock for that.
type pinner interface {
	Pin(data []byte) (unpin func() error, err error)
}

// Opener opens an engine on a device.
type Opener func(ctx context.Context, h *Hello) (Loader, error)

// ControlFD is the descriptor on which a started worker finds its socket.
const ControlFD = 3

// Main is the whole of the verb `plan worker`: it serves the control socket on
// ControlFD with the engines of this build until the parent says so or is gone.
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

func serve(ctx context.Context, fd int, engines map[string]Opener, alone bool) error {
	s := &server{fd: fd, engines: engines, segments: map[uint32]*Segment{}, blocks: map[uint32]engine.Block{}, probed: map[uint32]probed{}, alone: alone}
	// Whatever waits in recvmsg sees end-of-file when the context ends.
	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { unix.Shutdown(fd, unix.SHUT_RDWR); close(cut) })
	defer func() {
		if !stop() {
			<-cut // never shut down a descriptor that was closed and used again
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

var errShutdown = errors.New("told to shut down")

type server struct {
	fd       int
	engines  map[string]Opener
	loader   Loader
	device   Device
	unpin    func()
	stages   []*stage // by ID; nil where none is loaded
	segments map[uint32]*Segment
	own      *Segment
	blocks   map[uint32]engine.Block // that the parent cut
	probed   map[uint32]probed
	dec      Decoder
	oob      []byte
	fds      []int // descriptors received and not yet claimed
	out      []byte
	cpuClock int32

	// alone: this is the only thing that the process does. Once it runs, it
	// waits for commands without telling Go's scheduler, see steady.
	alone, steady bool
	msg           unix.Msghdr
	iov           unix.Iovec
}

// content is a loaded block. Stages that run the same one share it, as those of
// a model's SLO classes do: runs take turns, so its weights need be in memory
// only once.
type content struct {
	spec  StageSpec // without what is of a stage
	block engine.Block
	users int
}

// contentOf is what a stage loads.
func contentOf(s *StageSpec) StageSpec {
	c := *s
	c.ID, c.MaxBatch = 0, 0
	return c
}

// stage is a loaded block with its bindings.
type stage struct {
	spec     StageSpec
	content  *content
	inputs   []engine.Spec
	outputs  []engine.Spec
	bindings map[bindKey]engine.Binding
	order    []bindKey // oldest first, for eviction
}

type bindKey struct {
	batch, segment      uint32
	in, out             uint64
	inDevice, outDevice bool
}

// size is the batch size at which a batch runs. Only where one tensor goes in and
// one comes out may it be larger: several lie side by side, at places that follow
// from the batch.
func (st *stage) size(batch int) int {
	if len(st.inputs) != 1 || len(st.outputs) != 1 {
		return batch
	}
	if i, _ := slices.BinarySearch(st.spec.Sizes, batch); i < len(st.spec.Sizes) {
		return st.spec.Sizes[i]
	}
	return batch
}

// maxBindings bounds what a stage keeps bound: pairs of slots, times batches.
const maxBindings = 4096

func (s *server) loop(ctx context.Context) error {
	for {
		t, p, ok, err := s.dec.Next()
		if err != nil {
			return err
		}
		if !ok {
			if err := s.receive(); err != nil {
				return err
			}
			continue
		}
		if t == TypeRun {
			err = s.run(ctx, p)
		} else {
			err = s.command(ctx, t, p)
		}
		if err != nil {
			return err
		}
	}
}

func (s *server) receive() error {
	if s.oob == nil {
		s.oob = make([]byte, unix.CmsgSpace(16*4))
	}
	for {
		n, oobn, flags, err := s.recvmsg(s.dec.Space())
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			if err == unix.ECONNRESET {
				return io.EOF
			}
			return fmt.Errorf("read control socket: %w", err)
		}
		if oobn > 0 {
			if flags&unix.MSG_CTRUNC != 0 {
				return fmt.Errorf("%w: too many descriptors at once", ErrProtocol)
			}
			if err := s.takeDescriptors(s.oob[:oobn]); err != nil {
				return err
			}
		}
		if n == 0 {
			return io.EOF
		}
		s.dec.Filled(n)
		return nil
	}
}

func (s *server) recvmsg(into []byte) (n, oobn, flags int, err error) {
	if !s.steady {
		n, oobn, flags, _, err = unix.Recvmsg(s.fd, into, s.oob, unix.MSG_CMSG_CLOEXEC)
		return n, oobn, flags, err
	}
	s.iov.Base = &into[0]
	s.iov.SetLen(len(into))
	s.msg = unix.Msghdr{Iov: &s.iov, Control: &s.oob[0]}
	s.msg.SetIovlen(1)
	s.msg.SetControllen(len(s.oob))
	r, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.msg)), unix.MSG_CMSG_CLOEXEC)
	if errno != 0 {
		return 0, 0, 0, errno
	}
	return int(r), int(s.msg.Controllen), int(s.msg.Flags), nil
}

// beSteady begins the steady state of a process that does nothing but run.
//
// A goroutine that blocks in an ordinary system call leaves Go's scheduler
// idle, and every wake-up then starts a millisecond of polling by its monitor
// thread: 50 wake-ups that cost several times what a small run does. So the
// loop blocks in a raw system call, for which the scheduler sees it as running.
// Such a goroutine cannot be stopped for a garbage collection; hence none is
// started but for memory that grows far beyond what set-up took. Runs allocate
// nothing.
func (s *server) beSteady() {
	runtime.GC()
	debug.SetGCPercent(-1)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	debug.SetMemoryLimit(int64(m.Sys) + 256<<20)
	s.steady = true
}

func (s *server) takeDescriptors(oob []byte) error {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("%w: control message: %v", ErrProtocol, err)
	}
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			return fmt.Errorf("%w: descriptors: %v", ErrProtocol, err)
		}
		s.fds = append(s.fds, fds...)
	}
	return nil
}

func (s *server) send() error {
	b := s.out
	for len(b) > 0 {
		n, err := unix.Write(s.fd, b)
		if err == unix.EINTR {
			continue
		}
		if err == unix.EPIPE || err == unix.ECONNRESET {
			return io.EOF
		}
		if err != nil {
			return fmt.Errorf("write control socket: %w", err)
		}
		b = b[n:]
	}
	s.out = s.out[:0]
	return nil
}

func (s *server) answer(t Type, doc any) error {
	var err error
	if s.out, err = appendJSON(s.out[:0], t, doc); err != nil {
		return err
	}
	return s.send()
}

// command does everything but runs. What the parent asked for and cannot be
// done is answered; only a broken protocol ends the worker.
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
	case TypeUnload:
		reply, err = s.unload(p)
	case TypeShare:
		answer = TypeShare
		reply, err = s.share(p)
	case TypeProbe:
		answer = TypeProbe
		reply, err = s.probe(ctx, p)
	case TypePing:
		if len(p) != pingSize {
			return fmt.Errorf("%w: ping frame of %d bytes, expected %d", ErrProtocol, len(p), pingSize)
		}
		s.out = AppendFrame(s.out[:0], TypePong, p)
		return s.send()
	case TypeShutdown:
		return errShutdown
	default:
		return fmt.Errorf("%w: %s frame from the parent", ErrProtocol, t)
	}
	if err != nil {
		return s.answer(TypeError, Failure{For: t.String(), Code: codeOf(err), Text: err.Error()})
	}
	return s.answer(answer, reply)
}

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
	s.device, s.cpuClock = h.Device, unix.CLOCK_THREAD_CPUTIME_ID
	if len(h.Device.CPUs) > 0 {
		// Before the engine starts threads: they inherit the set.
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
	loader, err := open(ctx, &h)
	if err != nil {
		return nil, fmt.Errorf("open engine %s on device %s %d: %w", h.Engine, h.Device.Kind, h.Device.Index, err)
	}
	s.loader = loader
	info := loader.Info()
	return &Welcome{PID: os.Getpid(), Engine: info.Name, Version: info.Version, Device: loader.Device().ID}, nil
}

func (s *server) load(ctx context.Context, p []byte) (*Loaded, error) {
	spec, err := parseJSON[StageSpec](TypeLoad, p)
	if err != nil {
		return nil, err
	}
	if err := spec.check(); err != nil {
		return nil, err
	}
	for len(s.stages) <= int(spec.ID) {
		s.stages = append(s.stages, nil)
	}
	if s.stages[spec.ID] != nil {
		return nil, fmt.Errorf("stage %d is loaded already", spec.ID)
	}
	start := monotonic()
	c := s.same(&spec)
	weights := int64(0)
	if c == nil {
		block, err := s.loader.Load(ctx, &spec)
		if err != nil {
			return nil, fmt.Errorf("load blocks [%d,%d) of %s: %w", spec.From, spec.To, spec.Model, err)
		}
		c = &content{spec: contentOf(&spec), block: block}
		weights = block.Submodel().WeightBytes
	}
	c.users++
	sub := c.block.Submodel()
	s.stages[spec.ID] = &stage{spec: spec, content: c, inputs: sub.Inputs, outputs: sub.Outputs, bindings: map[bindKey]engine.Binding{}}
	return &Loaded{ID: spec.ID, Inputs: sub.Inputs, Outputs: sub.Outputs, WeightBytes: weights, LoadNS: monotonic() - start}, nil
}

// same is the content of a stage that loaded what another one asks for; nil:
// there is none.
func (s *server) same(spec *StageSpec) *content {
	want := contentOf(spec)
	for _, st := range s.stages {
		if st != nil && reflect.DeepEqual(st.content.spec, want) {
			return st.content
		}
	}
	return nil
}

func (s *server) segment(p []byte) (*Ready, error) {
	spec, err := parseJSON[SegmentSpec](TypeSegment, p)
	if err != nil {
		return nil, err
	}
	seg, err := s.received(TypeSegment, spec.ID, spec.Size)
	if err != nil {
		return nil, err
	}
	if s.segments[spec.ID] != nil {
		seg.Close()
		return nil, fmt.Errorf("segment %d is attached already", spec.ID)
	}
	// A GPU copies from and to locked memory directly. Where it may not be locked,
	// copies go the slower way through the driver's own.
	if p, ok := s.loader.(pinner); ok {
		if seg.unpin, err = p.Pin(seg.Data); err != nil {
			fmt.Fprintf(os.Stderr, "worker: segment %d stays pageable, copies to the GPU are slower: %v\n", spec.ID, err)
		}
	}
	s.segments[spec.ID] = seg
	if spec.Own {
		s.own = seg
	}
	return &Ready{For: TypeSegment.String(), ID: spec.ID, Pinned: seg.unpin != nil}, nil
}

// received maps the memory whose descriptor came with a frame.
func (s *server) received(t Type, id uint32, size int64) (*Segment, error) {
	if len(s.fds) == 0 {
		return nil, fmt.Errorf("%w: %s frame without descriptor", ErrProtocol, t)
	}
	fd := s.fds[0]
	s.fds = s.fds[1:]
	return mapSegment(id, fd, size)
}

func (s *server) prepare(ctx context.Context, p []byte) (*Ready, error) {
	l, err := parseJSON[Layout](TypePrepare, p)
	if err != nil {
		return nil, err
	}
	st := s.stage(l.ID)
	switch {
	case st == nil:
		return nil, fmt.Errorf("stage %d is not loaded", l.ID)
	case s.own == nil:
		return nil, fmt.Errorf("%w: prepare before the worker's own segment", ErrProtocol)
	case l.Slots < 1 || l.Stride < 0 || l.Base < 0 || l.Base+int64(l.Slots)*l.Stride > int64(len(s.own.Data)):
		return nil, fmt.Errorf("%w: %d slots of %d bytes from %d do not fit segment %d (%d bytes)", ErrProtocol, l.Slots, l.Stride, l.Base, s.own.ID, len(s.own.Data))
	}
	if l, ok := s.loader.(interface{ Loaded() }); ok {
		l.Loaded()
	}
	start := monotonic()
	// Large batches first: the engine's memory then grows once.
	for b := st.spec.MaxBatch; b >= 1 && l.Warm > 0; b-- {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if st.size(b) != b {
			continue
		}
		for slot := range min(l.Warm, l.Slots) {
			if l.InBytes == 0 {
				break // the input's place is known only when the batch comes
			}
			key := bindKey{batch: uint32(b), segment: s.own.ID, in: uint64(l.In(slot)), out: uint64(l.Out(slot))}
			if _, err := s.bind(st, key); err != nil {
				return nil, err
			}
		}
		if err := s.warm(ctx, st, l, b); err != nil {
			return nil, err
		}
	}
	// What loading left behind is collected now rather than during a run.
	runtime.GC()
	debug.FreeOSMemory()
	return &Ready{For: TypePrepare.String(), ID: l.ID, WarmNS: monotonic() - start}, nil
}

// warm runs a stage once at a batch size, with zeros.
func (s *server) warm(ctx context.Context, st *stage, l Layout, batch int) error {
	o := engine.BindOptions{Batch: batch, HostIO: true}
	var err error
	if l.InBytes > 0 {
		if o.Inputs, err = s.own.tensors(st.inputs, batch, l.In(0)); err != nil {
			return err
		}
	}
	if o.Outputs, err = s.own.tensors(st.outputs, batch, l.Out(0)); err != nil {
		return err
	}
	b, err := st.content.block.Bind(o)
	if err != nil {
		return fmt.Errorf("bind batch %d: %w", batch, err)
	}
	defer b.Close()
	if err := b.Run(ctx); err != nil {
		return fmt.Errorf("warm-up of %s at batch %d: %w", st.spec.Model, batch, err)
	}
	return nil
}

func (s *server) unload(p []byte) (*Ready, error) {
	u, err := parseJSON[Unload](TypeUnload, p)
	if err != nil {
		return nil, err
	}
	st := s.stage(u.ID)
	if st == nil {
		return nil, fmt.Errorf("stage %d is not loaded", u.ID)
	}
	s.stages[u.ID] = nil
	if err := st.close(); err != nil {
		return nil, fmt.Errorf("unload stage %d: %w", u.ID, err)
	}
	return &Ready{For: TypeUnload.String(), ID: u.ID}, nil
}

func (s *server) stage(id uint32) *stage {
	if int64(id) >= int64(len(s.stages)) {
		return nil
	}
	return s.stages[id]
}

// bind returns the binding of a batch size to two places in shared memory.
func (s *server) bind(st *stage, key bindKey) (engine.Binding, error) {
	if b := st.bindings[key]; b != nil {
		return b, nil
	}
	seg := s.segments[key.segment]
	if seg == nil {
		return nil, fmt.Errorf("segment %d is not attached", key.segment)
	}
	if s.own == nil {
		return nil, fmt.Errorf("%w: run before the worker's own segment", ErrProtocol)
	}
	if int(key.batch) > st.spec.MaxBatch {
		return nil, fmt.Errorf("batch %d of %s: at most %d was prepared", key.batch, st.spec.Model, st.spec.MaxBatch)
	}
	o := engine.BindOptions{Batch: int(key.batch), HostIO: true}
	var err error
	if o.Inputs, err = seg.place(key.inDevice, st.inputs, int(key.batch), int64(key.in)); err != nil {
		return nil, err
	}
	if o.Outputs, err = s.own.place(key.outDevice, st.outputs, int(key.batch), int64(key.out)); err != nil {
		return nil, err
	}
	b, err := st.content.block.Bind(o)
	if err != nil {
		return nil, fmt.Errorf("bind batch %d of %s: %w", key.batch, st.spec.Model, err)
	}
	if len(st.order) >= maxBindings {
		old := st.order[0]
		st.order = append(st.order[:0], st.order[1:]...)
		st.bindings[old].Close()
		delete(st.bindings, old)
	}
	st.bindings[key] = b
	st.order = append(st.order, key)
	return b, nil
}

// run executes one command and answers with what it took.
func (s *server) run(ctx context.Context, p []byte) error {
	r, err := ParseRun(p)
	if err != nil {
		return err
	}
	if s.alone && !s.steady {
		s.beSteady()
	}
	res := Result{ID: r.ID, Stage: r.Stage, Start: monotonic()}
	if st := s.stage(r.Stage); st == nil {
		res.Code, res.Text = Failed, fmt.Sprintf("stage %d is not loaded", r.Stage)
	} else if b, err := s.bind(st, bindKey{uint32(st.size(int(r.Batch))), r.Segment, r.In, r.Out, r.InDevice, r.OutDevice}); err != nil {
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
	s.out = AppendResult(s.out[:0], &res)
	return s.send()
}

func (st *stage) close() error {
	var errs []error
	for _, key := range st.order {
		errs = append(errs, st.bindings[key].Close())
	}
	if st.content.users--; st.content.users == 0 {
		errs = append(errs, st.content.block.Close())
	}
	return errors.Join(errs...)
}

func (s *server) close() {
	for _, st := range s.stages {
		if st != nil {
			st.close()
		}
	}
	// The device's memory goes before the engine that it is of.
	for _, seg := range s.segments {
		seg.Close()
	}
	if s.loader != nil {
		s.loader.Close()
	}
	for _, fd := range s.fds {
		unix.Close(fd)
	}
	if s.unpin != nil {
		s.unpin()
	}
}

// sleepUntil waits for a moment of CLOCK_MONOTONIC.
func sleepUntil(ctx context.Context, at int64) error {
	for {
		left := at - monotonic()
		if left <= 0 {
			return nil
		}
		// In pieces, so that a context that ends is seen.
		ts := unix.NsecToTimespec(min(at, monotonic()+int64(100*time.Millisecond)))
		if err := unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil); err != nil && err != unix.EINTR {
			return fmt.Errorf("sleep: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}
