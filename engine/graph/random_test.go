package graph

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"inferplan/engine"
	"inferplan/engine/graph/onnxpb"
)

// Random graphs, cut everywhere: every node lands in one block, what a block
// reads is what the one before gives, and each slice is a model by itself.
func TestRandomGraphs(t *testing.T) {
	kinds := []string{"Abs", "Exp", "Relu", "Conv", "Add", "Mul", "Concat", "MatMul", "Dropout", "Softmax", "Shape", "Reshape"}
	rapid.Check(t, func(t *rapid.T) {
		spec := engine.Spec{Type: engine.F32, Shape: []int64{engine.BatchDim, 4}}
		g := &onnxpb.Graph{Name: proto.String("random")}
		var have []string
		for i := range rapid.IntRange(1, 3).Draw(t, "inputs") {
			spec.Name = fmt.Sprintf("in%d", i)
			g.Input = append(g.Input, ValueInfo(spec))
			have = append(have, spec.Name)
		}
		g.Initializer = append(g.Initializer, int64Tensor("const", []int64{1, 4}, []int64{2}))
		have = append(have, "const")
		for i := range rapid.IntRange(1, 30).Draw(t, "nodes") {
			nd := &onnxpb.Node{OpType: proto.String(rapid.SampledFrom(kinds).Draw(t, "kind")), Name: proto.String(fmt.Sprint("n", i))}
			// Mostly recent tensors, as in real graphs.
			for range rapid.IntRange(1, 3).Draw(t, "reads") {
				back := min(rapid.IntRange(1, 4).Draw(t, "back"), len(have))
				nd.Input = append(nd.Input, have[len(have)-back])
			}
			nd.Output = []string{fmt.Sprint("t", i)}
			have = append(have, nd.Output[0])
			g.Node = append(g.Node, nd)
		}
		spec.Name = have[len(have)-1]
		g.Output = append(g.Output, ValueInfo(spec))
		if extra := have[rapid.IntRange(len(have)-len(g.Node), len(have)-1).Draw(t, "output")]; extra != spec.Name {
			spec.Name = extra
			g.Output = append(g.Output, ValueInfo(spec))
		}
		data, err := proto.Marshal(&onnxpb.Model{OpsetImport: []*onnxpb.OperatorSet{{Version: proto.Int64(13)}}, Graph: g})
		if err != nil {
			t.Fatal(err)
		}
		m, err := Read("random", data, Options{})
		if err != nil {
			return // an output that no input reaches
		}
		chain, err := m.Chain(ctx, flat, ChainOptions{MaxLive: rapid.IntRange(1, 4).Draw(t, "live")})
		if err != nil {
			t.Fatal(err)
		}
		half := rapid.Bool().Draw(t, "half")
		blocks, nodes := chain.EachAtom(), 0
		var before []engine.Spec
		for i := range blocks.Len() {
			sub, err := blocks.Slice(i, i+1, SliceOptions{FP16In: half, FP16Out: half})
			if err != nil {
				t.Fatal(err)
			}
			nodes += sub.Nodes
			if i > 0 && !slices.Equal(specsOf(sub.Inputs), specsOf(before)) {
				t.Fatalf("block %d reads %v, the one before gives %v", i, sub.Inputs, before)
			}
			before = sub.Outputs
			if _, err := Read("slice", sub.ONNX, Options{}); err != nil {
				t.Fatalf("block %d: %v", i, err)
			}
		}
		if nodes != m.Nodes() {
			t.Fatalf("%d nodes in blocks, %d in the model", nodes, m.Nodes())
		}
		var got []string
		for _, s := range before {
			got = append(got, s.Name)
		}
		if !slices.Equal(got, m.Outputs) {
			t.Fatalf("the last block gives %v, the model %v", got, m.Outputs)
		}
	})
}
