package replay

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"inferplan/engine"
)

func fixed(d time.Duration) Cost {
	return func(model string, from, to int, _ engine.Device, batch int) (time.Duration, error) {
		if model != "m" {
			return 0, errors.New("no such model in the profile")
		}
		return d * time.Duration(to-from) * time.Duration(batch), nil
	}
}

func shape(name string, t engine.DType, dims ...int64) engine.Spec {
	return engine.Spec{Name: name, Type: t, Shape: append([]int64{engine.BatchDim}, dims...)}
}

// build binds a chain of submodels with the given tensors between them.
func build(t *testing.T, e *Engine, batch int, at ...engine.Spec) []engine.Binding {
	t.Helper()
	var out []engine.Binding
	var in []engine.Tensor
	for i := range len(at) - 1 {
		b, err := e.Load(context.Background(), &engine.Submodel{Model: "m", From: i, To: i + 1, Blocks: len(at) - 1,
			Inputs: at[i : i+1], Outputs: at[i+1 : i+2]}, engine.CPUDevice(0), engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		x, err := b.Bind(engine.BindOptions{Batch: batch, Inputs: in})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, x)
		in = x.Outputs()
	}
	return out
}

// An answer belongs to its request whatever lies between: cuts, types, batch.
func TestAnswersFollowInputs(t *testing.T) {
	e := New(fixed(0), Options{})
	image, logits := shape("image", engine.F32, 3, 8, 8), shape("logits", engine.F32, 10)
	chains := [][]engine.Spec{
		{image, logits},
		{image, shape("a", engine.F32, 16, 4, 4), logits},
		{image, shape("a", engine.F16, 16, 4, 4), shape("b", engine.I32, 7), logits},
		{image, shape("a", engine.F64, 5), shape("b", engine.U8, 5), shape("c", engine.I64, 5), logits},
	}
	answers := map[string]bool{}
	for k, at := range chains {
		for _, batch := range []int{1, 3} {
			chain := build(t, e, batch, at...)
			in, out := chain[0].Inputs()[0], chain[len(chain)-1].Outputs()[0]
			for s := range in.Bytes() {
				sample := s / (3 * 8 * 8 * 4)
				in.Bytes()[s] = byte(s*7 + 31*sample)
			}
			for _, b := range chain {
				if err := b.Run(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			if err := check([]engine.Tensor{in}, []engine.Tensor{out}); err != nil {
				t.Errorf("chain %d, batch %d: %v", k, batch, err)
			}
			answers[string(out.Bytes()[:40])] = true
			in.Bytes()[0]++
			if err := check([]engine.Tensor{in}, []engine.Tensor{out}); !errors.Is(err, errForeign) {
				t.Errorf("chain %d, batch %d: another request's answer passes: %v", k, batch, err)
			}
		}
	}
	if len(answers) != 1 {
		t.Errorf("the first sample has %d different answers", len(answers))
	}
}

func TestTakesItsTime(t *testing.T) {
	b := build(t, New(fixed(5*time.Millisecond), Options{}), 2, shape("x", engine.F32, 4), shape("y", engine.F32, 4))[0]
	got, err := b.RunN(3)
	if err != nil {
		t.Fatal(err)
	}
	if got.Runs != 3 || got.Wall < 30*time.Millisecond {
		t.Errorf("%v for 3 runs of 10ms", got.Wall)
	}
	if got.CPU > 10*time.Millisecond {
		t.Errorf("sleeping took %v of CPU", got.CPU)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	long := build(t, New(fixed(time.Hour), Options{}), 2, shape("x", engine.F32, 4), shape("y", engine.F32, 4))[0]
	if err := long.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a cancelled run gives %v", err)
	}
}

func TestRunAllocatesNothing(t *testing.T) {
	b := build(t, New(fixed(0), Options{}), 4, shape("x", engine.F32, 784), shape("y", engine.F32, 10))[0]
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if n := testing.AllocsPerRun(100, func() { _ = b.Run(ctx) }); n != 0 {
		t.Errorf("%v allocations per run", n)
	}
}

func TestReplayRefusesWrongBindings(t *testing.T) {
	e := New(fixed(0), Options{})
	ctx := context.Background()
	x := shape("x", engine.F32, 4)
	sub := &engine.Submodel{Model: "m", To: 1, Inputs: []engine.Spec{x}, Outputs: []engine.Spec{x}}
	if _, err := e.Load(ctx, &engine.Submodel{Model: "other", Inputs: sub.Inputs, Outputs: sub.Outputs}, engine.CPUDevice(0), engine.Options{}); !errors.Is(err, engine.ErrModel) {
		t.Errorf("unknown model: %v", err)
	}
	b, err := e.Load(ctx, sub, engine.CPUDevice(0), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	wrong, _ := engine.NewHostTensor(shape("x", engine.F32, 5), 1, nil)
	for name, o := range map[string]engine.BindOptions{
		"batch 0":     {},
		"wrong shape": {Batch: 1, Inputs: []engine.Tensor{wrong}},
		"too many":    {Batch: 1, Inputs: []engine.Tensor{nil, nil}},
	} {
		if _, err := b.Bind(o); !errors.Is(err, engine.ErrShape) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Bind(engine.BindOptions{Batch: 1}); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("bind after close: %v", err)
	}
}

// errForeign says that an answer belongs to another request.
var errForeign = errors.New("the answer belongs to another request")

// check returns an error if the outputs of a whole model do not answer the given inputs.
func check(inputs, outputs []engine.Tensor) error {
	if len(inputs) == 0 || len(outputs) == 0 || inputs[0].Batch() != outputs[0].Batch() {
		return fmt.Errorf("%w: inputs and outputs of one batch are needed", engine.ErrShape)
	}
	batch := inputs[0].Batch()
	for s := range batch {
		want := sampleDigest(inputs, batch, s)
		for _, t := range outputs {
			data := t.Bytes()
			per := len(data) / batch
			part := data[s*per : (s+1)*per]
			// An output of fewer elements carries the low bits.
			mask := uint64(1)<<(min(per/t.Spec().Type.Size(), digestElements)*bitsEach) - 1
			if readSample(part, t.Spec().Type) != want&mask {
				return fmt.Errorf("sample %d, output %s: %w", s, t.Spec().Name, errForeign)
			}
		}
	}
	return nil
}
