//go:build cgo && !noort

package ort

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
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
type line struct {
	blocks []engine.Block
	stages []engine.Binding
}

func load(t testing.TB, e *Engine, blocks *graph.Blocks, batch int, o graph.SliceOptions) *line {
	t.Helper()
	l := &line{}
	extra := slices.DeleteFunc(slices.Clone(o.Extra), func(name string) bool { // made by an earlier block
		return slices.Contains(blocks.Cut(blocks.Len()-1).Names(), name)
	})
	var in []engine.Tensor
	for i := range blocks.Len() {
		if o.Extra = nil; i == blocks.Len()-1 {
			o.Extra = extra
		}
		sub, err := blocks.Slice(i, i+1, o)
		if err != nil {
			t.Fatal(err)
		}
		b, err := e.Load(context.Background(), sub, engine.CPUDevice(0), engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		x, err := b.Bind(engine.BindOptions{Batch: batch, Inputs: in})
		if err != nil {
			t.Fatal(err)
		}
		l.blocks, l.stages = append(l.blocks, b), append(l.stages, x)
		in = x.Outputs()
	}
	return l
}

// run feeds the first stage and runs all.
func (l *line) run(t testing.TB, feeds []engine.Tensor) {
	t.Helper()
	for k, f := range feeds {
		if err := l.stages[0].Inputs()[k].Write(f.Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range l.stages {
		if err := s.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

func (l *line) close(t testing.TB) {
	t.Helper()
	for i := len(l.blocks) - 1; i >= 0; i-- {
		if err := l.blocks[i].Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func feedsFor(t testing.TB, m *graph.Model, batch, first int) []engine.Tensor {
	t.Helper()
	var feeds []engine.Tensor
	for _, s := range m.Inputs {
		x, err := engine.NewHostTensor(s, batch, nil)
		if err != nil {
			t.Fatal(err)
		}
		fill(x, uint64(first))
		feeds = append(feeds, x)
	}
	return feeds
}

// chainOf cuts a model into n blocks of about equal numbers of operators.
func chainOf(t testing.TB, e *Engine, m *graph.Model, n int) *graph.Blocks {
	t.Helper()
	c, err := m.Chain(context.Background(), e.Probe, graph.ChainOptions{})
	if err != nil {
		t.Fatal(err)
	}
	costs := make([]float64, c.AtomCount())
	for i := range costs {
		costs[i] = float64(c.EachAtom().Nodes(i, i+1))
	}
	blocks, err := c.Partition(costs, n)
	if err != nil {
		t.Fatal(err)
	}
	if blocks.Len() < 2 {
		t.Fatalf("%s: only %d blocks", m.Name, blocks.Len())
	}
	return blocks
}

// samples is the number of seeded inputs of the chain tests.
const samples = 8

type chainResult struct {
	model    string
	blocks   int
	worst    float64 // over all cut tensors, logits, batches and inputs
	logits   float64
	spread   float64 // smallest relative difference between two inputs' logits
	compared int     // times that logits were held against each other
}

// checkChain holds the chain of blocks against the whole model: every tensor
// that crosses, and the logits, at batch 1 and 4.
func checkChain(t *testing.T, e *Engine, m *graph.Model, n int) chainResult {
	t.Helper()
	blocks, logits := chainOf(t, e, m, n), m.Logits()
	// The whole model gives every tensor that crosses a cut, and the logits.
	inputs := map[string]bool{}
	for _, s := range m.Inputs {
		inputs[s.Name] = true
	}
	want := slices.Clone(logits)
	for i := 1; i < blocks.Len(); i++ {
		for _, name := range blocks.Cut(i).Names() {
			if !inputs[name] && !slices.Contains(want, name) {
				want = append(want, name)
			}
		}
	}
	// Its extra outputs keep the runtime from fusing across cuts; the plain one
	// gives the logits only.
	ref, plain := wholeWith(t, e, blocks, want), wholeWith(t, e, blocks, logits)
	r := chainResult{model: m.Name, blocks: blocks.Len(), spread: math.Inf(1)}
	var outs [][]float32
	for _, batch := range []int{1, 4} {
		x, err := ref.Bind(engine.BindOptions{Batch: batch})
		if err != nil {
			t.Fatal(err)
		}
		y, err := plain.Bind(engine.BindOptions{Batch: batch})
		if err != nil {
			t.Fatal(err)
		}
		l := load(t, e, blocks, batch, graph.SliceOptions{Extra: logits})
		for first := 0; first < samples; first += batch {
			feeds := feedsFor(t, m, batch, first)
			(&line{stages: []engine.Binding{x}}).run(t, feeds)
			(&line{stages: []engine.Binding{y}}).run(t, feeds)
			expect := map[string]engine.Tensor{}
			for _, o := range x.Outputs() {
				expect[o.Spec().Name] = o
			}
			l.run(t, feeds)
			for _, s := range l.stages {
				for _, o := range s.Outputs() {
					if slices.Contains(want, o.Spec().Name) { // else an input passed on, or what a Softmax made of the logits
						where := fmt.Sprintf("%s batch %d input %d", m.Name, batch, first)
						r.compare(t, where, o, expect[o.Spec().Name], y.Outputs(), slices.Contains(logits, o.Spec().Name))
					}
				}
			}
			if batch == 1 {
				outs = append(outs, floats(expect[logits[0]].Bytes()))
			}
		}
		l.close(t)
		for _, b := range []engine.Binding{x, y} {
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, b := range []engine.Block{ref, plain} {
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if r.compared != len(logits)*(samples+samples/4) {
		t.Errorf("%s: logits were compared %d times", m.Name, r.compared)
	}
	tops := map[int]bool{}
	for i := range outs {
		tops[argmax(outs[i])] = true
		for j := range i {
			r.spread = math.Min(r.spread, relative(outs[i], outs[j]))
		}
	}
	if r.spread < 1e-2 {
		t.Errorf("%s: the logits of two inputs differ by only %.2g of the largest: the comparison shows nothing", m.Name, r.spread)
	}
	t.Logf("%-13s %2d blocks: max relative difference %.2g (logits %.2g); any two inputs differ by at least %.2g, %d distinct top-1 of %d",
		r.model, r.blocks, r.worst, r.logits, r.spread, len(tops), samples)
	return r
}

// wholeWith loads the whole model with more outputs.
func wholeWith(t *testing.T, e *Engine, blocks *graph.Blocks, extra []string) engine.Block {
	t.Helper()
	whole, err := blocks.Chain.WholeModel().Slice(0, 1, graph.SliceOptions{Extra: extra})
	if err != nil {
		t.Fatal(err)
	}
	b, err := e.Load(context.Background(), whole, engine.CPUDevice(0), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// compare holds a tensor of the chain against the whole model's, logits also against
// those of the plain one.
func (r *chainResult) compare(t *testing.T, where string, o, expect engine.Tensor, plain []engine.Tensor, logits bool) {
	t.Helper()
	name := o.Spec().Name
	if o.Spec().Type != engine.F32 {
		if !bytes.Equal(o.Bytes(), expect.Bytes()) {
			t.Errorf("%s: tensor %s differs", where, name)
		}
		return
	}
	d := relative(floats(expect.Bytes()), floats(o.Bytes()))
	if logits {
		r.compared++
		for _, p := range plain {
			if p.Spec().Name == name {
				d = math.Max(d, relative(floats(p.Bytes()), floats(o.Bytes())))
			}
		}
		r.logits = math.Max(r.logits, d)
	}
	r.worst = math.Max(r.worst, d)
	if !(d <= 1e-5) {
		t.Errorf("%s: tensor %s differs by %.2g of its largest value", where, name, d)
	}
}

// untrained lists the catalogue without the digits, which are trained when they
// are opened and whose own package tests their graphs.
func untrained() []string {
	return slices.DeleteFunc(models.Names(), func(n string) bool { return strings.HasPrefix(n, "digits-") })
}

func TestChainEqualsWhole(t *testing.T) {
	e := open(t)
	names := []string{"squeezenet", "shufflenet", "resnet50", "ocr_rec"}
	switch {
	case long():
		names = untrained()
	case raced:
		names = names[:2]
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) { checkChain(t, e, model(t, name), 10) })
	}
	size := graph.TransformerConfig{Layers: 2, Hidden: 64, Heads: 4, Inner: 128, Seq: 16, Vocab: 100, Image: 64, Classes: 10}
	if long() {
		size = graph.TransformerConfig{}
	}
	for _, f := range []func(graph.TransformerConfig) (*graph.Model, error){graph.BERT, graph.ViT} {
		m, err := f(size)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(m.Name, func(t *testing.T) { checkChain(t, e, m, 10) })
	}
}
