package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"inferplan/engine"
	"inferplan/engine/replay"
)

var gpu = engine.Device{ID: "cuda:0", Kind: "L4", Share: 2}

// timedEngine takes as long for every block.
func timedEngine(took time.Duration) *replay.Engine {
	cost := func(string, int, int, engine.Device, int) (time.Duration, error) { return took, nil }
	return replay.New(cost, replay.Options{Devices: []engine.Device{gpu}})
}

// timedEngines are two engines for what measures blocks, one of which does not open.
func timedEngines(took time.Duration) map[string]Opener {
	return map[string]Opener{
		"timed": func(context.Context, *Hello) (Loader, error) {
			return &replayLoader{timedEngine(took), gpu}, nil
		},
		"none": func(context.Context, *Hello) (Loader, error) {
			return nil, fmt.Errorf("open the library: %w", engine.ErrNoLibrary)
		},
	}
}

func submodel(from, to int) *engine.Submodel {
	spec := func(i int) []engine.Spec {
		return []engine.Spec{{Name: fmt.Sprintf("t%d", i), Type: engine.F32, Shape: []int64{engine.BatchDim, 3}}}
	}
	return &engine.Submodel{Model: "m", Identity: "x", From: from, To: to, Blocks: 2, Inputs: spec(from), Outputs: spec(to), ONNX: []byte("onnx")}
}

func engineConfig(name string) Config {
	return Config{Hello: Hello{Engine: name}, Command: []string{os.Args[0]}, Env: []string{asWorker + "=timed"}, Stderr: io.Discard}
}

func startEngine(t *testing.T) *Engine {
	t.Helper()
	e, err := StartEngine(t.Context(), gpu, engineConfig("timed"))
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
func TestEngineGivesTheSameAnswers(t *testing.T) {
	e := startEngine(t)
	if got, want := e.Info(), timedEngine(0).Info(); got != want {
		t.Errorf("info %+v, want %+v", got, want)
	}
	devices, err := e.Devices()
	if err != nil || len(devices) != 1 || devices[0].ID != gpu.ID {
		t.Errorf("devices %v, %v", devices, err)
	}
	got, want := outputs(t, e), outputs(t, timedEngine(0))
	if !bytes.Equal(got, want) || bytes.Equal(got, make([]byte, len(got))) {
		t.Errorf("%x, want %x", got, want)
	}
}

func TestEngineRunsNTimesInside(t *testing.T) {
	e := startEngine(t)
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
	if err := errors.Join(x.Close(), b.Close(), x.Close(), b.Close()); err != nil {
		t.Error(err)
	}
	if _, err := x.RunN(1); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("a run after Close: %v, want %v", err, engine.ErrClosed)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if _, err := e.Load(t.Context(), submodel(0, 1), gpu, engine.Options{}); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("a call after Close: %v, want %v", err, engine.ErrClosed)
	}
}

