//go:build cgo && !noort

package ort

import (
	"math"
	"slices"
	"testing"

	"inferplan/engine"
	"inferplan/engine/graph"
)

// Crossing every cut in half precision, computing in it, and both: the boundary
// has the smaller types and sizes where it should, weights are half as large, and
// the answer stays close.
func TestHalf(t *testing.T) {
	e := open(t)
	tiny := graph.TransformerConfig{Layers: 2, Hidden: 64, Heads: 4, Inner: 128, Seq: 16, Vocab: 100, Image: 64, Classes: 10}
	names := []string{"squeezenet", "shufflenet"}
	if long() {
		tiny = graph.TransformerConfig{}
		names = untrained()
	}
	var all []*graph.Model
	for _, f := range []func(graph.TransformerConfig) (*graph.Model, error){graph.BERT, graph.ViT} {
		m, err := f(tiny)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	for _, n := range names {
		all = append(all, model(t, n))
	}
	for _, m := range all {
		blocks, logits := chainOf(t, e, m, 5), m.Logits()
		full := load(t, e, blocks, 1, graph.SliceOptions{Extra: logits})
		for _, mode := range []struct {
			name  string
			o     graph.SliceOptions
			worst float64
		}{
			{"cuts", graph.SliceOptions{FP16In: true, FP16Out: true}, 2e-2},
			{"inside", graph.SliceOptions{FP16: true}, 5e-2},
			{"both", graph.SliceOptions{FP16: true, FP16In: true, FP16Out: true}, 5e-2},
		} {
			t.Run(m.Name+"/"+mode.name, func(t *testing.T) {
				mode.o.Extra = logits
				half := load(t, e, blocks, 1, mode.o)
				defer half.close(t)
				checkHalf(t, m, blocks, full, half, mode.o, mode.worst)
			})
		}
		full.close(t)
	}
}

// checkHalf holds a chain in half precision against the full one.
func checkHalf(t *testing.T, m *graph.Model, blocks *graph.Blocks, full, half *line, o graph.SliceOptions, most float64) {
	t.Helper()
	for i := 1; i < blocks.Len(); i++ {
		cut, bytes := blocks.Cut(i), int64(0)
		for k, s := range half.blocks[i].Submodel().Inputs {
			bytes += s.BytesAt(1)
			if o.FP16In && (cut.Tensors[k].Type == engine.F32 && s.Type != engine.F16 || cut.Tensors[k].Type == engine.I64 && s.Type != engine.I32) {
				t.Errorf("cut %d: %s crosses as %s", i, cut.Tensors[k], s)
			}
		}
		if want := map[bool]int64{false: cut.Bytes, true: cut.HalfBytes}[o.FP16In]; bytes != want || cut.HalfBytes >= cut.Bytes {
			t.Errorf("cut %d: %d bytes cross, %d of %d were announced", i, bytes, want, cut.Bytes)
		}
	}
	for i, b := range half.blocks {
		if a, h := full.blocks[i].Submodel().WeightBytes, b.Submodel().WeightBytes; o.FP16 && a > 1<<16 && (h < a/2 || h > 6*a/10) || !o.FP16 && h != a {
			t.Errorf("block %d: %d bytes of weights, %d in full precision", i, h, a)
		}
	}
	answer := m.Logits()[0]
	if slices.Contains(blocks.Cut(blocks.Len()-1).Names(), answer) { // they cross themselves
		answer = m.Outputs[0]
	}
	find := func(l *line) []float32 {
		for _, s := range l.stages {
			for _, x := range s.Outputs() {
				if x.Spec().Name == answer && x.Spec().Type == engine.F32 {
					return floats(x.Bytes())
				}
			}
		}
		t.Fatalf("no tensor %s in full precision", answer)
		return nil
	}
	agree, worst := 0, 0.0
	for i := range samples {
		feeds := feedsFor(t, m, 1, i)
		full.run(t, feeds)
		half.run(t, feeds)
		a, b := find(full), find(half)
		if argmax(a) == argmax(b) {
			agree++
		}
		worst = math.Max(worst, relative(a, b))
	}
	t.Logf("%-13s %d blocks: top-1 agrees for %d of %d, max relative difference of the logits %.2g", m.Name, blocks.Len(), agree, samples, worst)
	if !(worst <= most) {
		t.Errorf("half precision moves the logits by %.2g of the largest", worst)
	}
	if worst == 0 {
		t.Error("nothing happened in half precision: the logits are the same to the last bit")
	}
	if agree < samples-2 {
		t.Errorf("top-1 agrees for %d of %d", agree, samples)
	}
}
