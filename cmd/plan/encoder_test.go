package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/protobuf/proto"

	"inferplan/engine/graph/onnxpb"
)

// The encoder of the tests is a text encoder as exporters write them: input_ids and
// attention_mask of free batch and sequence, embeddings, a head of self-attention, and
// two outputs, one of which has the sequence.
const encoderWords, encoderWidth = 16, 8

// encoderWeight is a weight of the encoder.
func encoderWeight(seed, i int) float32 { return float32(math.Sin(float64(seed*97 + i))) }

func encoderMatrix(seed, rows, columns int) [][]float64 {
	out := make([][]float64, rows)
	for r := range out {
		for c := range columns {
			out[r] = append(out[r], float64(encoderWeight(seed, r*columns+c)))
		}
	}
	return out
}

// onnxValue declares an input or output: dimensions are numbers, or names of free ones.
func onnxValue(name string, typ int32, dims ...string) *onnxpb.ValueInfo {
	shape := &onnxpb.Shape{}
	for _, d := range dims {
		dim := &onnxpb.Shape_Dim{Value: &onnxpb.Shape_Dim_DimParam{DimParam: d}}
		if n, err := strconv.ParseInt(d, 10, 64); err == nil {
			dim.Value = &onnxpb.Shape_Dim_DimValue{DimValue: n}
		}
		shape.Dim = append(shape.Dim, dim)
	}
	return &onnxpb.ValueInfo{Name: proto.String(name), Type: &onnxpb.Type{Value: &onnxpb.Type_TensorType_{TensorType: &onnxpb.Type_TensorType{ElemType: proto.Int32(typ), Shape: shape}}}}
}

// encoder FILE [NAME] writes the encoder, whose mask is called NAME (attention_mask).
func encoder(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: encoder FILE [NAME]")
	}
	mask := "attention_mask"
	if len(args) > 1 {
		mask = args[1]
	}
	g := &onnxpb.Graph{Name: proto.String("encoder")}
	g.Input = []*onnxpb.ValueInfo{onnxValue("input_ids", 7, "batch", "sequence"), onnxValue(mask, 7, "batch", "sequence")}
	g.Output = []*onnxpb.ValueInfo{onnxValue("last_hidden_state", 1, "batch", "sequence", strconv.Itoa(encoderWidth)), onnxValue("pooler_output", 1, "batch", strconv.Itoa(encoderWidth))}
	floats := func(name string, seed int, dims ...int64) {
		t := &onnxpb.Tensor{Name: proto.String(name), DataType: proto.Int32(1), Dims: dims}
		n := int64(1)
		for _, d := range dims {
			n *= d
		}
		for i := range n {
			t.FloatData = append(t.FloatData, encoderWeight(seed, int(i)))
		}
		g.Initializer = append(g.Initializer, t)
	}
	floats("E", 1, encoderWords, encoderWidth)
	for i, name := range []string{"Q", "K", "V", "P"} {
		floats(name, 2+i, encoderWidth, encoderWidth)
	}
	g.Initializer = append(g.Initializer,
		&onnxpb.Tensor{Name: proto.String("one"), DataType: proto.Int32(1), FloatData: []float32{1}},
		&onnxpb.Tensor{Name: proto.String("far"), DataType: proto.Int32(1), FloatData: []float32{1e9}},
		&onnxpb.Tensor{Name: proto.String("axis"), DataType: proto.Int32(7), Dims: []int64{1}, Int64Data: []int64{1}},
		&onnxpb.Tensor{Name: proto.String("first"), DataType: proto.Int32(7), Int64Data: []int64{0}})
	whole := func(name string, v int64) *onnxpb.Attribute {
		return &onnxpb.Attribute{Name: proto.String(name), Type: onnxpb.Attribute_INT.Enum(), I: proto.Int64(v)}
	}
	node := func(op, out string, in []string, attributes ...*onnxpb.Attribute) {
		g.Node = append(g.Node, &onnxpb.Node{OpType: proto.String(op), Name: proto.String("node_" + out), Input: in, Output: []string{out}, Attribute: attributes})
	}
	node("Gather", "embedded", []string{"E", "input_ids"})
	for _, name := range []string{"Q", "K", "V"} {
		node("MatMul", name+"x", []string{"embedded", name})
	}
	node("Transpose", "turned", []string{"Kx"}, &onnxpb.Attribute{Name: proto.String("perm"), Type: onnxpb.Attribute_INTS.Enum(), Ints: []int64{0, 2, 1}})
	node("MatMul", "scores", []string{"Qx", "turned"})
	node("Cast", "mask", []string{mask}, whole("to", 1))
	node("Unsqueeze", "rows", []string{"mask", "axis"})
	node("Sub", "less", []string{"rows", "one"})
	node("Mul", "bias", []string{"less", "far"})
	node("Add", "masked", []string{"scores", "bias"})
	node("Softmax", "attention", []string{"masked"}, whole("axis", -1))
	node("MatMul", "context", []string{"attention", "Vx"})
	node("Add", "last_hidden_state", []string{"context", "embedded"})
	node("Gather", "head", []string{"last_hidden_state", "first"}, whole("axis", 1))
	node("MatMul", "pooled", []string{"head", "P"})
	node("Tanh", "pooler_output", []string{"pooled"})
	data, err := proto.Marshal(&onnxpb.Model{IrVersion: proto.Int64(8), OpsetImport: []*onnxpb.OperatorSet{{Version: proto.Int64(13)}}, Graph: g})
	ts.Check(err)
	ts.Check(os.MkdirAll(filepath.Dir(ts.MkAbs(args[0])), 0o755))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), data, 0o644))
}

