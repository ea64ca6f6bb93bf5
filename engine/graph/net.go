package graph

import (
	"container/heap"
	"maps"
	"slices"
	"strings"

	"inferplan/engine"
	"inferplan/engine/graph/onnxpb"
)

// sortedGraph is a graph in topological order, with all that cutting needs.
type sortedGraph struct {
	name    string
	nodes   []*onnxpb.Node // constants and compute nodes in topological order
	inits   map[string]*onnxpb.Tensor
	weights map[string]*seededWeight // seeded weights, generated when they are written
	inputs  []string                 // without initialisers
	outputs []string

	// The fields below are derived from those above.
	producer map[string]int // node index
	isConst  map[string]bool
	compute  []int // indexes of nodes that depend on an input, in order
}

// newNet checks a graph's connections and sorts it, when a model is read. weights are seeded weights, which are
// generated later and count as initialisers. It keeps the graph's messages and never changes them. The result has its
// nodes in topological order, without those that no output needs.
func newNet(g *onnxpb.Graph, weights map[string]*seededWeight) (*sortedGraph, error) {
	n := &sortedGraph{name: g.GetName(), inits: map[string]*onnxpb.Tensor{}, weights: weights}
	for _, t := range g.Initializer {
		if t.GetName() == "" {
			return nil, modelErrorf("an initialiser has no name")
		}
		if n.inits[t.GetName()] != nil {
			return nil, modelErrorf("initialiser %q occurs twice", t.GetName())
		}
		if !isOutside(t) {
			if err := checkTensor(t, "initialiser "+t.GetName()); err != nil {
				return nil, err
			}
		}
		n.inits[t.GetName()] = t
	}

	// Collect inputs and outputs.
	for _, v := range g.Input {
		if v.GetName() == "" {
			return nil, modelErrorf("an input has no name")
		}
		if n.inits[v.GetName()] == nil {
			n.inputs = append(n.inputs, v.GetName())
		}
	}
	for _, v := range g.Output {
		n.outputs = append(n.outputs, v.GetName())
	}
	if len(n.outputs) == 0 {
		return nil, modelErrorf("the model has no output")
	}

	// Check every node before the graph is sorted.
	n.nodes = g.Node
	for i, nd := range n.nodes {
		if nd.GetOpType() == "" {
			return nil, modelErrorf("node %d (%q) names no operator", i, nd.GetName())
		}
		if unary[nd.GetOpType()] && (len(nd.Input) == 0 || nd.Input[0] == "") {
			return nil, modelErrorf("node %s has no input", nodeLabel(nd))
		}
		for _, a := range nd.Attribute {
			if a.T != nil {
				if err := checkTensor(a.T, "node "+nodeLabel(nd)+", attribute "+a.GetName()); err != nil {
					return nil, err
				}
			}
		}
		if _, err := subgraphReads(nd, 0); err != nil {
			return nil, err
		}
	}
	if err := n.sortNodes(); err != nil {
		return nil, err
	}
	return n, n.findComputeNodes()
}

// unary are operators whose first input the analysis follows, so that it must exist.
var unary = setOf("ConstantOfShape Softmax LogSoftmax Sigmoid Reshape Flatten Squeeze Unsqueeze Identity Transpose ReduceMean")

// nodeLabel returns a node's operator and name for errors. For a node without a name it gives the first output.
func nodeLabel(nd *onnxpb.Node) string {
	if nd.GetName() != "" {
		return nd.GetOpType() + " " + nd.GetName()
	}
	if len(nd.Output) > 0 {
		return nd.GetOpType() + " that makes " + nd.Output[0]
	}
	return nd.GetOpType()
}

// readTensors returns the names of the tensors that a node reads: its inputs, and those that the bodies in its
// attributes (of an If or Loop) read from outside.
func readTensors(nd *onnxpb.Node) []string {
	sub, _ := subgraphReads(nd, 0) // checked in newNet
	if len(sub) == 0 {
		return nd.Input
	}
	return append(append([]string(nil), nd.Input...), sub...)
}

// subgraphReads returns the outer tensors that the bodies of If, Loop and Scan (graphs in the node's attributes)
// read. depth is the number of bodies around the node. Bodies that are nested too deep are an error. Outer tensors
// are those that the body does not define itself.
func subgraphReads(nd *onnxpb.Node, depth int) ([]string, error) {
	var out []string
	for _, a := range nd.Attribute {
		bodies := a.Graphs
		if a.G != nil {
			bodies = append([]*onnxpb.Graph{a.G}, bodies...)
		}
		for _, g := range bodies {
			if depth == maxSubgraphs {
				return nil, modelErrorf("node %s: subgraphs are nested deeper than %d", nodeLabel(nd), maxSubgraphs)
			}

			// Collect the names that the subgraph defines.
			local := map[string]bool{}
			for _, t := range g.Initializer {
				local[t.GetName()] = true
			}
			for _, v := range g.Input {
				local[v.GetName()] = true
			}
			for _, x := range g.Node {
				for _, o := range x.Output {
					local[o] = true
				}
			}
			for _, x := range g.Node {
				sub, err := subgraphReads(x, depth+1)
				if err != nil {
					return nil, err
				}
				for _, in := range append(append([]string(nil), x.Input...), sub...) {
					if in != "" && !local[in] {
						out = append(out, in)
					}
				}
			}
			for _, v := range g.Output {
				if !local[v.GetName()] {
					out = append(out, v.GetName())
				}
			}
		}
	}
	return out, nil
}

