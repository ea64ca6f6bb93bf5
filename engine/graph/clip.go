package graph

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/proto"

	"inferplan/engine"
	"inferplan/engine/graph/onnxpb"
)

// opset returns the version of ONNX's operators (the operator set) that the model is written in, or 0 if it names
// none.
func (m *Model) opset() int64 {
	for _, s := range m.header.GetOpsetImport() {
		if s.GetDomain() == "" || s.GetDomain() == "ai.onnx" {
			return s.GetVersion()
		}
	}
	return 0
}

// fp16Clips replaces the Clip nodes of a float16 model by Max and Min where its operator set (opset) is older than
// 12: there, Clip exists only in float32, also on GPUs. Max and Min accept a scalar beside a tensor from operator
// set 8 on. It returns all nodes and the constants, the bounds, that the new ones read.
func fp16Clips(nodes []*onnxpb.Node, opset int64) ([]*onnxpb.Node, []*onnxpb.Tensor) {
	if opset < 8 || opset > 11 {
		return nodes, nil
	}
	var out []*onnxpb.Node
	var inits []*onnxpb.Tensor
	for _, nd := range nodes {
		if nd.GetOpType() != "Clip" || nd.GetDomain() != "" {
			out = append(out, nd)
			continue
		}

		// Find the bounds, which are inputs or attributes.
		outputName := nd.Output[0]
		bound := [2]string{} // names of the smallest and the largest value, empty without one
		for i := 1; i < len(nd.Input) && i <= 2; i++ {
			bound[i-1] = nd.Input[i]
		}
		for _, a := range nd.Attribute {
			i := map[string]int{"min": 0, "max": 1}[a.GetName()]
			if math.Abs(float64(a.GetF())) > largestFP16 {
				continue // no value is beyond the bound
			}
			bound[i] = outputName + "@" + a.GetName()
			inits = append(inits, &onnxpb.Tensor{Name: proto.String(bound[i]), DataType: proto.Int32(int32(engine.F16)),
				RawData: binary.LittleEndian.AppendUint16(nil, engine.ToFP16(a.GetF()))})
		}

		// Replace the node by Max, Min, both, or Identity. Each new node reads x, the output of the one before.
		x := nd.Input[0]
		addNode := func(op, bound, to string) {
			node := &onnxpb.Node{OpType: proto.String(op), Name: nd.Name, Input: []string{x}, Output: []string{to}}
			if to != outputName && nd.GetName() != "" { // node names are unique
				node.Name = proto.String(nd.GetName() + "@above")
			}
			if bound != "" {
				node.Input = append(node.Input, bound)
			}
			out = append(out, node)
			x = to
		}
		if bound[0] != "" && bound[1] != "" {
			addNode("Max", bound[0], outputName+"@above")
			addNode("Min", bound[1], outputName)
		} else if bound[1] != "" {
			addNode("Min", bound[1], outputName)
		} else if bound[0] != "" {
			addNode("Max", bound[0], outputName)
		} else {
			addNode("Identity", "", outputName)
		}
	}
	return out, inits
}
