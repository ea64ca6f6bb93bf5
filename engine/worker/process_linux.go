package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Config describes the worker to start.
type Config struct {
	Hello  Hello
	Stages []StageSpec
	// Cache, if given, keeps the stages in the host's memory. No stage is then loaded before it is swapped in
	// (Swap, SendSwap).
	Cache *Cache
	// Command starts the worker. If it is nil, this binary does, with the argument "worker". Env is added to this
	// process's environment.
	Command []string
	Env     []string
	Stderr  io.Writer // receives the worker's error output; if nil, this process's standard error
}

// Process is a worker as its parent sees it. One goroutine does the set-up (Start, Attach, Prepare), a step after
// the other. Afterwards one goroutine calls Receive and another Send. Any goroutine may call Kill, Shutdown and
// Wait.
type Process struct {
	Welcome Welcome
	Stages  []LoadedStage // the loaded stages, in the order of Config.Stages

	conn        *net.UnixConn // this end of the control socket
	cmd         *exec.Cmd     // nil for a worker inside this process
	decoder     Decoder
	outFrame    []byte        // the last frames sent, whose memory is used again
	exited      chan struct{} // closed when the worker has ended
	exitErr     error         // how it ended, valid once exited is closed
	closeOnce   sync.Once
	swapResults []SwapResult // received by the last Receive
	pageable    int          // number of attached segments that are not locked for the device
}

// ErrGone is returned when the worker has ended, or was killed.
var ErrGone = errors.New("worker is gone")

// Start starts a worker process, opens its engine and loads its stages. It
// fails when ctx ends before the worker is ready; later the context has no
// effect on the process.
func Start(ctx context.Context, c Config) (*Process, error) {
	p, fd, err := newProcess()
	if err != nil {
		return nil, err
	}
	child := os.NewFile(uintptr(fd), "worker-control")
	defer child.Close()
	argv := c.Command
	if argv == nil {
		self, err := os.Executable()
		if err != nil {
			p.conn.Close()
			return nil, fmt.Errorf("find this binary to start a worker: %w", err)
		}
		argv = []string{self, "worker"}
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.ExtraFiles = []*os.File{child} // descriptor 3 = ControlFD
	cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(max(2, c.Hello.Device.Threads)))
	cmd.Env = append(cmd.Env, c.Env...)
	cmd.Stderr = c.Stderr
	if c.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	// The worker gets its own process group: an interrupt typed at the terminal goes to the parent, which first
	// drains.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := startAlone(cmd); err != nil {
		p.conn.Close()
		return nil, fmt.Errorf("start worker %s: %w", argv[0], err)
	}
	child.Close() // else this process would not see the end of the worker
	p.cmd = cmd
	return p.begin(ctx, c, cmd.Wait)
}

// startMu is held while a process is started, see startAlone.
var startMu sync.Mutex

// startAlone starts a process while no other worker is being started. Until it runs its own program
// a new process shares the memory of this one. If two are started at once, the runtime of Go 1.26
// resets signal handlers of one on the stack of the scheduler (runtime.sigaction), and if that one
// is killed there, this process ends with "morestack on g0".
func startAlone(cmd *exec.Cmd) error {
	startMu.Lock()
	defer startMu.Unlock()
	return cmd.Start()
}

// StartInside starts a worker that is a goroutine of this process: for tests, and for engines that cannot fail the
// process.
func StartInside(ctx context.Context, c Config, engines map[string]Opener) (*Process, error) {
	p, fd, err := newProcess()
	if err != nil {
		return nil, err
	}
	return p.begin(ctx, c, func() error { return Serve(context.Background(), fd, engines) })
}

// newProcess makes a control socket, over which the parent commands a worker. It returns a Process that holds one
// end, and has no worker yet, and the descriptor of the worker's end.
func newProcess() (p *Process, fd int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("create control socket: %w", err)
	}
	conn, err := parentConn(fds[0])
	if err != nil {
		unix.Close(fds[1])
		return nil, 0, err
	}
	return &Process{conn: conn, exited: make(chan struct{})}, fds[1], nil
}

// begin sets up a worker that was started on the other end of the control socket: it opens its engine and loads its
// stages. wait returns when the worker has ended. If the set-up fails, the worker is killed. p.exited is closed then.
func (p *Process) begin(ctx context.Context, c Config, wait func() error) (*Process, error) {
	go func() {
		p.exitErr = wait()
		close(p.exited)
	}()
	if err := p.setUp(ctx, c); err != nil {
		p.Kill()
		<-p.exited
		return nil, err
	}
	return p, nil
}

// parentConn makes a connection of a descriptor of the control socket.
func parentConn(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "worker-control")
	defer f.Close() // FileConn works on a duplicate
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return c.(*net.UnixConn), nil // one end of a socket pair
}

