package graph

import (
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"inferplan/engine/graph/onnxpb"
)

// FuzzRead reads hostile bytes, cuts what can be read, and reads the slices
// again. Nothing panics, and what we write we can read.
func FuzzRead(f *testing.F) {
	f.Add(encoded(f, diamond()), uint64(0))
	pm := diamond()
	pm.Graph.Node = append(pm.Graph.Node, &onnxpb.Node{OpType: proto.String("If"), Input: []string{"a"}, Output: []string{"q"},
		Attribute: []*onnxpb.Attribute{{Name: proto.String("then_branch"), G: diamond().Graph}, {Name: proto.String("else_branch"), G: diamond().Graph}}})
	pm.Graph.Output = append(pm.Graph.Output, &onnxpb.ValueInfo{Name: proto.String("q")})
	f.Add(encoded(f, pm), uint64(1))
	// Weights as ConstantOfShape, as the light models have them.
	pm = diamond()
	pm.Graph.Initializer = []*onnxpb.Tensor{int64Tensor("dims", []int64{16, 4}, []int64{2})}
	pm.Graph.Node = append(pm.Graph.Node, &onnxpb.Node{OpType: proto.String("ConstantOfShape"), Input: []string{"dims"}, Output: []string{"w"}},
		&onnxpb.Node{OpType: proto.String("Reshape"), Input: []string{"w", "dims"}, Output: []string{"v"}})
	pm.Graph.Node[1].OpType, pm.Graph.Node[1].Input = proto.String("Gemm"), []string{"x", "v"}
	f.Add(encoded(f, pm), uint64(1))
	if m, err := MLP(1, 1); err == nil {
		if data, err := m.Encode(); err == nil {
			f.Add(data, uint64(1))
		}
	}
	if bert, err := BERT(TransformerConfig{Layers: 1, Hidden: 2, Heads: 1, Inner: 2, Seq: 2, Vocab: 2}); err == nil {
		if data, err := bert.Encode(); err == nil {
			f.Add(data, uint64(0))
		}
	}
	for _, name := range []string{"light_bvlc_alexnet.onnx", "light_squeezenet.onnx"} {
		// Absent before `make setup`: the seeds above still run.
		if data, err := os.ReadFile(filepath.Join("..", "..", "third_party", "models", "files", name)); err == nil {
			f.Add(data, uint64(2))
			f.Add(data[:len(data)/2], uint64(2))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		m, err := Read("fuzz", data, Options{Seed: seed})
		if err != nil {
			return
		}
		m.Logits()
		chain, err := m.Chain(ctx, flat, ChainOptions{})
		if err != nil {
			return
		}
		blocks, err := chain.Partition(make([]float64, chain.AtomCount()), 3)
		if err != nil {
			t.Fatal(err)
		}
		for i := range blocks.Len() {
			o := SliceOptions{FP16In: i%2 == 0, FP16Out: i%2 == 1}
			sub, err := blocks.Slice(i, i+1, o)
			if err != nil {
				t.Fatalf("block %d: %v", i, err)
			}
			if _, err := Read("slice", sub.ONNX, Options{}); err != nil {
				t.Fatalf("block %d cannot be read again: %v", i, err)
			}
		}
	})
}
