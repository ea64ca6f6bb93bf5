//go:build cgo && !noort

package ort

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/engine/models"
)

func long() bool { return os.Getenv("INFERPLAN_LONG") != "" }

// open returns the engine, or skips where the library is not set up.
func open(t testing.TB) *Engine {
	t.Helper()
	e, err := Open("")
	if errors.Is(err, engine.ErrNoLibrary) {
		t.Skipf("ONNX Runtime is not set up: run `make setup` (%v)", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func model(t testing.TB, name string) *graph.Model {
	t.Helper()
	m, err := models.Open(name, models.Options{})
	if errors.Is(err, models.ErrAbsent) {
		t.Skipf("%s is not set up: run `make setup`", name)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// fill puts the seeded inputs seed, seed+1, ... into a tensor, one per sample.
// Images are smooth random waves, a different one per seed, with some noise:
// white noise alone would be averaged away by pooling.
func fill(t engine.Tensor, seed uint64) {
	spec, data := t.Spec(), t.Bytes()
	per := len(data) / t.Batch()
	for b := range t.Batch() {
		rng := rand.New(rand.NewPCG(seed+uint64(b), 7))
		part := data[b*per : (b+1)*per]
		switch spec.Type {
		case engine.I64: // token ids, or an attention mask of ones and zeros
			for i := 0; i < len(part); i += 8 {
				v := uint64(rng.IntN(100))
				if spec.Name == "attention_mask" {
					v = 1
					if i > len(part)*3/4 && seed%2 == 1 {
						v = 0
					}
				}
				binary.LittleEndian.PutUint64(part[i:], v)
			}
		case engine.F32:
			w := 1
			if len(spec.Shape) == 4 {
				w = int(spec.Shape[3])
			}
			plane := len(part) / 4
			if len(spec.Shape) == 4 {
				plane = int(spec.Shape[2]) * w
			}
			for c := 0; c < len(part)/4/plane; c++ {
				var fx, fy, ph, am [6]float64
				for k := range fx {
					fx[k], fy[k], ph[k], am[k] = rng.Float64()*0.4, rng.Float64()*0.4, rng.Float64()*6.28, rng.NormFloat64()*0.6
				}
				for i := range plane {
					v := rng.NormFloat64() * 0.4
					for k := range fx {
						v += am[k] * math.Sin(fx[k]*float64(i%w)+fy[k]*float64(i/w)+ph[k])
					}
					binary.LittleEndian.PutUint32(part[4*(c*plane+i):], math.Float32bits(float32(v)))
				}
			}
		default:
			panic("no generator for " + spec.String())
		}
	}
}

func floats(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

// relative is the largest difference over the largest magnitude. Not-a-number
// counts as infinite.
func relative(want, got []float32) float64 {
	var diff, size float64
	for i := range want {
		d := math.Abs(float64(want[i]) - float64(got[i]))
		if math.IsNaN(d) {
			return math.Inf(1)
		}
		diff, size = math.Max(diff, d), math.Max(size, math.Abs(float64(want[i])))
	}
	if size == 0 {
		return diff
	}
	return diff / size
}

func argmax(x []float32) int {
	best := 0
	for i := range x {
		if x[i] > x[best] {
			best = i
		}
	}
	return best
}

// line is a chain of bindings: outputs of one are the inputs of the next.
type line struct{ stages []engine.Binding }

func load(t testing.TB, e *Engine, blocks *graph.Blocks, batch int, o graph.SliceOptions) *line {
	t.Helper()
	ctx, l := context.Background(), &line{}
	var in []engine.Tensor
	for i := range blocks.Len() {
		so := o
		so.Extra = nil
		if i == blocks.Len()-1 {
			so.Extra = o.Extra
		}
		sub, err := blocks.Slice(i, i+1, so)
		if err != nil {
			t.Fatal(err)
		}
		b, err := e.Load(ctx, sub, engine.CPUDevice(0), engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		x, err := b.Bind(engine.BindOptions{Batch: batch, Inputs: in})
		if err != nil {
			t.Fatal(err)
		}
		l.stages = append(l.stages, x)
		in = x.Outputs()
	}
	return l
}
