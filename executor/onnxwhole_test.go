package executor

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"inferplan/engine/graph/onnxpb"
	"inferplan/executor/oip"
	"inferplan/formats"
)

// floatInfo declares a tensor of floats.
func floatInfo(name string, dims ...int64) *onnxpb.ValueInfo {
	shape := &onnxpb.Shape{}
	for _, d := range dims {
		shape.Dim = append(shape.Dim, &onnxpb.Shape_Dim{Value: &onnxpb.Shape_Dim_DimValue{DimValue: d}})
	}
	return &onnxpb.ValueInfo{Name: proto.String(name), Type: &onnxpb.Type{Value: &onnxpb.Type_TensorType_{
		TensorType: &onnxpb.Type_TensorType{ElemType: proto.Int32(1), Shape: shape}}}}
}

// weights are an initialiser of small numbers that differ.
func weights(name string, dims ...int64) *onnxpb.Tensor {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	t := &onnxpb.Tensor{Name: proto.String(name), DataType: proto.Int32(1), Dims: dims}
	for i := range n {
		t.FloatData = append(t.FloatData, float32(math.Sin(float64(i))))
	}
	return t
}

// integers are an initialiser.
func integers(name string, values ...int64) *onnxpb.Tensor {
	return &onnxpb.Tensor{Name: proto.String(name), DataType: proto.Int32(7), Dims: []int64{int64(len(values))}, Int64Data: values}
}

func operator(op string, in, out []string, attributes ...*onnxpb.Attribute) *onnxpb.Node {
	return &onnxpb.Node{OpType: proto.String(op), Name: proto.String("node_" + out[0]), Input: in, Output: out, Attribute: attributes}
}

// branch is a body of If that reshapes x after an operator.
func branch(name, op, out string) *onnxpb.Attribute {
	return &onnxpb.Attribute{Name: proto.String(name), Type: onnxpb.Attribute_GRAPH.Enum(), G: &onnxpb.Graph{Name: proto.String(name),
		Node:   []*onnxpb.Node{operator(op, []string{"x"}, []string{out + "_x"}), operator("Reshape", []string{out + "_x", "two"}, []string{out})},
		Output: []*onnxpb.ValueInfo{floatInfo(out, 2, 2)}}}
}

// sigmoid of an LSTM's gates.
func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// lstm computes what ONNX's LSTM does, of one sequence in one direction without biases: all
// hidden states, then the last. Gates come in the order input, output, forget, cell.
func lstm(x []float64, steps, width, hidden int, w, r []float32) (all, last []float64) {
	h, c := make([]float64, hidden), make([]float64, hidden)
	for s := range steps {
		gate := make([]float64, 4*hidden)
		for g := range gate {
			for k := range width {
				gate[g] += float64(w[g*width+k]) * x[s*width+k]
			}
			for k := range hidden {
				gate[g] += float64(r[g*hidden+k]) * h[k]
			}
		}
		for k := range hidden {
			c[k] = sigmoid(gate[2*hidden+k])*c[k] + sigmoid(gate[k])*math.Tanh(gate[3*hidden+k])
		}
		for k := range hidden {
			h[k] = sigmoid(gate[hidden+k]) * math.Tanh(c[k])
		}
		all = append(all, h...)
	}
	return all, h
}

