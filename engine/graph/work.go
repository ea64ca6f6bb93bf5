package graph

import (
	"context"
	"maps"

	"inferplan/engine"
	"inferplan/engine/graph/onnxpb"
)

// Work counts what a range of blocks computes and the bytes that it moves, as its graph shows them.
type Work struct {
	// MACs are the multiplications with an addition in convolutions and matrix products, for one sample. Other
	// operators are not counted.
	MACs int64
	// Bytes is the number of bytes that one sample's tensors move through memory. Every operator reads its inputs and
	// writes its outputs, except that operators which runtimes fuse with the one before (bias, normalisation,
	// activation) use registers, and reshapes move nothing. Weights are not included.
	Bytes int64
	// WeightBytes are read once per run, whatever the batch size.
	WeightBytes int64
}

// nodeWork is a compute node's part of the counts.
type nodeWork struct{ macs, bytes int64 }

// WorkCounts holds the work of every node of a chain.
type WorkCounts struct {
	chain *Chain
	nodes []nodeWork // the nodes' work, in the order of net.compute
}

// viewOps are operators that pass a tensor on without moving it.
var viewOps = setOf("Reshape Flatten Squeeze Unsqueeze Identity Dropout")

// CountWork counts the work of every operator. If Chain did not measure the shapes of all tensors
// (ChainOptions.AllShapes), it measures them with one run of the probe. The work is the multiplications (MACs) and
// the bytes that are read and written for one sample. A tensor that a fused operator reads from registers counts
// neither as written nor as read.
func (c *Chain) CountWork(ctx context.Context, probe Probe) (*WorkCounts, error) {
	m := c.Model
	n := m.net
	inputSpecs := map[string]engine.Spec{}
	for _, s := range m.Inputs {
		inputSpecs[s.Name] = s
	}

	// Measure the shapes of all tensors, unless Chain did.
	measuredValues := c.values
	if measuredValues == nil {
		results, err := m.probeShapes(ctx, probe, ProbeRun{probeA, n.computedTensors()})
		if err != nil {
			return nil, err
		}
		measuredValues = results[0]
	}
	values := maps.Clone(measuredValues)
	for name, s := range inputSpecs {
		values[name] = Value{Type: s.Type, Shape: s.ShapeAt(probeA)}
	}

	// Count each node, at first with all its inputs and outputs in memory.
	count := &WorkCounts{chain: c, nodes: make([]nodeWork, len(n.compute))}
	users := n.consumers()
	size := func(t string) int64 { // bytes of a tensor that depends on an input, for one sample
		v, ok := values[t]
		if !ok || t == "" {
			return 0
		}
		return max(0, elementCount(v.Shape)) * int64(v.Type.Size()) / probeA
	}
	registers := map[string]bool{} // tensors that are never written to memory
	positions := map[int]int{}
	for p, i := range n.compute {
		positions[i] = p
	}
	for p, i := range n.compute {
		nd := n.nodes[i]
		w := &count.nodes[p]
		w.macs = n.countMACs(nd, values)
		if viewOps[nd.GetOpType()] {
			continue
		}

		// Count the bytes of each input once, except those that stay in registers.
		counted := map[string]bool{}
		for _, in := range nd.Input {
			if in == "" || n.isConst[in] || counted[in] {
				continue
			}
			counted[in] = true
			if n.isFused(nd, in, users) {
				// The producer does not write it, and this node does not read it.
				if q, ok := positions[n.producer[in]]; ok && !registers[in] {
					count.nodes[q].bytes -= size(in)
					registers[in] = true
				}
				continue
			}
			w.bytes += size(in)
		}
		for _, o := range nd.Output {
			w.bytes += size(o)
		}
	}
	return count, nil
}

// isFused reports whether runtimes compute nd together with the producer of its input in, so that in is never
// written to memory. They do for certain pairs of operators, if nothing else reads it. users are the readers of each
// tensor.
func (n *sortedGraph) isFused(nd *onnxpb.Node, in string, users map[string][]int) bool {
	i, ok := n.producer[in]
	if !ok || len(users[in]) != 1 || users[in][0] < 0 {
		return false
	}
	return fuseFirst[n.nodes[i].GetOpType()] && fuseNext[nd.GetOpType()]
}

// countMACs returns the multiplications with an addition (MACs) of a convolution or matrix product for one sample,
// and 0 for other nodes. values has the shapes of the tensors at batch probeA, so results are divided by probeA.
func (n *sortedGraph) countMACs(nd *onnxpb.Node, values map[string]Value) int64 {
	if len(nd.Input) < 2 || len(nd.Output) == 0 {
		return 0
	}

	// Multiply the number of outputs by the length of the sum behind each.
	out := values[nd.Output[0]].Shape
	shape := func(t string) []int64 {
		if v, ok := values[t]; ok {
			return v.Shape
		}
		return n.constDims(t)
	}
	a, b := shape(nd.Input[0]), shape(nd.Input[1])
	switch nd.GetOpType() {
	case "Conv": // b is [out, in/groups, kernel...]: every output is a product over all but the first
		if len(b) < 3 || b[0] == 0 {
			return 0
		}
		return elementCount(out) * (elementCount(b) / b[0]) / probeA
	case "ConvTranspose": // b is [in, out/groups, kernel...]: every input goes into that many products
		if len(b) < 3 || b[0] == 0 {
			return 0
		}
		return elementCount(a) * (elementCount(b) / b[0]) / probeA
	case "Gemm":
		if len(a) != 2 {
			return 0
		}
		k := a[1]
		if attrInt(nd, "transA") != 0 {
			k = a[0]
		}
		return elementCount(out) * k / probeA
	case "MatMul":
		if len(a) == 0 {
			return 0
		}
		return elementCount(out) * a[len(a)-1] / probeA
	}
	return 0
}

// constDims returns the dimensions of a constant if they are known without running the model.
func (n *sortedGraph) constDims(t string) []int64 {
	if w := n.weights[t]; w != nil {
		return w.dims
	}
	if x := n.inits[t]; x != nil {
		return x.Dims
	}
	i, ok := n.producer[t]
	if !ok {
		return nil
	}
	nd := n.nodes[i]
	switch nd.GetOpType() {
	case "ConstantOfShape":
		if d, ok := n.constInts(nd.Input[0]); ok {
			return d
		}
	case "Constant":
		for _, a := range nd.Attribute {
			if a.T != nil {
				return a.T.Dims
			}
		}
	case "Identity":
		return n.constDims(nd.Input[0])
	}
	return nil
}

// WorkOf returns the work of the blocks [i,j) of b, which must be blocks of the same chain. Bounds are indices into
// the chain's cuts.
func (c *WorkCounts) WorkOf(b *Blocks, i, j int) Work {
	chain := c.chain
	firstNode, endNode := chain.Cuts[b.Bounds[i]].pos, chain.Cuts[b.Bounds[j]].pos
	w := Work{WeightBytes: b.WeightBytes(i, j)}
	for _, node := range c.nodes[firstNode:endNode] {
		w.MACs += node.macs
		w.Bytes += max(0, node.bytes)
	}
	return w
}

// WholeWork returns the work of the whole model.
func (c *WorkCounts) WholeWork() Work { return c.WorkOf(c.chain.WholeModel(), 0, 1) }
