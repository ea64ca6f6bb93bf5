package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"inferplan/engine"
	"inferplan/engine/replay"
)

const asProcess = "INFERPLAN_TEST_ENGINE"

func TestMain(m *testing.M) {
	switch os.Getenv(asProcess) {
	case "":
		goleak.VerifyTestMain(m)
	case "replay":
		exit(Main(func() (engine.Engine, error) { return testEngine(), nil }))
	case "none":
		exit(Main(func() (engine.Engine, error) {
			return nil, fmt.Errorf("open the library: %w", engine.ErrNoLibrary)
		}))
	default:
		os.Exit(7)
	}
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

var gpu = engine.Device{ID: "cuda:0", Kind: "L4", Share: 2}

func testEngine() engine.Engine {
	cost := func(string, int, int, engine.Device, int) (time.Duration, error) { return 200 * time.Microsecond, nil }
	return replay.New(cost, replay.Options{Devices: []engine.Device{gpu}})
}

func submodel(from, to int) *engine.Submodel {
	spec := func(i int) []engine.Spec {
		return []engine.Spec{{Name: fmt.Sprintf("t%d", i), Type: engine.F32, Shape: []int64{engine.BatchDim, 3}}}
	}
	return &engine.Submodel{Model: "m", Identity: "x", From: from, To: to, Blocks: 2, Inputs: spec(from), Outputs: spec(to)}
}

func start(t *testing.T, kind string) *Engine {
	t.Helper()
	e, err := Start(t.Context(), Config{Command: []string{os.Args[0]}, Env: []string{asProcess + "=" + kind}, Stderr: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// outputs runs a chain of two blocks on one input and returns what comes out.
func outputs(t *testing.T, e engine.Engine) []byte {
	t.Helper()
	var last engine.Binding
	for i := range 2 {
		b, err := e.Load(t.Context(), submodel(i, i+1), gpu, engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		o := engine.BindOptions{Batch: 2}
		if last != nil {
			o.Inputs = last.Outputs()
		}
		x, err := b.Bind(o)
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		if last == nil {
			in := bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7, 8}, 3)
			if err := x.Inputs()[0].Write(in); err != nil {
				t.Fatal(err)
			}
		}
		if err := x.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		last = x
	}
	out := make([]byte, 24)
	if err := last.Outputs()[0].Read(out); err != nil {
		t.Fatal(err)
	}
	return out
}

// An engine in another process computes what the same engine computes here.
func TestSameAnswers(t *testing.T) {
	e := start(t, "replay")
	if got, want := e.Info(), testEngine().Info(); got != want {
		t.Errorf("info %+v, want %+v", got, want)
	}
	devices, err := e.Devices()
	if err != nil || len(devices) != 1 || devices[0].ID != gpu.ID {
		t.Errorf("devices %v, %v", devices, err)
	}
	got, want := outputs(t, e), outputs(t, testEngine())
	if !bytes.Equal(got, want) || bytes.Equal(got, make([]byte, len(got))) {
		t.Errorf("%x, want %x", got, want)
	}
}

func TestRunNTimesInside(t *testing.T) {
	e := start(t, "replay")
	b, err := e.Load(t.Context(), submodel(0, 2), gpu, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	x, err := b.Bind(engine.BindOptions{Batch: 1})
	if err != nil {
		t.Fatal(err)
	}
	timing, err := x.RunN(5)
	if err != nil || timing.Runs != 5 || timing.Wall < time.Millisecond {
		t.Errorf("timing %+v, %v: expected 5 runs of 200 us", timing, err)
	}
	if _, err := x.RunN(0); err == nil {
		t.Error("RunN(0) passes")
	}
	if err := errors.Join(x.Close(), b.Close()); err != nil {
		t.Error(err)
	}
	if _, err := x.RunN(1); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("a run after Close: %v, want %v", err, engine.ErrClosed)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if _, err := e.Devices(); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("a call after Close: %v, want %v", err, engine.ErrClosed)
	}
}

func TestErrorsKeepTheirKind(t *testing.T) {
	_, err := Start(t.Context(), Config{Command: []string{os.Args[0]}, Env: []string{asProcess + "=none"}, Stderr: io.Discard})
	if !errors.Is(err, engine.ErrNoLibrary) || !strings.Contains(err.Error(), "open the library") {
		t.Errorf("%v, want %v", err, engine.ErrNoLibrary)
	}
	if _, err := Start(t.Context(), Config{Command: []string{os.Args[0]}, Env: []string{asProcess + "=unknown"}, Stderr: io.Discard}); !errors.Is(err, ErrGone) {
		t.Errorf("a process that ends at once: %v, want %v", err, ErrGone)
	}
	e := start(t, "replay")
	b, err := e.Load(t.Context(), submodel(0, 1), gpu, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	x, err := b.Bind(engine.BindOptions{Batch: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Inputs()[0].Write([]byte{1}); !errors.Is(err, engine.ErrShape) {
		t.Errorf("a short write: %v, want %v", err, engine.ErrShape)
	}
	here, err := engine.NewHostTensor(submodel(0, 1).Inputs[0], 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Bind(engine.BindOptions{Batch: 1, Inputs: []engine.Tensor{here}}); !errors.Is(err, engine.ErrShape) {
		t.Errorf("a tensor of this process: %v, want %v", err, engine.ErrShape)
	}
	if err := b.Close(); err == nil {
		t.Error("a block with a binding closes")
	}
}

// A process that dies makes calls fail and Close say how it ended; a program
// that is no engine is given up with the context.
func TestKilledProcess(t *testing.T) {
	e := start(t, "replay")
	b, err := e.Load(t.Context(), submodel(0, 1), gpu, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(e.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Bind(engine.BindOptions{Batch: 1}); !errors.Is(err, ErrGone) {
		t.Errorf("bind in a killed process: %v, want %v", err, ErrGone)
	}
	if err := b.Close(); err != nil {
		t.Errorf("what the process took with it closes with %v", err)
	}
	if err := e.Close(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("close says %v, expected how the process ended", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	// Were the context not heeded, this would last until the test's time-out.
	if _, err := Start(ctx, Config{Command: []string{"sh", "-c", "cat <&3"}, Stderr: io.Discard}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a program that is no engine: %v", err)
	}
}

func FuzzServe(f *testing.F) {
	f.Add([]byte("\x03\x01\x02"))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, b := net.Pipe()
		defer a.Close()
		go io.Copy(io.Discard, a)
		go func() {
			a.SetWriteDeadline(time.Now().Add(time.Second))
			a.Write(data)
			a.Close()
		}()
		if err := Serve(b, testEngine()); err == nil && len(data) > 0 {
			t.Logf("%d bytes are calls", len(data))
		}
		b.Close()
	})
}
