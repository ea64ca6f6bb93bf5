package profiler

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"google.golang.org/protobuf/proto"

	"inferplan/engine/graph/onnxpb"
)

// librarysWords are what a message about a model file must not say: names and notions of ONNX Runtime's
// sources and of protobuf, and element types by number.
var librarysWords = regexp.MustCompile(`(?i)onnxruntime::|\bort_|ortvalue|protobuf|\bproto[:0-9]|wire.?format|\.(cc|h|cpp):\d|std::|element type \d|elem_type|\bstatus (message|code)|fatal error|exception|registered function|ShapeInferenceError|TypeInferenceError`)

// TestBrokenModels: a file that cannot be used is refused as bad input, in words of its form, whatever is
// wrong with it.
func TestBrokenModels(t *testing.T) {
	eng := realEngine(t)
	value := func(name string, typ int32, dims ...int64) *onnxpb.ValueInfo {
		shape := &onnxpb.Shape{}
		for _, d := range dims {
			dim := &onnxpb.Shape_Dim{}
			if d > 0 {
				dim.Value = &onnxpb.Shape_Dim_DimValue{DimValue: d}
			}
			shape.Dim = append(shape.Dim, dim)
		}
		return &onnxpb.ValueInfo{Name: proto.String(name), Type: &onnxpb.Type{Value: &onnxpb.Type_TensorType_{TensorType: &onnxpb.Type_TensorType{ElemType: proto.Int32(typ), Shape: shape}}}}
	}
	node := func(op string, out string, in ...string) *onnxpb.Node {
		return &onnxpb.Node{OpType: proto.String(op), Name: proto.String("n_" + out), Input: in, Output: []string{out}}
	}
	weight := func(dims ...int64) *onnxpb.Tensor {
		n := int64(1)
		for _, d := range dims {
			n *= d
		}
		return &onnxpb.Tensor{Name: proto.String("W"), DataType: proto.Int32(1), Dims: dims, FloatData: make([]float32, n)}
	}
	for name, edit := range map[string]func(m *onnxpb.Model){
		"unknown-operator":      func(m *onnxpb.Model) { m.Graph.Node[0].OpType = proto.String("Frobnicate") },
		"unknown-domain":        func(m *onnxpb.Model) { m.Graph.Node[0].Domain = proto.String("com.example") },
		"opset-of-tomorrow":     func(m *onnxpb.Model) { m.OpsetImport[0].Version = proto.Int64(999) },
		"opset-of-yesterday":    func(m *onnxpb.Model) { m.OpsetImport[0].Version = proto.Int64(1) },
		"no-opset":              func(m *onnxpb.Model) { m.OpsetImport = nil },
		"ir-of-tomorrow":        func(m *onnxpb.Model) { m.IrVersion = proto.Int64(999) },
		"shapes-that-clash":     func(m *onnxpb.Model) { m.Graph.Initializer[0] = weight(5, 3) },
		"types-that-clash":      func(m *onnxpb.Model) { m.Graph.Input[0] = value("x", 7, 0, 4) },
		"type-of-nobody":        func(m *onnxpb.Model) { m.Graph.Input[0] = value("x", 99, 0, 4) },
		"type-undefined":        func(m *onnxpb.Model) { m.Graph.Input[0] = value("x", 0, 0, 4) },
		"complex":               func(m *onnxpb.Model) { m.Graph.Input[0] = value("x", 14, 0, 4) },
		"float8":                func(m *onnxpb.Model) { m.Graph.Input[0] = value("x", 17, 0, 4) },
		"texts":                 func(m *onnxpb.Model) { m.Graph.Input[0] = value("x", 8, 0, 4) },
		"weights-cut-off":       func(m *onnxpb.Model) { m.Graph.Initializer[0].FloatData = m.Graph.Initializer[0].FloatData[:3] },
		"weights-of-other-type": func(m *onnxpb.Model) { m.Graph.Initializer[0].DataType = proto.Int32(6) },
		"input-of-nobody":       func(m *onnxpb.Model) { m.Graph.Node[0].Input[0] = "absent" },
		"output-of-nobody":      func(m *onnxpb.Model) { m.Graph.Output[0].Name = proto.String("absent") },
		"too-few-inputs":        func(m *onnxpb.Model) { m.Graph.Node[0].Input = m.Graph.Node[0].Input[:1] },
		"cycle":                 func(m *onnxpb.Model) { m.Graph.Node[0].Input[0] = "y" },
		"two-of-one-name":       func(m *onnxpb.Model) { m.Graph.Node = append(m.Graph.Node, node("Relu", "y", "x")) },
		"attribute-of-nobody": func(m *onnxpb.Model) {
			m.Graph.Node[1].Attribute = []*onnxpb.Attribute{{Name: proto.String("wings"), Type: onnxpb.Attribute_INT.Enum(), I: proto.Int64(2)}}
		},
		"attribute-of-other-type": func(m *onnxpb.Model) {
			m.Graph.Node[1] = node("Softmax", "y", "a")
			m.Graph.Node[1].Attribute = []*onnxpb.Attribute{{Name: proto.String("axis"), Type: onnxpb.Attribute_FLOAT.Enum(), F: proto.Float32(1)}}
		},
		"axis-out-of-range": func(m *onnxpb.Model) {
			m.Graph.Node[1] = node("Softmax", "y", "a")
			m.Graph.Node[1].Attribute = []*onnxpb.Attribute{{Name: proto.String("axis"), Type: onnxpb.Attribute_INT.Enum(), I: proto.Int64(7)}}
		},
		"no-nodes":   func(m *onnxpb.Model) { m.Graph.Node = nil },
		"no-inputs":  func(m *onnxpb.Model) { m.Graph.Input = nil },
		"no-outputs": func(m *onnxpb.Model) { m.Graph.Output = nil },
		"no-rank":    func(m *onnxpb.Model) { m.Graph.Input[0].Type.GetTensorType().Shape = nil },
		"no-type":    func(m *onnxpb.Model) { m.Graph.Input[0].Type = nil },
		"scalar":     func(m *onnxpb.Model) { m.Graph.Input[0] = value("x", 1) },
		"free-size":  func(m *onnxpb.Model) { m.Graph.Input[0] = value("x", 1, 0, 0) },
		"empty-dimension": func(m *onnxpb.Model) {
			m.Graph.Input[0].Type.GetTensorType().Shape.Dim[1].Value = &onnxpb.Shape_Dim_DimValue{}
		},
		"dimension-negative": func(m *onnxpb.Model) {
			m.Graph.Input[0].Type.GetTensorType().Shape.Dim[1].Value = &onnxpb.Shape_Dim_DimValue{DimValue: -5}
		},
		"reshape-that-fails": func(m *onnxpb.Model) {
			m.Graph.Initializer = append(m.Graph.Initializer, &onnxpb.Tensor{Name: proto.String("to"), DataType: proto.Int32(7), Dims: []int64{2}, Int64Data: []int64{-1, 7}})
			m.Graph.Node[1] = node("Reshape", "y", "a", "to")
		},
		"weights-elsewhere": func(m *onnxpb.Model) {
			w := m.Graph.Initializer[0]
			w.FloatData, w.DataLocation = nil, onnxpb.Tensor_EXTERNAL.Enum()
			w.ExternalData = []*onnxpb.Property{{Key: proto.String("location"), Value: proto.String("absent.data")}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := &onnxpb.Model{IrVersion: proto.Int64(8), OpsetImport: []*onnxpb.OperatorSet{{Version: proto.Int64(13)}}, Graph: &onnxpb.Graph{
				Name: proto.String("broken"), Input: []*onnxpb.ValueInfo{value("x", 1, 0, 4)}, Output: []*onnxpb.ValueInfo{value("y", 1, 0, 3)},
				Node: []*onnxpb.Node{node("MatMul", "a", "x", "W"), node("Relu", "y", "a")}, Initializer: []*onnxpb.Tensor{weight(4, 3)},
			}}
			edit(m)
			data, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), name+".onnx")
			if err := os.WriteFile(path, data, 0o644); err != nil {
				t.Fatal(err)
			}
			_, err = openONNX(context.Background(), path, &Options{Engine: eng})
			t.Log(err)
			if !errors.Is(err, ErrInput) {
				t.Errorf("%v, expected a refusal of the file", err)
			} else if words := librarysWords.FindString(err.Error()); words != "" {
				t.Errorf("says %q: %v", words, err)
			}
		})
	}
}