// encode computes what the encoder answers.
func encode(ids []int) (hidden [][]float64, pooled []float64) {
	words := encoderMatrix(1, encoderWords, encoderWidth)
	times := func(x []float64, m [][]float64) []float64 {
		out := make([]float64, encoderWidth)
		for c := range out {
			for r := range x {
				out[c] += x[r] * m[r][c]
			}
		}
		return out
	}
	q, k, v := encoderMatrix(2, encoderWidth, encoderWidth), encoderMatrix(3, encoderWidth, encoderWidth), encoderMatrix(4, encoderWidth, encoderWidth)
	for _, a := range ids {
		asked := times(words[a], q)
		weights, sum, most := make([]float64, len(ids)), 0.0, math.Inf(-1)
		for j, b := range ids {
			for i, x := range times(words[b], k) {
				weights[j] += asked[i] * x
			}
			most = max(most, weights[j])
		}
		for j := range weights {
			weights[j] = math.Exp(weights[j] - most)
			sum += weights[j]
		}
		row := append([]float64(nil), words[a]...)
		for j, b := range ids {
			for i, x := range times(words[b], v) {
				row[i] += weights[j] / sum * x
			}
		}
		hidden = append(hidden, row)
	}
	pooled = times(hidden[0], encoderMatrix(5, encoderWidth, encoderWidth))
	for i := range pooled {
		pooled[i] = math.Tanh(pooled[i])
	}
	return hidden, pooled
}

// encoded MODEL SAMPLES LENGTH... asks an encoder at $HTTP for texts of lengths and holds
// the answers against those that were computed here.
func encoded(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: encoded MODEL SAMPLES LENGTH...")
	}
	samples, err := strconv.Atoi(args[1])
	ts.Check(err)
	for _, text := range args[2:] {
		length, err := strconv.Atoi(text)
		ts.Check(err)
		var ids, ones []int
		for i := range samples * length {
			ids, ones = append(ids, (7*i*i+3*i+length)%encoderWords), append(ones, 1)
		}
		type tensor struct {
			Name     string `json:"name"`
			Shape    []int  `json:"shape"`
			Datatype string `json:"datatype"`
			Data     any    `json:"data"`
		}
		body, err := json.Marshal(map[string]any{"inputs": []tensor{{"input_ids", []int{samples, length}, "INT64", ids}, {"attention_mask", []int{samples, length}, "INT64", ones}}})
		ts.Check(err)
		resp, err := http.Post("http://"+ts.Getenv("HTTP")+"/v2/models/"+args[0]+"/infer", "application/json", bytes.NewReader(body))
		ts.Check(err)
		data, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		ts.Check(err)
		var got struct {
			ModelName string `json:"model_name"`
			Outputs   []struct {
				Name  string    `json:"name"`
				Shape []int     `json:"shape"`
				Data  []float64 `json:"data"`
			} `json:"outputs"`
		}
		if err := json.Unmarshal(data, &got); err != nil || len(got.Outputs) != 2 || got.ModelName != args[0] {
			ts.Fatalf("length %d: %s", length, data)
		}
		var hidden, pooled []float64
		for s := range samples {
			h, p := encode(ids[s*length:][:length])
			for _, row := range h {
				hidden = append(hidden, row...)
			}
			pooled = append(pooled, p...)
		}
		for i, want := range [][]float64{hidden, pooled} {
			out := &got.Outputs[i]
			shape := []int{samples, length, encoderWidth}
			if i == 1 {
				shape = []int{samples, encoderWidth}
			}
			if fmt.Sprint(out.Shape) != fmt.Sprint(shape) || len(out.Data) != len(want) {
				ts.Fatalf("length %d: output %s has shape %v and %d values, want %v", length, out.Name, out.Shape, len(out.Data), shape)
			}
			for k := range want {
				if d := math.Abs(out.Data[k] - want[k]); !(d < 1e-5) {
					ts.Fatalf("length %d: output %s differs by %g at %d", length, out.Name, d, k)
				}
			}
		}
	}
}
