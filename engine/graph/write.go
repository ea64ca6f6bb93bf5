package graph

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"google.golang.org/protobuf/proto"

	"inferplan/engine"
	"inferplan/engine/graph/onnxpb"
)

// subgraph is a range of compute nodes that is written as a model.
type subgraph struct {
	name                    string
	nodes                   []int // indexes of compute nodes, in order
	inputs, outputs         []engine.Spec
	rename                  map[string]string // tensors that have another name inside
	nodesBefore, nodesAfter []*onnxpb.Node    // nodes at the boundary: casts and copies
	inits                   []*onnxpb.Tensor  // constants of before and after
	withoutWeights          bool              // write weights as ConstantOfShape, for probes
	fp16                    bool              // float32 inside becomes float16
	asFile                  bool              // the nodes are those of Model.unchangedNet
	declaredInputs          bool              // declare the inputs as the file does
}

// constants returns what the given compute nodes need that depends on no input, directly or through other constants:
// the names of initialisers, sorted, and the indexes of constant nodes, in order.
func (n *sortedGraph) constants(nodes []int) (names []string, nodeIdx []int) {
	visited := map[string]bool{}
	seenNode := map[int]bool{}
	var stack []string // constant tensors whose origin is still to be followed

	// visit puts the constants that a node reads on the stack.
	visit := func(nd *onnxpb.Node) {
		for _, in := range readTensors(nd) {
			if in != "" && n.isConst[in] && !visited[in] {
				visited[in] = true
				stack = append(stack, in)
			}
		}
	}

	// Start with what the nodes read, and follow constants that other constants are computed from.
	for _, i := range nodes {
		visit(n.nodes[i])
	}
	for len(stack) > 0 {
		t := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if i, ok := n.producer[t]; ok {
			if !seenNode[i] {
				seenNode[i] = true
				nodeIdx = append(nodeIdx, i)
				visit(n.nodes[i])
			}
		} else {
			names = append(names, t)
		}
	}
	sort.Strings(names)
	sort.Ints(nodeIdx)
	return names, nodeIdx
}

// weightBytes returns the bytes of the constants that the given nodes need: initialisers, seeded weights, and values
// of constant nodes. With fp16, those of float32 count as float16. nodes are indices of the graph's nodes.
func (n *sortedGraph) weightBytes(nodes []int, fp16 bool) int64 {
	names, idx := n.constants(nodes)
	total := int64(0)

	// In half precision, float32 values take half their bytes.
	tensorBytes := func(t *onnxpb.Tensor) int64 {
		if fp16 && engine.DType(t.GetDataType()) == engine.F32 {
			return tensorBytes(t) / 2
		}
		return tensorBytes(t)
	}
	floatBytes := int64(4)
	if fp16 {
		floatBytes = 2
	}

	// Sum up the initializers, then the nodes that hold or make constants.
	for _, t := range names {
		if w := n.weights[t]; w != nil {
			total += w.bytes() / 4 * floatBytes
		} else {
			total += tensorBytes(n.inits[t])
		}
	}
	for _, i := range idx {
		nd := n.nodes[i]
		for _, a := range nd.Attribute {
			if a.T != nil {
				total += tensorBytes(a.T)
			}
		}
		if nd.GetOpType() == "ConstantOfShape" {
			if d, ok := n.constInts(nd.Input[0]); ok && elementCount(d) > 0 {
				total += floatBytes * elementCount(d)
			}
		}
	}
	return total
}

