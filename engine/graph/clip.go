package graph

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/proto"

	"inferplan/engine"
	"inferplan/engine/graph/onnxpb"
)

// opset is the version of ONNX's own operators that a model names.
func (m *Model) opset() int64 {
	for _, s := range m.header.GetOpsetImport() {
		if s.GetDomain() == "" || s.GetDomain() == "ai.onnx" {
			return s.GetVersion()
		}
	}
	return 0
}

// halfClips writes Clip as Max and Min in float16: before operator set 12 it
// exists in float32 only, on GPUs, too. Max and Min take a scalar beside a tensor
// from operator set 8 on. Constants that come with it are returned.
func halfClips(nodes []*onnxpb.Node, opset int64) ([]*onnxpb.Node, []*onnxpb.Tensor) {
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
		last := nd.Output[0]
		bound := [2]string{} // names of the least and the greatest value, where there are any
		for i := 1; i < len(nd.Input) && i <= 2; i++ {
			bound[i-1] = nd.Input[i]
		}
		for _, a := range nd.Attribute {
			i := map[string]int{"min": 0, "max": 1}[a.GetName()]
			if math.Abs(float64(a.GetF())) > largestHalf {
				continue // nothing is beyond it
			}
			bound[i] = last + "@" + a.GetName()
			inits = append(inits, &onnxpb.Tensor{Name: proto.String(bound[i]), DataType: proto.Int32(int32(engine.F16)),
				RawData: binary.LittleEndian.AppendUint16(nil, Half(a.GetF()))})
		}
		x := nd.Input[0]
		step := func(op, bound, to string) {
			node := &onnxpb.Node{OpType: proto.String(op), Name: nd.Name, Input: []string{x}, Output: []string{to}}
			if to != last && nd.GetName() != "" { // names are unique
				node.Name = proto.String(nd.GetName() + "@above")
			}
			if bound != "" {
				node.Input = append(node.Input, bound)
			}
			out = append(out, node)
			x = to
		}
		if bound[0] != "" && bound[1] != "" {
			step("Max", bound[0], last+"@above")
			step("Min", bound[1], last)
		} else if bound[1] != "" {
			step("Min", bound[1], last)
		} else if bound[0] != "" {
			step("Max", bound[0], last)
		} else {
			step("Identity", "", last)
		}
	}
	return out, inits
}
