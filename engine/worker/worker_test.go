package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	_ "runtime/cgo" // as in plan, where signal handlers are set through C
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"inferplan/engine"
)

// The test binary is its own worker: with this variable it serves the control
// socket instead of running tests.
const asWorker = "INFERPLAN_TEST_WORKER"

func TestMain(m *testing.M) {
	if as := os.Getenv(asWorker); as != "" {
		serves := Main
		if as == "timed" {
			serves = func(ctx context.Context) error {
				return serve(ctx, ControlFD, timedEngines(200*time.Microsecond), true)
			}
		}
		if as == "idle" {
			serves = func(ctx context.Context) error { return serve(ctx, ControlFD, idleEngines(), true) }
		}
		if err := serves(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// patient is time enough on any machine.
const patient = 10 * time.Minute

func replayConfig(infer ...time.Duration) Config {
	ns := make([]int64, len(infer))
	for i, d := range infer {
		ns[i] = int64(d)
	}
	in := []engine.Spec{{Name: "x", Type: engine.F32, Shape: []int64{-1, 5}}, {Name: "y", Type: engine.I64, Shape: []int64{-1}}}
	out := []engine.Spec{{Name: "z", Type: engine.F32, Shape: []int64{-1, 3}}}
	return Config{
		Hello:   Hello{Engine: "replay", Device: Device{Kind: "L4", Share: 1}},
		Stages:  []StageSpec{{ID: 0, Model: "m", To: 2, Blocks: 2, MaxBatch: len(ns), InferNS: ns, Inputs: in, Outputs: out}},
		Command: []string{os.Args[0]}, Env: []string{asWorker + "=1"},
	}
}

func layoutOf(l LoadedStage, maxBatch, slots int) Layout {
	in := Span(l.Inputs, maxBatch)
	return Layout{ID: l.ID, Stride: (in + Span(l.Outputs, maxBatch) + 4095) &^ 4095, InBytes: in, Slots: slots}
}

// setUp starts a worker, real or inside, with one segment of its own.
func setUp(t *testing.T, c Config, inside bool) (*Process, *Segment, Layout) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	var p *Process
	var err error
	if inside {
		p, err = StartInside(ctx, c, Engines())
	} else {
		p, err = Start(ctx, c)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Kill(); p.Wait() })
	l := layoutOf(p.Stages[0], c.Stages[0].MaxBatch, 4)
	seg, err := NewSegment(7, int64(l.Slots)*l.Stride)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { seg.Close() })
	if err := p.Attach(ctx, seg, true); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Prepare(ctx, l); err != nil {
		t.Fatal(err)
	}
	return p, seg, l
}

func receive(t *testing.T, p *Process, n int) []Result {
	t.Helper()
	var got []Result
	for len(got) < n {
		var err error
		if got, err = p.Receive(got); err != nil {
			t.Fatalf("after %d of %d results: %v", len(got), n, err)
		}
	}
	return got
}

func TestRunsAreFIFOAndLastAsPlanned(t *testing.T) {
	for _, inside := range []bool{true, false} {
		t.Run(fmt.Sprintf("inside=%v", inside), func(t *testing.T) {
			p, seg, l := setUp(t, replayConfig(2*time.Millisecond, 3*time.Millisecond), inside)
			before := monotonic()
			var runs []RunCommand
			for i := range 6 {
				runs = append(runs, RunCommand{ID: uint64(i), Batch: uint32(1 + i%2), Segment: seg.ID, InputOffset: uint64(l.InputOffset(i % 4)), OutputOffset: uint64(l.OutputOffset(i % 4))})
			}
			if err := p.Send(runs...); err != nil {
				t.Fatal(err)
			}
			last := before
			for i, r := range receive(t, p, len(runs)) {
				want := time.Duration(2+i%2) * time.Millisecond
				if r.ID != uint64(i) || r.Code != OK || r.Start < last || time.Duration(r.End-r.Start) < want {
					t.Errorf("result %d: %+v, started after %d, want at least %v", i, r, last, want)
				}
				last = r.End
			}
			if err := p.Shutdown(context.Background()); err != nil {
				t.Errorf("shutdown: %v", err)
			}
		})
	}
}

