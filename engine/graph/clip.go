package graph

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/proto"

	"inferplan/engine"
	"inferplan/engine/graph/onnxpb"
)

// opset returns the version of ONNX's own operators that the model names.
func (m *Model) opset() int64 {
	for _, s := range m.header.GetOpsetImport() {
		if s.GetDomain() == "" || s.GetDomain() == "ai.onnx" {
			return s.GetVersion()
		}
	}
	return 0
}

// fp16Clips replaces Clip in float16 by Max and Min: before operator set 12 it exists only in float32, also on
// GPUs. Max and Min accept a scalar beside a tensor from operator set 8 on. It also returns the constants that
// these need.
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
		lastName := nd.Output[0]
		bound := [2]string{} // names of the smallest and the largest value, empty without one
		for i := 1; i < len(nd.Input) && i <= 2; i++ {
			bound[i-1] = nd.Input[i]
		}
		for _, a := range nd.Attribute {
			i := map[string]int{"min": 0, "max": 1}[a.GetName()]
			if math.Abs(float64(a.GetF())) > largestFP16 {
				continue // no value is beyond the bound
			}
			bound[i] = lastName + "@" + a.GetName()
			inits = append(inits, &onnxpb.Tensor{Name: proto.String(bound[i]), DataType: proto.Int32(int32(engine.F16)),
				RawData: binary.LittleEndian.AppendUint16(nil, ToFP16(a.GetF()))})
		}

		// Replace the node by Max, Min, both, or Identity.
		x := nd.Input[0]
		step := func(op, bound, to string) {
			node := &onnxpb.Node{OpType: proto.String(op), Name: nd.Name, Input: []string{x}, Output: []string{to}}
			if to != lastName && nd.GetName() != "" { // node names are unique
				node.Name = proto.String(nd.GetName() + "@above")
			}
			if bound != "" {
				node.Input = append(node.Input, bound)
			}
			out = append(out, node)
			x = to
		}
		if bound[0] != "" && bound[1] != "" {
			step("Max", bound[0], lastName+"@above")
			step("Min", bound[1], lastName)
		} else if bound[1] != "" {
			step("Min", bound[1], lastName)
		} else if bound[0] != "" {
			step("Max", bound[0], lastName)
		} else {
			step("Identity", "", lastName)
		}
	}
	return out, inits
}