// setUp has the worker open its engine, and load its stages or, with a cache, keep them in memory of the host. It
// fills p.Welcome and p.Stages.
func (p *Process) setUp(ctx context.Context, c Config) error {
	name := fmt.Sprintf("worker of device %s %d", c.Hello.Device.Kind, c.Hello.Device.Index)
	if err := call(ctx, p, TypeHello, c.Hello, TypeWelcome, &p.Welcome); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	p.Stages = make([]LoadedStage, len(c.Stages))
	for i := range c.Stages {
		if c.Cache != nil {
			l, err := c.Cache.keepStage(ctx, p, &c.Stages[i], c.Hello.Execution.FP16)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			p.Stages[i] = *l
			continue
		}
		if err := call(ctx, p, TypeLoad, c.Stages[i], TypeLoaded, &p.Stages[i]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// PID returns the process ID of the worker.
func (p *Process) PID() int { return p.Welcome.PID }

// CPU returns the CPU time that a worker of this machine has used, or 0 if that is not known.
func (p *Process) CPU() time.Duration {
	var t unix.Timespec
	// This is the CPU clock of another process, see clock_getcpuclockid(3).
	if unix.ClockGettime(int32(^p.PID()<<3|2), &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// IsRunnable reports whether a thread of a worker of this machine runs or waits for a CPU. If that is not known, or the
// worker is stopped or sleeps, it returns false.
func (p *Process) IsRunnable() bool {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.PID()))
	if err != nil {
		return false
	}
	return slices.ContainsFunc(stats, func(path string) bool {
		// The state is the letter behind the command's name, which stands in parentheses and may contain any byte, see proc(5).
		text, err := os.ReadFile(path)
		nameEnd := bytes.LastIndexByte(text, ')')
		return err == nil && nameEnd >= 0 && bytes.HasPrefix(text[nameEnd:], []byte(") R"))
	})
}

// Attach gives the worker a segment (shared memory) to read inputs from or, with forOutput, to write its outputs to.
// It is part of the set-up.
func (p *Process) Attach(ctx context.Context, s *Segment, forOutput bool) error {
	var r ReadyReply
	err := call(ctx, p, TypeSegment, SegmentSpec{s.ID, int64(len(s.Data)), forOutput}, TypeReady, &r, s)
	if !r.Pinned {
		p.pageable++
	}
	return err
}

// AllPinned reports whether the device copies directly from and to all attached segments.
func (p *Process) AllPinned() bool { return p.pageable == 0 }

// ShareMemory, without a handle, allocates memory of the worker's device beside a segment and returns its handle.
// With a handle, it maps the memory of the worker that returned the handle.
func (p *Process) ShareMemory(ctx context.Context, s *Segment, handle []byte) ([]byte, error) {
	var r DeviceSpec
	err := call(ctx, p, TypeShare, DeviceSpec{s.ID, int64(len(s.Data)), handle}, TypeShare, &r)
	return r.Handle, err
}

// Prepare lays out the slots of a stage, binds them and warms the stage up.
func (p *Process) Prepare(ctx context.Context, l Layout) (warm time.Duration, err error) {
	var r ReadyReply
	err = call(ctx, p, TypePrepare, l, TypeReady, &r)
	return time.Duration(r.WarmNS), err
}

// Swap has the worker do a swap and waits for the result. It is for the set-up. The error is that of the
// communication; that of the swap is in the result.
func (p *Process) Swap(ctx context.Context, q Swap) (SwapResult, error) {
	var a SwapResult
	err := call(ctx, p, TypeSwap, q, TypeSwapped, &a)
	return a, err
}

// SendSwap has the worker load kept stages onto its device, or remove some (a swap), beside its runs. It does not
// wait: a later Receive gets the result.
func (p *Process) SendSwap(q Swap) error {
	b, err := appendJSON(nil, TypeSwap, q)
	if err != nil {
		return err
	}
	if _, err := p.conn.Write(b); err != nil {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return nil
}

// SwapResults returns the results of swaps that the last Receive has received.
func (p *Process) SwapResults() []SwapResult { return p.swapResults }

// call sends a set-up frame of type t with the JSON document doc, and the descriptors of segments, and waits for the
// answer of type wantedType, which it decodes into reply. A failure that the worker reports is a RemoteError.
func call(ctx context.Context, p *Process, t Type, doc any, wantedType Type, reply any, segments ...*Segment) error {
	b, err := appendJSON(nil, t, doc)
	if err != nil {
		return err
	}
	for _, s := range segments { // the descriptors travel with the first bytes of the frame
		if _, _, err := p.conn.WriteMsgUnix(b[:1], unix.UnixRights(s.fd), nil); err != nil {
			return p.exitError(err)
		}
		b = b[1:]
	}
	if _, err := p.conn.Write(b); err != nil {
		return p.exitError(err)
	}
	return p.awaitReply(ctx, wantedType, reply)
}

// awaitReply waits for a frame of type wantedType, and decodes it into reply. It ends when the context does. Errors
// that the worker reports are RemoteErrors.
func (p *Process) awaitReply(ctx context.Context, wantedType Type, reply any) error {
	// End a blocked read when the context ends, and allow reads again afterwards.
	deadlineSet := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { p.conn.SetReadDeadline(time.Unix(1, 0)); close(deadlineSet) })
	defer func() {
		if !stop() {
			<-deadlineSet
			p.conn.SetReadDeadline(time.Time{})
		}
	}()

	// Read frames until the expected one comes.
	for {
		t, payload, ok, err := p.decoder.NextFrame()
		if err != nil {
			return err
		}
		if !ok {
			n, err := p.conn.Read(p.decoder.Space())
			if ctx.Err() != nil {
				return fmt.Errorf("wait for the worker's %s: %w", wantedType, ctx.Err())
			}
			if err != nil {
				return p.exitError(err)
			}
			p.decoder.MarkFilled(n)
			continue
		}
		switch {
		case t == wantedType:
			return decodeJSON(t, payload, reply)
		case t == TypeError:
			f, err := parseJSON[Failure](t, payload)
			if err != nil {
				return err
			}
			return &RemoteError{f.Code, f.Text}
		default:
			return fmt.Errorf("%w: %s from the worker, expected %s", ErrProtocol, t, wantedType)
		}
	}
}

// exitError is called when the connection to the worker broke with err. It returns an error that says how the worker
// ended, for which it waits up to a second.
func (p *Process) exitError(err error) error {
	select {
	case <-p.exited:
	case <-time.After(time.Second):
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	if p.exitErr != nil {
		return fmt.Errorf("%w: %w", ErrGone, p.exitErr)
	}
	return fmt.Errorf("%w: it ended by itself", ErrGone)
}

// Send has the worker do runs, in order. It does not wait for them: Receive gets the results. The socket can buffer
// thousands of commands.
func (p *Process) Send(runs ...RunCommand) error {
	b := p.outFrame[:0]
	for i := range runs {
		b = AppendRun(b, &runs[i])
	}
	p.outFrame = b
	if _, err := p.conn.Write(b); err != nil {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return nil
}

// Receive waits for results of runs or swaps. It appends the results of runs to buf and returns that; SwapResults
// has those of swaps. It returns io.EOF as soon as the worker has ended or was killed.
func (p *Process) Receive(buf []Result) ([]Result, error) {
	before := len(buf)
	p.swapResults = p.swapResults[:0]
	for {
		// Take the frames that have arrived. Wait for more only if there are none.
		t, payload, ok, err := p.decoder.NextFrame()
		if err != nil {
			return buf, err
		}
		if !ok {
			if len(buf) > before || len(p.swapResults) > 0 {
				return buf, nil
			}
			n, err := p.conn.Read(p.decoder.Space())
			if err != nil || n == 0 {
				if err == nil || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) {
					return buf, io.EOF
				}
				return buf, fmt.Errorf("read from worker %d: %w", p.PID(), err)
			}
			p.decoder.MarkFilled(n)
			continue
		}
		switch t {
		case TypeResult:
			r, err := ParseResult(payload)
			if err != nil {
				return buf, err
			}
			buf = append(buf, r)
		case TypeSwapped:
			a, err := parseJSON[SwapResult](t, payload)
			if err != nil {
				return buf, err
			}
			p.swapResults = append(p.swapResults, a)
		default:
			return buf, fmt.Errorf("%w: %s from the worker, expected a result", ErrProtocol, t)
		}
	}
}

// Kill ends the worker at once.
func (p *Process) Kill() {
	if p.cmd != nil && p.cmd.Process != nil {
		p.cmd.Process.Kill()
	}
	p.closeOnce.Do(func() { p.conn.Close() })
}

// Shutdown lets the worker finish its commands and end. If ctx ends first, the worker is killed.
func (p *Process) Shutdown(ctx context.Context) error {
	p.conn.Write(AppendFrame(nil, TypeShutdown, nil))
	p.conn.CloseWrite()
	select {
	case <-p.exited:
	case <-ctx.Done():
		p.Kill()
		<-p.exited
	}
	p.closeOnce.Do(func() { p.conn.Close() })
	return p.exitErr
}

// Exited is closed when the process has ended and was waited for.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Wait waits for the end of the process and returns how it ended.
func (p *Process) Wait() error {
	<-p.exited
	return p.exitErr
}
