package graph

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"inferplan/engine/graph/onnxpb"
)

// Clip becomes what exists in float16, with the same bounds, in those operator
// sets where it does not.
func TestHalfClips(t *testing.T) {
	bounds := func(min, max float32) []*onnxpb.Attribute {
		return []*onnxpb.Attribute{{Name: proto.String("min"), F: proto.Float32(min)}, {Name: proto.String("max"), F: proto.Float32(max)}}
	}
	for _, c := range []struct {
		name  string
		opset int64
		node  *onnxpb.Node
		want  string
		inits string
	}{
		{"attributes", 9, &onnxpb.Node{Input: []string{"x"}, Attribute: bounds(0, 6)}, "Max x,y@min y@above; Min y@above,y@max y", "y@min 0, y@max 4600"},
		{"no lower end", 10, &onnxpb.Node{Input: []string{"x"}, Attribute: bounds(-3.4e38, 6)}, "Min x,y@max y", "y@max 4600"},
		{"no end", 10, &onnxpb.Node{Input: []string{"x"}}, "Identity x y", ""},
		{"inputs", 11, &onnxpb.Node{Input: []string{"x", "low", "high"}}, "Max x,low y@above; Min y@above,high y", ""},
		{"lower input", 11, &onnxpb.Node{Input: []string{"x", "low"}}, "Max x,low y", ""},
		{"upper input", 11, &onnxpb.Node{Input: []string{"x", "", "high"}}, "Min x,high y", ""},
		{"newer", 12, &onnxpb.Node{Input: []string{"x", "low", "high"}}, "Clip x,low,high y", ""},
		{"older", 7, &onnxpb.Node{Input: []string{"x"}, Attribute: bounds(0, 6)}, "Clip x y", ""},
	} {
		c.node.OpType, c.node.Name, c.node.Output = proto.String("Clip"), proto.String("c"), []string{"y"}
		nodes, inits := fp16Clips([]*onnxpb.Node{c.node}, c.opset)
		var got, consts []string
		if len(nodes) == 2 && nodes[0].GetName() == nodes[1].GetName() {
			t.Errorf("%s: two nodes of one name", c.name)
		}
		for _, nd := range nodes {
			got = append(got, fmt.Sprintf("%s %s %s", nd.GetOpType(), strings.Join(nd.Input, ","), strings.Join(nd.Output, ",")))
		}
		for _, k := range inits {
			consts = append(consts, fmt.Sprintf("%s %x", k.GetName(), int(k.RawData[0])|int(k.RawData[1])<<8))
		}
		if g, k := strings.Join(got, "; "), strings.Join(consts, ", "); g != c.want || k != c.inits {
			t.Errorf("%s: %s with %s, want %s with %s", c.name, g, k, c.want, c.inits)
		}
	}
}