// encode writes a subgraph as a stand-alone ONNX model, and returns its bytes. Seeded weights are generated here.
// withoutWeights writes placeholders of the same shape in place of large weights, for a probe; asFile takes the graph
// as the file has it.
func (m *Model) encode(p subgraph) ([]byte, error) {
	n := m.net
	if p.asFile {
		n = m.unchangedNet
	}
	names, idx := n.constants(p.nodes)
	g := &onnxpb.Graph{Name: proto.String(p.name)}
	if p.name == "" {
		g.Name = proto.String(m.Name)
	}

	// Collect the initialisers: seeded weights, placeholders in a probe, or the tensors of the file.
	size := int64(0)
	for _, t := range names {
		w := n.weights[t]
		switch {
		case w != nil && p.withoutWeights, p.withoutWeights && isOutside(n.inits[t]) && engine.DType(n.inits[t].GetDataType()).Size() > 0:
			typ, dims := engine.F32, []int64(nil)
			if w != nil {
				dims = w.dims
			} else {
				typ, dims = engine.DType(n.inits[t].GetDataType()), n.inits[t].Dims
			}
			shape, node := placeholderNode(t, typ, dims)
			g.Initializer, g.Node = append(g.Initializer, shape), append(g.Node, node)
		case w != nil:
			size += w.bytes()
			g.Initializer = append(g.Initializer, w.tensor())
		default:
			x := n.inits[t]
			if p.fp16 {
				var err error
				if x, err = m.readOutside(x); err != nil {
					return nil, err
				}
			}
			if !isOutside(x) {
				size += tensorBytes(x)
			}
			g.Initializer = append(g.Initializer, x)
		}
	}
	if size > maxFile-1<<20 {
		return nil, fmt.Errorf("%s: %d bytes of weights in one block: ONNX files hold at most 2 GiB, cut it into more blocks", m.Name, size)
	}

	// Collect the nodes, and convert them to float16 if asked for.
	constant := make([]*onnxpb.Node, 0, len(idx)+len(p.nodes))
	for _, i := range idx {
		constant = append(constant, n.nodes[i])
	}
	inner := constant[len(idx):] // the compute nodes, behind the constant ones in the same array
	for _, i := range p.nodes {
		inner = append(inner, renamedNode(n.nodes[i], p.rename))
	}
	if p.fp16 {
		var nodes []*onnxpb.Node
		var err error
		if g.Initializer, nodes, err = n.convertToFP16(g.Initializer, append(constant, inner...)); err != nil {
			return nil, fmt.Errorf("%s: %w", m.Name, err)
		}
		var bounds []*onnxpb.Tensor
		constant = nodes[:len(idx)]
		inner, bounds = fp16Clips(nodes[len(idx):], m.opset())
		g.Initializer = append(g.Initializer, bounds...)
	}

	// Put the parts of the graph together, constants first, and declare inputs and outputs.
	g.Initializer = append(g.Initializer, p.inits...)
	g.Node = append(g.Node, constant...)
	g.Node = append(g.Node, p.nodesBefore...)
	g.Node = append(g.Node, inner...)
	g.Node = append(g.Node, p.nodesAfter...)
	for i, s := range p.inputs {
		if p.declaredInputs {
			g.Input = append(g.Input, m.inFile[i])
			continue
		}
		g.Input = append(g.Input, ValueInfo(s))
	}
	for _, c := range m.Constants {
		// As an input with a default value, it is not folded by a runtime: ONNX Runtime 1.29 cannot load an If
		// within an If whose condition it has folded.
		if slices.Contains(names, c.Name) {
			g.Input = append(g.Input, ValueInfo(c.Spec))
		}
	}
	for _, s := range p.outputs {
		g.Output = append(g.Output, ValueInfo(s))
	}

	// Write the model.
	out := proto.Clone(m.header).(*onnxpb.Model)
	out.Graph = g
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("%s: write as ONNX: %w", m.Name, err)
	}
	return data, nil
}

// renamedNode returns a node with other names for the tensors that are in names (from old to new). It returns the node
// itself if none is.
func renamedNode(nd *onnxpb.Node, names map[string]string) *onnxpb.Node {
	isAffected := false
	for _, t := range nd.Input {
		_, ok := names[t]
		isAffected = isAffected || ok
	}
	for _, t := range nd.Output {
		_, ok := names[t]
		isAffected = isAffected || ok
	}
	if !isAffected {
		return nd
	}
	c := proto.Clone(nd).(*onnxpb.Node)
	for k, t := range c.Input {
		if to, ok := names[t]; ok {
			c.Input[k] = to
		}
	}
	for k, t := range c.Output {
		if to, ok := names[t]; ok {
			c.Output[k] = to
		}
	}
	return c
}

// BatchName is the name of the batch size in the shapes of written models.
const BatchName = "N"

// ValueInfo declares a tensor as an input or output of a written model. The batch gets a name in place of a size.
// For a tensor without a type only the name is declared, and the runtime infers the rest.
func ValueInfo(s engine.Spec) *onnxpb.ValueInfo {
	v := &onnxpb.ValueInfo{Name: proto.String(s.Name)}
	if s.Type == 0 {
		return v
	}
	shape := &onnxpb.Shape{}
	for _, d := range s.Shape {
		dim := &onnxpb.Shape_Dim{Value: &onnxpb.Shape_Dim_DimValue{DimValue: d}}
		switch {
		case d == engine.BatchDim:
			dim.Value = &onnxpb.Shape_Dim_DimParam{DimParam: BatchName}
		case d <= 0: // not known
			dim.Value = nil
		}
		shape.Dim = append(shape.Dim, dim)
	}
	v.Type = &onnxpb.Type{Value: &onnxpb.Type_TensorType_{TensorType: &onnxpb.Type_TensorType{ElemType: proto.Int32(int32(s.Type)), Shape: shape}}}
	return v
}

// Encode writes the whole model, seeded weights included.
func (m *Model) Encode() ([]byte, error) {
	return m.encode(subgraph{nodes: m.net.compute, inputs: m.Inputs, outputs: m.declaredOutputs})
}

// WriteFile writes the whole model to a file, completely or not at all: it writes a temporary file beside it, and
// renames that.
func (m *Model) WriteFile(path string) error {
	data, err := m.Encode()
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write model: %w", err)
	}
	defer os.Remove(f.Name())
	if _, err = f.Write(data); err == nil {
		err = f.Chmod(0o644)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write model %s: %w", path, err)
	}
	return nil
}