// intHeap is a heap of node indexes, the smallest first (container/heap).
type intHeap []int

func (h intHeap) Len() int           { return len(h) }
func (h intHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h intHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *intHeap) Push(x any)        { *h = append(*h, x.(int)) }

// Pop removes the last element, to which package heap has moved the smallest.
func (h *intHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}

// sortNodes puts the nodes in topological order, and keeps the file's order where it can. It returns an error if a
// tensor has no producer or two, or if the nodes form a cycle.
func (n *sortedGraph) sortNodes() error {
	producers, err := producersOf(n.nodes)
	if err != nil {
		return err
	}
	givenTensors, err := n.givenTensors()
	if err != nil {
		return err
	}
	for s := range givenTensors {
		if j, ok := producers[s]; ok {
			return modelErrorf("tensor %q is an input or initialiser, and also made by %s", s, nodeLabel(n.nodes[j]))
		}
	}

	// Sort, and check that every output has a producer.
	order, err := topologicalOrder(n.nodes, producers, givenTensors)
	if err != nil {
		return err
	}
	for _, o := range n.outputs {
		if _, ok := producers[o]; !ok && !givenTensors[o] {
			return modelErrorf("output %q is made by no node: the file is truncated or was written wrongly", o)
		}
	}
	n.nodes = order
	return nil
}

// producersOf maps each tensor to the index of the node that produces it, and returns an error if two nodes do.
func producersOf(nodes []*onnxpb.Node) (map[string]int, error) {
	producers := map[string]int{}
	for i, nd := range nodes {
		for _, o := range nd.Output {
			if o == "" {
				continue
			}
			if j, ok := producers[o]; ok {
				return nil, modelErrorf("tensor %q is made twice, by %s and by %s", o, nodeLabel(nodes[j]), nodeLabel(nd))
			}
			producers[o] = i
		}
	}
	return producers, nil
}

// givenTensors returns the tensors that no node produces: inputs, initialisers and weights.
func (n *sortedGraph) givenTensors() (map[string]bool, error) {
	given := map[string]bool{}
	for _, s := range n.inputs {
		if given[s] {
			return nil, modelErrorf("input %q occurs twice", s)
		}
		given[s] = true
	}
	for s := range n.inits {
		given[s] = true
	}
	for s := range n.weights {
		given[s] = true
	}
	return given, nil
}

// topologicalOrder orders nodes so that each comes after the producers of its inputs, and otherwise as in the file.
// producers maps a tensor to the index of the node that produces it, and givenTensors are those that no node
// produces. It returns an error if a tensor has no origin, or if the nodes form a cycle.
func topologicalOrder(nodes []*onnxpb.Node, producers map[string]int, givenTensors map[string]bool) ([]*onnxpb.Node, error) {
	// Count the inputs that each node waits for, and list the nodes that read each node's outputs.
	waits := make([]int, len(nodes))
	users := make([][]int, len(nodes))
	readyNodes := &intHeap{}
	for i, nd := range nodes {
		for _, in := range readTensors(nd) {
			if in == "" || givenTensors[in] {
				continue
			}
			j, ok := producers[in]
			if !ok {
				return nil, modelErrorf("node %s reads tensor %q, which nothing makes: the file is truncated or was written wrongly", nodeLabel(nd), in)
			}
			waits[i]++
			users[j] = append(users[j], i)
		}
		if waits[i] == 0 {
			heap.Push(readyNodes, i)
		}
	}

	// Take ready nodes, the earliest of the file first, and release those that read them.
	order := make([]*onnxpb.Node, 0, len(nodes))
	for readyNodes.Len() > 0 {
		i := heap.Pop(readyNodes).(int)
		order = append(order, nodes[i])
		for _, u := range users[i] {
			if waits[u]--; waits[u] == 0 {
				heap.Push(readyNodes, u)
			}
		}
	}
	if i := slices.IndexFunc(waits, func(w int) bool { return w > 0 }); i >= 0 {
		return nil, modelErrorf("the nodes form a cycle through %s", nodeLabel(nodes[i]))
	}
	return order, nil
}

