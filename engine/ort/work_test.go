//go:build cgo && !noort

package ort

import (
	"context"
	"errors"
	"math"
	"testing"

	"inferplan/engine"
	"inferplan/engine/graph"
)

// Counted work against published figures of the same architectures: the number
// of multiplications with an addition for one image of 224 x 224.
func TestWork(t *testing.T) {
	e := open(t)
	for i, c := range []struct {
		name   string
		gmacs  float64
		within float64 // share: variants of an architecture differ by this much
		source string
	}{
		{"resnet50", 4.09, 0.01, "torchvision: 4.09e9, stride in the 3x3 convolution; He et al., table 1: 3.8e9 with it in the 1x1"},
		{"squeezenet", 0.35, 0.03, "SqueezeNet 1.1 as torchvision lists it: 0.35; version 1.0 has 0.82"},
		{"shufflenet", 0.14, 0.12, "Zhang et al., ShuffleNet 1x, three groups: 140e6"},
		{"vgg19", 19.6, 0.02, "Simonyan and Zisserman, configuration E: 19.6e9"},
		{"bvlc_alexnet", 0.72, 0.1, "Krizhevsky et al., with two groups: 0.65 to 0.73e9"},
		{"densenet121", 2.87, 0.02, "Huang et al., DenseNet-121: 2.87e9 as torchvision lists it (2.83)"},
		{"inception_v1", 1.5, 0.1, "Szegedy et al., Going Deeper with Convolutions: 1.5e9"},
		{"inception_v2", 2.0, 0.1, "Ioffe and Szegedy, BN-Inception: about 2e9"},
	} {
		if i > 2 && !long() { // the rest takes a minute
			break
		}
		chain, err := model(t, c.name).Chain(ctx, e.Probe, graph.ChainOptions{})
		if err != nil {
			t.Fatal(err)
		}
		counts, err := chain.CountWork(ctx, e.Probe)
		if err != nil {
			t.Fatal(err)
		}
		whole := counts.WholeWork()
		got := float64(whole.MACs) / 1e9
		t.Logf("%s: %.3f GMACs, %.1f MB of tensors a sample, %.1f MB of weights", c.name, got, float64(whole.Bytes)/1e6, float64(whole.WeightBytes)/1e6)
		if math.Abs(got/c.gmacs-1) > c.within {
			t.Errorf("%s: %.3f GMACs, published %.2f (%s)", c.name, got, c.gmacs, c.source)
		}
		// The blocks' work adds up to the whole's; every byte at a cut is moved.
		n := 10
		costs := make([]float64, chain.AtomCount())
		for i := range costs {
			costs[i] = 1
		}
		blocks, err := chain.Partition(costs, n)
		if err != nil {
			t.Fatal(err)
		}
		var macs, bytes, cuts int64
		for i := range blocks.Len() {
			w := counts.WorkOf(blocks, i, i+1)
			macs += w.MACs
			bytes += w.Bytes
			cuts += blocks.Cut(i + 1).Bytes
		}
		if macs != whole.MACs || bytes < whole.Bytes || bytes < cuts {
			t.Errorf("%s: blocks have %d MACs of %d and %d bytes of %d, %d bytes cross", c.name, macs, whole.MACs, bytes, whole.Bytes, cuts)
		}
	}
}

// The counts of a network small enough to count by hand: 784 - 16 - 10.
func TestWorkByHand(t *testing.T) {
	e := open(t)
	m, err := graph.MLP(16, 1)
	if err != nil {
		t.Fatal(err)
	}
	chain, err := m.Chain(ctx, e.Probe, graph.ChainOptions{})
	if err != nil {
		t.Fatal(err)
	}
	counts, err := chain.CountWork(ctx, e.Probe)
	if err != nil {
		t.Fatal(err)
	}
	// A chain that measured all tensors while it looked for cuts counts the same without a probe.
	measured, err := m.Chain(ctx, e.Probe, graph.ChainOptions{AllShapes: true})
	if err != nil {
		t.Fatal(err)
	}
	unprobed := func(context.Context, []byte, []engine.Spec, ...graph.ProbeRun) ([]map[string]graph.Value, error) {
		return nil, errors.New("probed once more")
	}
	if again, err := measured.CountWork(ctx, unprobed); err != nil || again.WholeWork() != counts.WholeWork() {
		t.Errorf("a chain of all shapes counts %+v (%v), want %+v", again, err, counts.WholeWork())
	}
	// Where the first probe cannot report all tensors, the cuts are found all the same.
	probed := 0
	partial := func(ctx context.Context, onnx []byte, in []engine.Spec, runs ...graph.ProbeRun) ([]map[string]graph.Value, error) {
		if probed++; probed == 1 {
			return nil, errors.New("a sequence is no tensor")
		}
		return e.Probe(ctx, onnx, in, runs...)
	}
	retried, err := m.Chain(ctx, partial, graph.ChainOptions{AllShapes: true})
	if err != nil || retried.AtomCount() != chain.AtomCount() {
		t.Fatalf("after a probe that failed: %v", err)
	}
	if again, err := retried.CountWork(ctx, e.Probe); err != nil || again.WholeWork() != counts.WholeWork() {
		t.Errorf("after a probe that failed: counts %+v (%v), want %+v", again, err, counts.WholeWork())
	}
	w := counts.WholeWork()
	if w.MACs != 784*16+16*10 {
		t.Errorf("%d MACs, want %d", w.MACs, 784*16+16*10)
	}
	if want := int64(4 * (784*16 + 16 + 16*10 + 10)); w.WeightBytes < want || w.WeightBytes > want+64 {
		t.Errorf("%d bytes of weights, want %d", w.WeightBytes, want)
	}
	// In 784, hidden 16 written and read (its activation is fused), out 10
	// written, read and written again by the softmax.
	if least, most := int64(4*(784+16+16+10)), int64(4*(784+16+16+3*10+2*16)); w.Bytes < least || w.Bytes > most {
		t.Errorf("%d bytes, want %d to %d", w.Bytes, least, most)
	}
}