// A model whose batch cannot be made free is served as it was profiled: whole, at the shapes of
// its file, one request at a time.
func TestServesWholeModels(t *testing.T) {
	withORT(t)
	w, r := weights("W", 1, 16, 3), weights("R", 1, 16, 4)
	for _, c := range []struct {
		name    string
		graph   *onnxpb.Graph
		in      []int64
		outputs [][]int64
		want    func(x []float64) [][]float64
	}{
		{
			name: "batch of four",
			graph: &onnxpb.Graph{Input: []*onnxpb.ValueInfo{floatInfo("x", 4, 8)}, Output: []*onnxpb.ValueInfo{floatInfo("y", 4, 2, 4)}, Initializer: []*onnxpb.Tensor{integers("target", 4, 2, 4)},
				Node: []*onnxpb.Node{operator("Neg", []string{"x"}, []string{"n"}), operator("Reshape", []string{"n", "target"}, []string{"y"})}},
			in: []int64{4, 8}, outputs: [][]int64{{4, 2, 4}},
			want: func(x []float64) [][]float64 {
				for i := range x {
					x[i] = -x[i]
				}
				return [][]float64{x}
			},
		},
		{
			name: "if",
			graph: &onnxpb.Graph{Input: []*onnxpb.ValueInfo{floatInfo("x", 1, 4)}, Output: []*onnxpb.ValueInfo{floatInfo("y", 2, 2)},
				Initializer: []*onnxpb.Tensor{integers("two", 2, 2), {Name: proto.String("zero"), DataType: proto.Int32(1), FloatData: []float32{0}}},
				Node: []*onnxpb.Node{
					operator("ReduceSum", []string{"x"}, []string{"sum"}, &onnxpb.Attribute{Name: proto.String("keepdims"), Type: onnxpb.Attribute_INT.Enum(), I: proto.Int64(0)}),
					operator("Greater", []string{"sum", "zero"}, []string{"positive"}),
					operator("If", []string{"positive"}, []string{"y"}, branch("then_branch", "Exp", "exp"), branch("else_branch", "Neg", "neg"))}},
			in: []int64{1, 4}, outputs: [][]int64{{2, 2}},
			want: func(x []float64) [][]float64 {
				sum, out := 0., make([]float64, len(x))
				for _, v := range x {
					sum += v
				}
				for i, v := range x {
					if out[i] = -v; sum > 0 {
						out[i] = math.Exp(v)
					}
				}
				return [][]float64{out}
			},
		},
		{
			name: "lstm",
			graph: &onnxpb.Graph{Input: []*onnxpb.ValueInfo{floatInfo("x", 5, 1, 3)}, Output: []*onnxpb.ValueInfo{floatInfo("y", 5, 1, 1, 4), floatInfo("last", 1, 1, 4)},
				Initializer: []*onnxpb.Tensor{w, r},
				Node:        []*onnxpb.Node{operator("LSTM", []string{"x", "W", "R"}, []string{"y", "last"}, &onnxpb.Attribute{Name: proto.String("hidden_size"), Type: onnxpb.Attribute_INT.Enum(), I: proto.Int64(4)})}},
			in: []int64{5, 1, 3}, outputs: [][]int64{{5, 1, 1, 4}, {1, 1, 4}},
			want: func(x []float64) [][]float64 {
				all, last := lstm(x, 5, 3, 4, w.FloatData, r.FloatData)
				return [][]float64{all, last}
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.graph.Name = proto.String("whole")
			data, err := proto.Marshal(&onnxpb.Model{IrVersion: proto.Int64(8), OpsetImport: []*onnxpb.OperatorSet{{Version: proto.Int64(13)}}, Graph: c.graph})
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			path := filepath.Join(dir, "whole.onnx")
			if err := os.WriteFile(path, data, 0o644); err != nil {
				t.Fatal(err)
			}
			plan := onnxPlan(t, path, time.Millisecond, 1, patient)
			m := &plan.Deployment[0]
			m.Inputs = []formats.TensorInfo{{Name: "x", DType: "FP32", Shape: c.in}}
			for i, shape := range c.outputs {
				m.Outputs = append(m.Outputs, formats.TensorInfo{Name: c.graph.Output[i].GetName(), DType: "FP32", Shape: shape})
			}
			x := open(t, plan, onnxOptions(dir))
			info := x.Models().Models()[0]
			if info.MaxBatch != 0 || !slices.Equal(info.Inputs[0].Shape, c.in) {
				t.Errorf("the model is offered with %v, batches up to %d", info.Inputs[0].Shape, info.MaxBatch)
			}
			for _, scale := range []float64{1, -1} {
				in := oip.Tensor{Name: "x", Datatype: oip.FP32, Shape: c.in}
				var values []float64
				for i := range elementsOf(c.in) {
					v := float32(scale * (.5 + math.Sin(float64(i))))
					values = append(values, float64(v))
					in.Data = binary.LittleEndian.AppendUint32(in.Data, math.Float32bits(v))
				}
				got, err := x.Infer(context.Background(), &oip.Request{Model: info.Name, Info: info, Inputs: []oip.Tensor{in}, Received: time.Now()})
				if err != nil {
					t.Fatal(err)
				}
				for i, want := range c.want(slices.Clone(values)) {
					if !slices.Equal(got.Outputs[i].Shape, c.outputs[i]) {
						t.Errorf("output %d has shape %v, want %v", i, got.Outputs[i].Shape, c.outputs[i])
					}
					if d, _ := furthest(floats(got.Outputs[i].Data), want); d > 1e-5 || len(got.Outputs[i].Data) != 4*len(want) {
						t.Errorf("output %d is %v, want %v", i, floats(got.Outputs[i].Data), want)
					}
				}
				got.Release()
			}
		})
	}
}

func elementsOf(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}