// findComputeNodes drops nodes that no output needs, and separates constants from compute nodes, which depend on an
// input. It sets the derived fields of the graph. It is called again whenever the graph was rewritten.
func (n *sortedGraph) findComputeNodes() error {
	// Walk backwards and keep the nodes that some output needs.
	neededTensors := map[string]bool{}
	for _, o := range n.outputs {
		neededTensors[o] = true
	}
	var neededNodes []*onnxpb.Node
	for i := len(n.nodes) - 1; i >= 0; i-- {
		nd := n.nodes[i]
		isNeeded := false
		for _, o := range nd.Output {
			isNeeded = isNeeded || neededTensors[o]
		}
		if !isNeeded {
			continue
		}
		for _, in := range readTensors(nd) {
			neededTensors[in] = true
		}
		neededNodes = append(neededNodes, nd)
	}
	slices.Reverse(neededNodes)
	n.nodes = neededNodes

	// A node is constant if all its inputs are and it is not random.
	n.producer = map[string]int{}
	n.isConst = map[string]bool{}
	n.compute = nil
	for s := range n.inits {
		n.isConst[s] = true
	}
	for s := range n.weights {
		n.isConst[s] = true
	}
	for i, nd := range n.nodes {
		constant := !isRandom(nd)
		for _, in := range readTensors(nd) {
			constant = constant && (in == "" || n.isConst[in])
		}
		for _, o := range nd.Output {
			n.producer[o] = i
			n.isConst[o] = constant
		}
		if !constant {
			n.compute = append(n.compute, i)
		}
	}
	for _, o := range n.outputs {
		if n.isConst[o] {
			return modelErrorf("output %q does not depend on any input", o)
		}
	}
	if len(n.compute) == 0 {
		return modelErrorf("no node depends on an input")
	}
	return nil
}

// isRandom reports whether an operator's outputs are not determined by its inputs.
func isRandom(nd *onnxpb.Node) bool { return strings.HasPrefix(nd.GetOpType(), "Random") }

// clone copies the graph so that it can be rewritten. The protobuf messages are shared, and must not be changed.
func (n *sortedGraph) clone() *sortedGraph {
	c := *n
	c.nodes, c.inits, c.weights, c.isConst = slices.Clone(n.nodes), maps.Clone(n.inits), maps.Clone(n.weights), maps.Clone(n.isConst)
	return &c
}

// consumers maps each tensor to the indexes of the compute nodes (those that depend on an input) that read it. -1
// stands for the outputs of the model.
func (n *sortedGraph) consumers() map[string][]int {
	out := map[string][]int{}
	for _, i := range n.compute {
		isListed := map[string]bool{}
		for _, in := range readTensors(n.nodes[i]) {
			if in != "" && !isListed[in] {
				isListed[in] = true
				out[in] = append(out[in], i)
			}
		}
	}
	for _, o := range n.outputs {
		out[o] = append(out[o], -1)
	}
	return out
}

// Weightless reports whether the model was shipped with constants in place of its weights: the elements that
// ConstantOfShape nodes make outnumber the values in the file. Constants of fewer than 64 elements do not count,
// because they are shapes rather than weights. (A model with weights may have some such constants, for example as
// the first state of a recurrence.)
func (m *Model) Weightless() bool {
	var constants, values int64
	for _, nd := range m.net.nodes {
		if nd.GetOpType() == "ConstantOfShape" && m.net.isConst[nd.Output[0]] {
			if d, ok := m.net.constInts(nd.Input[0]); ok && elementCount(d) >= 64 {
				constants += elementCount(d)
			}
		}
	}
	for _, t := range m.net.inits {
		values += max(0, elementCount(t.Dims))
	}
	return constants > values
}

// Nodes returns the number of operators that depend on an input.
func (m *Model) Nodes() int { return len(m.net.compute) }

// Logits returns, for each output, the name of the tensor to compare when two runs of the model are compared: the
// input of a closing Softmax or Sigmoid, which would hide differences, or the output itself. It looks through up to
// eight operators that only move or reshape values.
func (m *Model) Logits() []string {
	out := make([]string, len(m.Outputs))
	for i, t := range m.Outputs {
		out[i] = t
		for hops := 0; hops < 8; hops++ {
			p, ok := m.net.producer[t]
			if !ok || m.net.isConst[t] {
				break
			}
			nd := m.net.nodes[p]
			switch nd.GetOpType() {
			case "Softmax", "LogSoftmax", "Sigmoid":
				out[i] = nd.Input[0]
			case "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Transpose":
				t = nd.Input[0]
				continue
			}
			break
		}
	}
	return out
}

// elementCount returns the number of elements of a tensor, or -1 if a dimension is negative or there are more than
// maxElements.
func elementCount(dims []int64) int64 {
	n := int64(1)
	for _, d := range dims {
		if d < 0 || (d > 0 && n > maxElements/d) {
			return -1
		}
		n *= d
	}
	return n
}

// crossType returns the element type with which a tensor crosses between blocks in half precision.
func crossType(t engine.DType) engine.DType {
	switch t {
	case engine.F32, engine.F64:
		return engine.F16
	case engine.I64:
		return engine.I32
	}
	return t
}

// ownDomains are the operator domains of ONNX and ONNX Runtime.
var ownDomains = setOf("ai.onnx ai.onnx.ml ai.onnx.training ai.onnx.preview.training com.microsoft com.microsoft.nchwc com.microsoft.experimental org.pytorch.aten")

// Custom reports whether the model may have operators that neither ONNX nor ONNX Runtime has, so that it needs a
// library of them: it names a domain of operators that is not theirs.
func (m *Model) Custom() bool {
	for _, o := range m.header.GetOpsetImport() {
		if d := o.GetDomain(); d != "" && !ownDomains[d] {
			return true
		}
	}
	return false
}