// A batch of a size that is not made ready runs as the next larger one: it takes
// that one's time, and the answers are those of its own samples.
func TestBatchesRunAtReadySizes(t *testing.T) {
	const long = 20 * time.Millisecond
	config := func(sizes ...int) Config {
		c := replayConfig(0, 0, 0, long)
		c.Stages[0].Inputs = c.Stages[0].Inputs[:1]
		c.Stages[0].Sizes = sizes
		return c
	}
	var answers [2][]byte
	for i, sizes := range [][]int{nil, {1, 4}} {
		p, seg, l := setUp(t, config(sizes...), true)
		data := seg.TensorAt(p.Stages[0].Inputs, 0, 2, l.InputOffset(0))
		for k := range data {
			data[k] = byte(k)
		}
		if err := p.Send(RunCommand{Batch: 2, Segment: seg.ID, InputOffset: uint64(l.InputOffset(0)), OutputOffset: uint64(l.OutputOffset(0))}); err != nil {
			t.Fatal(err)
		}
		r := receive(t, p, 1)[0]
		if r.Code != OK || sizes != nil && time.Duration(r.End-r.Start) < long {
			t.Errorf("sizes %v: %+v", sizes, r)
		}
		answers[i] = append([]byte(nil), seg.TensorAt(p.Stages[0].Outputs, 0, 2, l.OutputOffset(0))...)
	}
	if string(answers[0]) != string(answers[1]) {
		t.Error("another answer at the larger size")
	}
	// Several tensors lie at places that follow from the batch: it stays as it is.
	st := &stage{spec: StageSpec{Sizes: []int{1, 4}}, inputs: make([]engine.Spec, 2), outputs: make([]engine.Spec, 1)}
	if st.executedBatch(2) != 2 {
		t.Error("a batch of two tensors was moved")
	}
	for _, bad := range [][]int{{0, 4}, {4, 1}, {1, 2}} {
		c := config(bad...)
		if err := c.Stages[0].check(); err == nil {
			t.Errorf("sizes %v pass", bad)
		}
	}
}

func TestBadRunsAreAnswered(t *testing.T) {
	p, seg, l := setUp(t, replayConfig(0), true)
	good := RunCommand{Batch: 1, Segment: seg.ID, InputOffset: uint64(l.InputOffset(0)), OutputOffset: uint64(l.OutputOffset(0))}
	cases := map[string]func(r *RunCommand){
		"stage":      func(r *RunCommand) { r.Stage = 9 },
		"segment":    func(r *RunCommand) { r.Segment = 9 },
		"batch":      func(r *RunCommand) { r.Batch = 2 },
		"in beyond":  func(r *RunCommand) { r.InputOffset = uint64(len(seg.Data)) },
		"out beyond": func(r *RunCommand) { r.OutputOffset = 1 << 62 },
		"unaligned":  func(r *RunCommand) { r.InputOffset++ },
	}
	for name, spoil := range cases {
		r := good
		spoil(&r)
		if err := p.Send(r); err != nil {
			t.Fatal(err)
		}
		if got := receive(t, p, 1)[0]; got.Code == OK || got.Text == "" {
			t.Errorf("%s: %+v, want a failure with its text", name, got)
		}
	}
	if err := p.Send(good); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, p, 1)[0]; got.Code != OK {
		t.Errorf("a good run after bad ones: %+v", got)
	}
}