func TestEngineErrorsKeepTheirKind(t *testing.T) {
	if _, err := StartEngine(t.Context(), gpu, engineConfig("none")); !errors.Is(err, engine.ErrNoLibrary) || !strings.Contains(err.Error(), "open the library") {
		t.Errorf("%v, want %v", err, engine.ErrNoLibrary)
	}
	c := engineConfig("timed")
	c.Command = []string{"sh", "-c", "exit 7"}
	if _, err := StartEngine(t.Context(), gpu, c); !errors.Is(err, ErrGone) || !strings.Contains(err.Error(), "7") {
		t.Errorf("a process that ends at once: %v, want %v", err, ErrGone)
	}
	e := startEngine(t)
	b, err := e.Load(t.Context(), submodel(0, 1), gpu, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	x, err := b.Bind(engine.BindOptions{Batch: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Load(t.Context(), &engine.Submodel{Model: "empty"}, gpu, engine.Options{}); !errors.Is(err, engine.ErrModel) {
		t.Errorf("a model of nothing: %v, want %v", err, engine.ErrModel)
	}
	if _, err := e.Load(t.Context(), submodel(0, 1), engine.CPUDevice(0), engine.Options{}); !errors.Is(err, engine.ErrNoDevice) {
		t.Errorf("another device: %v, want %v", err, engine.ErrNoDevice)
	}
	for _, data := range [][]byte{nil, {1}, make([]byte, 13)} {
		for name, err := range map[string]error{"write": x.Inputs()[0].Write(data), "read": x.Outputs()[0].Read(data)} {
			if !errors.Is(err, engine.ErrShape) {
				t.Errorf("a %s of %d bytes: %v, want %v", name, len(data), err, engine.ErrShape)
			}
		}
	}
	here, err := engine.NewHostTensor(submodel(0, 1).Inputs[0], 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]engine.BindOptions{
		"a tensor of this process": {Batch: 1, Inputs: []engine.Tensor{here}},
		"another batch":            {Batch: 2, Inputs: x.Inputs()},
		"too many tensors":         {Batch: 1, Outputs: []engine.Tensor{nil, x.Outputs()[0]}},
		"batch 0":                  {},
	} {
		if _, err := b.Bind(o); !errors.Is(err, engine.ErrShape) {
			t.Errorf("%s: %v, want %v", name, err, engine.ErrShape)
		}
	}
	if err := b.Close(); err == nil {
		t.Error("a block with a binding closes")
	}
	if err := errors.Join(x.Close(), b.Close()); err != nil {
		t.Error(err)
	}
	if _, err := b.Bind(engine.BindOptions{Batch: 1}); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("bind after Close: %v, want %v", err, engine.ErrClosed)
	}
	if err := x.Inputs()[0].Write(make([]byte, 12)); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("write after Close: %v, want %v", err, engine.ErrClosed)
	}
}

// A process that dies makes calls fail and Close say how it ended.
func TestEngineOfAKilledProcess(t *testing.T) {
	e := startEngine(t)
	b, err := e.Load(t.Context(), submodel(0, 1), gpu, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(e.p.PID(), syscall.SIGKILL); err != nil {
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
}

// A context that ends is heeded while the engine starts and during a call, whose
// late answer is nobody's: the engine only closes then, in peace.
func TestEngineEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	c := engineConfig("timed")
	c.Command = []string{"sh", "-c", "cat <&3"}
	if _, err := StartEngine(ctx, gpu, c); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a program that is no engine: %v", err)
	}
	e := startEngine(t)
	b, err := e.Load(t.Context(), submodel(0, 1), gpu, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	x, err := b.Bind(engine.BindOptions{Batch: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a run with an ended context: %v", err)
	}
	if _, err := x.RunN(1); err != nil {
		t.Errorf("a run after one that was not begun: %v", err)
	}
	// A stopped process answers late.
	if err := syscall.Kill(e.p.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := x.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a run that is broken off: %v", err)
	}
	if err := syscall.Kill(e.p.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if _, err := x.RunN(1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a run after one that was broken off: %v", err)
	}
	if err := errors.Join(x.Close(), b.Close(), e.Close()); err != nil {
		t.Error(err)
	}
}

// FuzzServe: whatever the parent sends, Serve returns.
func FuzzServe(f *testing.F) {
	frame := func(t Type, doc any) []byte {
		b, err := appendJSON(nil, t, doc)
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	hello := frame(TypeHello, Hello{Engine: "timed"})
	sub := submodel(0, 1)
	sub.ONNX = nil
	f.Add([]byte("\x03\x01\x02"))
	f.Add(frame(TypeProbe, Probe{Operation: "load", Block: 1}))
	f.Add(bytes.Join([][]byte{
		hello, frame(TypeProbe, Probe{Operation: "load", Block: 1, Submodel: *sub}),
		frame(TypeProbe, Probe{Operation: "bind", Block: 1, Binding: 2, Batch: 2, Inputs: []TensorRef{{}}}),
		frame(TypeProbe, Probe{Operation: "bind", Block: 1, Binding: 2, Batch: 1, Inputs: []TensorRef{{Binding: 2, Index: -1}}}),
		frame(TypeProbe, Probe{Operation: "run", Binding: 2, RunCount: 2}), frame(TypeProbe, Probe{Operation: "write"}),
		frame(TypeProbe, Probe{Operation: "read", Size: 9, Tensor: TensorRef{Binding: 2, Output: true}}), frame(TypeProbe, Probe{Operation: "unbind", Binding: 2}),
		frame(TypeProbe, Probe{Operation: "run", Binding: 2}), frame(TypeProbe, Probe{Operation: "unload", Block: 1}), frame(TypeProbe, Probe{Operation: "sing"}),
	}, nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		if bytes.Contains(data, []byte(`"runs":`)) && bytes.Contains(data, []byte("000")) {
			t.Skip("many runs take long")
		}
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		parent, err := parentConn(fds[0])
		if err != nil {
			t.Fatal(err)
		}
		defer parent.Close()
		go io.Copy(io.Discard, parent)
		go func() {
			parent.SetWriteDeadline(time.Now().Add(time.Second))
			parent.Write(data)
			parent.CloseWrite()
		}()
		if err := Serve(context.Background(), fds[1], timedEngines(0)); err == nil && len(data) > 0 {
			t.Logf("%d bytes are frames", len(data))
		}
	})
}
