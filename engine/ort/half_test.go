//go:build cgo && !noort

package ort

import (
	"math"
	"slices"
	"testing"

	"inferplan/engine"
	"inferplan/engine/graph"
)

// Crossing every cut in half precision: the boundary has the smaller types and
// sizes, and the answer stays close.
func TestHalfCrossing(t *testing.T) {
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
		t.Run(m.Name, func(t *testing.T) {
			blocks, logits := chainOf(t, e, m, 5), m.Logits()
			full := load(t, e, blocks, 1, graph.SliceOptions{Extra: logits})
			half := load(t, e, blocks, 1, graph.SliceOptions{Extra: logits, HalfIn: true, HalfOut: true})
			defer full.close(t)
			defer half.close(t)
			for i := 1; i < blocks.Len(); i++ {
				cut, bytes := blocks.Cut(i), int64(0)
				for k, s := range half.blocks[i].Submodel().Inputs {
					bytes += s.BytesAt(1)
					if cut.Tensors[k].Type == engine.F32 && s.Type != engine.F16 || cut.Tensors[k].Type == engine.I64 && s.Type != engine.I32 {
						t.Errorf("cut %d: %s crosses as %s", i, cut.Tensors[k], s)
					}
				}
				if bytes != cut.HalfBytes || cut.HalfBytes >= cut.Bytes {
					t.Errorf("cut %d: %d bytes cross, %d of %d were announced", i, bytes, cut.HalfBytes, cut.Bytes)
				}
			}
			answer := logits[0]
			if slices.Contains(blocks.Cut(blocks.Len()-1).Names(), answer) { // they cross themselves
				answer = m.Outputs[0]
			}
			find := func(l *line) []float32 {
				for _, s := range l.stages {
					for _, o := range s.Outputs() {
						if o.Spec().Name == answer && o.Spec().Type == engine.F32 {
							return floats(o.Bytes())
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
			if worst > 2e-2 {
				t.Errorf("half precision moves the logits by %.2g of the largest", worst)
			}
			if worst == 0 {
				t.Error("nothing crossed in half precision: the logits are the same to the last bit")
			}
			if agree < samples-2 {
				t.Errorf("top-1 agrees for %d of %d", agree, samples)
			}
		})
	}
}