// A killed worker is noticed without waiting for what it runs.
func TestKillIsNoticedAtOnce(t *testing.T) {
	p, seg, l := setUp(t, replayConfig(time.Hour), false)
	if err := p.Send(RunCommand{Batch: 1, Segment: seg.ID, InputOffset: uint64(l.InputOffset(0)), OutputOffset: uint64(l.OutputOffset(0))}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Receive(nil); err != io.EOF {
		t.Errorf("Receive: %v, want EOF", err)
	}
	if p.Wait() == nil {
		t.Error("Wait: no error for a killed process")
	}
}

func TestWorkerEndsWithItsParent(t *testing.T) {
	p, _, _ := setUp(t, replayConfig(0), false)
	p.closeOnce.Do(func() { p.conn.Close() })
	<-p.Exited() // or the test's time-out
	if err := p.Wait(); err != nil {
		t.Errorf("a worker whose parent is gone: %v", err)
	}
}

func TestSetUpFailures(t *testing.T) {
	cases := []struct {
		name  string
		spoil func(*Config)
		is    error
	}{
		{"engine", func(c *Config) { c.Hello.Engine = "abacus" }, engine.ErrNoLibrary},
		{"cpu", func(c *Config) { c.Hello.Device.CPUs = []int{1000} }, engine.ErrNoDevice},
		{"times", func(c *Config) { c.Stages[0].MaxBatch = 9 }, engine.ErrModel},
		{"binary", func(c *Config) { c.Command = []string{"/nonexistent/worker"} }, os.ErrNotExist},
		{"dies", func(c *Config) { c.Command = []string{"/bin/false"} }, ErrGone},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cfg := replayConfig(0)
			cfg.Stages = append([]StageSpec(nil), cfg.Stages...)
			c.spoil(&cfg)
			_, err := Start(context.Background(), cfg)
			if !errors.Is(err, c.is) {
				t.Errorf("got %v, want %v", err, c.is)
			}
		})
	}
}

func TestStartEndsWithItsContext(t *testing.T) {
	cfg := replayConfig(0)
	cfg.Command = []string{"/bin/sleep", "60"}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := Start(ctx, cfg); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
}

// BenchmarkRoundTrip is what one run costs in time and allocations on the
// parent's side when the engine does nothing.
func BenchmarkRoundTrip(b *testing.B) {
	ctx := context.Background()
	p, err := Start(ctx, replayConfig(0))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { p.Kill(); p.Wait() }()
	l := layoutOf(p.Stages[0], 1, 2)
	seg, err := NewSegment(1, int64(l.Slots)*l.Stride)
	if err != nil {
		b.Fatal(err)
	}
	defer seg.Close()
	if err := p.Attach(ctx, seg, true); err != nil {
		b.Fatal(err)
	}
	if _, err := p.Prepare(ctx, l); err != nil {
		b.Fatal(err)
	}
	run := []RunCommand{{Batch: 1, Segment: 1, InputOffset: uint64(l.InputOffset(0)), OutputOffset: uint64(l.OutputOffset(0))}}
	var res []Result
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Send(run...); err != nil {
			b.Fatal(err)
		}
		if res, err = p.Receive(res[:0]); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(res[len(res)-1].Total)/float64(b.N), "worker-cpu-ns/op")
}

// Workers that are killed before they run their own program take nobody with them. Started at once,
// they took the test with them after 4 to 20 s.
func TestKilledAsTheyStart(t *testing.T) {
	span := time.Second
	if os.Getenv("INFERPLAN_LONG") != "" {
		span = time.Minute
	}
	end := time.Now().Add(span)
	var starting sync.WaitGroup
	for range 4 {
		starting.Go(func() {
			for time.Now().Before(end) {
				cmd := exec.Command("/bin/true")
				cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
				if err := startAlone(cmd); err == nil {
					_ = cmd.Wait() // most were killed
				}
			}
		})
	}
	tasks := fmt.Sprintf("/proc/%d/task/", os.Getpid())
	for time.Now().Before(end) {
		threads, err := os.ReadDir(tasks)
		if err != nil {
			t.Fatal(err)
		}
		for _, thread := range threads {
			children, _ := os.ReadFile(tasks + thread.Name() + "/children") // the thread may have ended
			for _, child := range strings.Fields(string(children)) {
				if pid, err := strconv.Atoi(child); err == nil {
					_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
				}
			}
		}
	}
	starting.Wait()
}
