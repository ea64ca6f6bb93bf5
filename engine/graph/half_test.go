package graph

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"inferplan/engine/graph/onnxpb"
)

// What cannot compute in float16 is refused by name; what an operator needs in
// float32 stays.
func TestHalfNode(t *testing.T) {
	n := &sortedGraph{inits: map[string]*onnxpb.Tensor{"scales": {Name: proto.String("scales"), DataType: proto.Int32(1), Dims: []int64{2}, FloatData: []float32{1, 1.0 / 3}}}}
	for _, nd := range []*onnxpb.Node{
		{OpType: proto.String("CumSum"), Name: proto.String("sum"), Input: []string{"x"}},
		{OpType: proto.String("If"), Name: proto.String("sum"), Attribute: []*onnxpb.Attribute{{G: &onnxpb.Graph{}}}},
		{OpType: proto.String("Resize"), Name: proto.String("sum"), Input: []string{"x", "", "computed"}},
		{OpType: proto.String("Constant"), Name: proto.String("sum"), Attribute: []*onnxpb.Attribute{tensorAttribute(&onnxpb.Tensor{DataType: proto.Int32(1), FloatData: []float32{1e6}})}},
	} {
		if _, err := n.fp16Node(nd, map[string]*onnxpb.Tensor{}); err == nil || !strings.Contains(err.Error(), "sum") || !strings.Contains(err.Error(), "float16") {
			t.Errorf("%s: %v", nd.GetOpType(), err)
		}
	}
	extra := map[string]*onnxpb.Tensor{}
	nd := &onnxpb.Node{OpType: proto.String("Resize"), Input: []string{"x", "", "scales"}}
	got, err := n.fp16Node(nd, extra)
	if err != nil || got.Input[2] != "scales@float" || nd.Input[2] != "scales" {
		t.Fatalf("%v, %v", got, err)
	}
	if k := extra["scales@float"]; k == nil || k.GetDataType() != 1 || k.FloatData[1] != 1.0/3 {
		t.Errorf("%v", extra)
	}
	cast := &onnxpb.Node{OpType: proto.String("Cast"), Attribute: []*onnxpb.Attribute{{Name: proto.String("to"), I: proto.Int64(1)}}}
	if got, err := n.fp16Node(cast, extra); err != nil || got.Attribute[0].GetI() != 10 || cast.Attribute[0].GetI() != 1 {
		t.Errorf("%v, %v", got, err)
	}
	zeros := &onnxpb.Node{OpType: proto.String("ConstantOfShape"), Input: []string{"s"}}
	if got, err := n.fp16Node(zeros, extra); err != nil || len(got.Attribute) != 1 || got.Attribute[0].T.GetDataType() != 10 {
		t.Errorf("%v, %v", got, err)
	}
}
