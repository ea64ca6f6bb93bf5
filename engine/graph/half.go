package graph

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"inferplan/engine"
	"inferplan/engine/graph/onnxpb"
)

// largestFP16 is the largest number that float16 can hold.
const largestFP16 = 65504

// floatOnly are operators that ONNX defines for float32 but not for float16, or whose output type is an attribute.
var floatOnly = setOf("Range CumSum NonMaxSuppression QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearConv QLinearMatMul " +
	"RandomNormal RandomNormalLike RandomUniform RandomUniformLike Multinomial Bernoulli EyeLike SequenceEmpty Optional " +
	"HannWindow HammingWindow BlackmanWindow MelWeightMatrix DFT STFT")

// staysFloat reports whether an input of an operator is float32 even if the operator computes in float16, such as
// the factors of a resize.
func staysFloat(nd *onnxpb.Node, input int) bool {
	switch nd.GetOpType() {
	case "Resize":
		return input == 1 || input == 2 && len(nd.Input) > 2
	case "Upsample":
		return input == 1
	}
	return false
}

// innerType returns the type that a tensor of type t has inside a subgraph: float32 is float16 in one that computes
// in half precision.
func (p *subgraph) innerType(t engine.DType) engine.DType {
	if p.fp16 && t == engine.F32 {
		return engine.F16
	}
	return t
}

// fp16Tensor returns a float32 constant converted to float16, and other constants unchanged. A finite value that
// float16 cannot hold is an error.
func fp16Tensor(t *onnxpb.Tensor) (*onnxpb.Tensor, error) {
	if engine.DType(t.GetDataType()) != engine.F32 {
		return t, nil
	}
	n := len(t.FloatData)
	valueAt := func(i int) float32 { return t.FloatData[i] }
	if t.RawData != nil {
		n = len(t.RawData) / 4
		valueAt = func(i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(t.RawData[4*i:])) }
	}
	raw := make([]byte, 2*n)
	for i := range n {
		x := valueAt(i)
		if a := math.Abs(float64(x)); a > largestFP16 && !math.IsInf(a, 0) {
			return nil, modelErrorf("tensor %q holds %g: float16 ends at %d, this model cannot compute in it", t.GetName(), x, largestFP16)
		}
		binary.LittleEndian.PutUint16(raw[2*i:], engine.ToFP16(x))
	}
	return &onnxpb.Tensor{Name: t.Name, DataType: proto.Int32(int32(engine.F16)), Dims: t.Dims, RawData: raw}, nil
}

// fp16Node returns a node that computes in float16 what the given one computes in float32. Constants that it needs
// beside those of the graph are added to extra, by name. A node that has no float16 form is an error. The result is
// nd itself if nothing changes, and otherwise a copy.
func (n *sortedGraph) fp16Node(nd *onnxpb.Node, extra map[string]*onnxpb.Tensor) (*onnxpb.Node, error) {
	op := nd.GetOpType()
	if floatOnly[op] {
		return nil, modelErrorf("node %s: its operator exists in float32 only, this model cannot compute in float16", nodeLabel(nd))
	}

	// Copy the node when it first changes, because the original stays in use.
	result := nd
	change := func() *onnxpb.Node {
		if result == nd {
			result = proto.Clone(nd).(*onnxpb.Node)
		}
		return result
	}

	// Some inputs, such as Resize's factors, stay float32 by the operator's definition: give the node a float32
	// copy.
	for i, name := range nd.Input {
		if !staysFloat(nd, i) || name == "" {
			continue
		}
		t := n.constTensor(name)
		if t == nil {
			return nil, modelErrorf("node %s: its factors are not constant, this model cannot compute in float16", nodeLabel(nd))
		}
		if engine.DType(t.GetDataType()) == engine.F32 {
			c := proto.Clone(t).(*onnxpb.Tensor)
			c.Name = proto.String(name + "@float")
			extra[c.GetName()] = c
			change().Input[i] = c.GetName()
		}
	}

	// Convert the attributes that hold float32 types or values.
	for k, a := range nd.Attribute {
		switch {
		case a.G != nil || len(a.Graphs) > 0:
			return nil, modelErrorf("node %s has a body, this model cannot compute in float16", nodeLabel(nd))
		case op == "Cast" && a.GetName() == "to" && a.GetI() == int64(engine.F32):
			change().Attribute[k].I = proto.Int64(int64(engine.F16))
		case a.T != nil:
			t, err := fp16Tensor(a.T)
			if err != nil {
				return nil, fmt.Errorf("node %s: %w", nodeLabel(nd), err)
			}
			if t != a.T {
				change().Attribute[k].T = t
			}
		case op == "Constant" && (a.GetName() == "value_float" || a.GetName() == "value_floats"):
			t := &onnxpb.Tensor{DataType: proto.Int32(int32(engine.F32)), FloatData: slices.Clone(a.Floats)}
			if a.GetName() == "value_float" {
				t.FloatData = []float32{a.GetF()}
			} else {
				t.Dims = []int64{int64(len(a.Floats))}
			}
			t, err := fp16Tensor(t)
			if err != nil {
				return nil, fmt.Errorf("node %s: %w", nodeLabel(nd), err)
			}
			change().Attribute[k] = tensorAttribute(t)
		}
	}

	// Without an attribute this operator fills with float32 zeros.
	if op == "ConstantOfShape" && len(nd.Attribute) == 0 {
		change().Attribute = []*onnxpb.Attribute{tensorAttribute(&onnxpb.Tensor{DataType: proto.Int32(int32(engine.F16)), Dims: []int64{1}, RawData: []byte{0, 0}})}
	}
	return result, nil
}

// tensorAttribute makes the attribute "value" of a Constant or ConstantOfShape node.
func tensorAttribute(t *onnxpb.Tensor) *onnxpb.Attribute {
	return &onnxpb.Attribute{Name: proto.String("value"), Type: onnxpb.Attribute_TENSOR.Enum(), T: t}
}

// convertToFP16 converts the initialisers and nodes of a graph that is about to be written to float16. The casts at
// the graph's boundary are not among them. It returns the converted ones, with the constants that new nodes need.
func (n *sortedGraph) convertToFP16(inits []*onnxpb.Tensor, nodes []*onnxpb.Node) ([]*onnxpb.Tensor, []*onnxpb.Node, error) {
	extra := map[string]*onnxpb.Tensor{}
	outNodes := make([]*onnxpb.Node, len(nodes))
	for i, nd := range nodes {
		var err error
		if outNodes[i], err = n.fp16Node(nd, extra); err != nil {
			return nil, nil, err
		}
	}
	outInits := make([]*onnxpb.Tensor, len(inits))
	for i, t := range inits {
		var err error
		if outInits[i], err = fp16Tensor(t); err != nil {
			return nil, nil, err
		}
	}

	// Add the extra constants in the order of the nodes that read them, so that the same model gives the same bytes.
	for _, nd := range outNodes {
		for _, in := range nd.Input {
			if t := extra[in]; t != nil {
				outInits = append(outInits, t)
				delete(extra, in)
			}
		}
	}
	return outInits, outNodes, nil
}
