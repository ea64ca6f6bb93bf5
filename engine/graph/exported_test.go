package graph

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"inferplan/engine"
	"inferplan/engine/graph/onnxpb"
)

// declare is an input or output with dimensions: numbers, or names of free ones.
func declare(name string, t engine.DType, dims ...any) *onnxpb.ValueInfo {
	shape := &onnxpb.Shape{}
	for _, d := range dims {
		dim := &onnxpb.Shape_Dim{}
		switch d := d.(type) {
		case int:
			dim.Value = &onnxpb.Shape_Dim_DimValue{DimValue: int64(d)}
		case string:
			dim.Value = &onnxpb.Shape_Dim_DimParam{DimParam: d}
		}
		shape.Dim = append(shape.Dim, dim)
	}
	return &onnxpb.ValueInfo{Name: proto.String(name), Type: &onnxpb.Type{Value: &onnxpb.Type_TensorType_{
		TensorType: &onnxpb.Type_TensorType{ElemType: proto.Int32(int32(t)), Shape: shape}}}}
}

// textModel is a text model as exporters write it: two inputs with the same free dimensions,
// and a number that is no tensor of a batch.
func textModel() *onnxpb.Model {
	pm := diamond()
	pm.Graph.Input = []*onnxpb.ValueInfo{declare("ids", engine.I64, "batch", "length"), declare("mask", engine.I64, "batch", "length"), declare("rate", engine.I64)}
	pm.Graph.Node = []*onnxpb.Node{
		{OpType: proto.String("Mul"), Input: []string{"ids", "mask"}, Output: []string{"a"}},
		{OpType: proto.String("Mul"), Input: []string{"a", "rate"}, Output: []string{"y"}},
	}
	pm.Graph.Initializer, pm.Graph.Output = nil, []*onnxpb.ValueInfo{declare("y", engine.I64, "batch", "length")}
	return pm
}

// TestExportedInputs: what the inputs of a model leave open is asked for at once, with the
// flags that give it, and one size is enough for dimensions of one name.
func TestExportedInputs(t *testing.T) {
	data := encoded(t, textModel())
	rate := map[string]Literal{"rate": {Values: []float64{16000}}}
	m, err := Read("text.onnx", data, Options{Dims: map[string][]int64{"ids": {1, 64}}, Values: rate})
	if err != nil {
		t.Fatal(err)
	}
	if got := specText(m.Inputs); got != "ids int64[N,64] mask int64[N,64]" {
		t.Errorf("inputs %s", got)
	}
	if len(m.Constants) != 1 || m.Constants[0].Name != "rate" || m.Constants[0].Value.Values[0] != 16000 {
		t.Errorf("constants %+v", m.Constants)
	}
	if m.Identity == m.SHA256 {
		t.Error("a constant does not change the model's identity")
	}
	written, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back := new(onnxpb.Model)
	if err := proto.Unmarshal(written, back); err != nil {
		t.Fatal(err)
	}
	inits := back.Graph.Initializer
	if len(inits) != 1 || inits[0].GetName() != "rate" || !slices.Equal(inits[0].RawData, []byte{0x80, 0x3e, 0, 0, 0, 0, 0, 0}) {
		t.Errorf("the constant is written as %v", inits)
	}
	for _, c := range []struct {
		o    Options
		says string
	}{
		{Options{}, `input "ids" is int64[batch, length], whose dimension 1 is not fixed; input "mask" is int64[batch, length], whose dimension 1 is not fixed; ` +
			`input "rate" is a single int64 without a batch dimension, which requests cannot bring: say what to plan for, sizes with the batch in front: ` +
			`--shape ids=1x128 --shape mask=1x128 --input rate=VALUE`},
		{Options{Values: rate, Dims: map[string][]int64{"ids": {1, 64}, "mask": {1, 32}}}, `dimension 1 ("length") is given as 32, and as 64 for another input`},
		{Options{Dims: map[string][]int64{"ids": {1, 64}}, Values: map[string]Literal{"rate": {Values: []float64{.5}}}}, `input "rate": 0.5 is no int64`},
		{Options{Values: map[string]Literal{"rate": {Shape: []int64{2}, Values: []float64{1, 2}}}}, "is a single int64, 2 values were given"},
		{Options{Dims: map[string][]int64{"ids": {1, 64}}, Values: map[string]Literal{"rate": rate["rate"], "ids": {Shape: []int64{3}, Values: []float64{1, 2, 3}}}},
			`input "ids": 3 values of shape [3], expected one, or 64 for a sample`},
	} {
		if _, err := Read("text.onnx", data, c.o); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: does not say %s", err, c.says)
		}
	}
}

func specText(list []engine.Spec) string {
	var text []string
	for _, s := range list {
		text = append(text, s.String())
	}
	return strings.Join(text, " ")
}

// TestOtherFiles: what is no ONNX file is named.
func TestOtherFiles(t *testing.T) {
	for data, says := range map[string]string{
		"version https://git-lfs.github.com/spec/v1\noid sha256:00": "git lfs pull",
		"PK\x03\x04 and more":                 "ZIP archive",
		"<!doctype html><html></html>":        "a web page",
		"\x1f\x8b\x08 and more":               "gunzip",
		"\x1c\x00\x00\x00TFL3 and more":       "TensorFlow Lite",
		"\x1c\x00\x00\x00ORTM and more":       "(.ort)",
		`{"format": "inferplan.profile/v1"}`:  "a JSON text",
		"this is no model at all, only words": "not an ONNX file",
	} {
		_, err := Read("m.onnx", []byte(data), Options{})
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "proto") {
			t.Errorf("%q: %v does not say %q", data, err, says)
		}
	}
}

// TestZipMap: a classifier's list of maps gives way to its probabilities; other outputs that
// are no tensors are refused with what mends them.
func TestZipMap(t *testing.T) {
	pm := diamond()
	sequence := &onnxpb.Type{}
	sequence.ProtoReflect().SetUnknown([]byte{4<<3 | 2, 0})
	pm.Graph.Node = append(pm.Graph.Node, &onnxpb.Node{OpType: proto.String("ZipMap"), Domain: proto.String("ai.onnx.ml"), Input: []string{"e"}, Output: []string{"maps"}})
	pm.Graph.Output = append(pm.Graph.Output, &onnxpb.ValueInfo{Name: proto.String("maps"), Type: sequence})
	m, err := Read("forest.onnx", encoded(t, pm), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if m.Outputs[1] != "e" || len(m.Notes) != 1 || !strings.Contains(m.Notes[0], `in its place stands the tensor "e"`) {
		t.Errorf("outputs %v, notes %q", m.Outputs, m.Notes)
	}
	pm.Graph.Node[len(pm.Graph.Node)-1].OpType = proto.String("SequenceConstruct")
	if _, err := Read("forest.onnx", encoded(t, pm), Options{}); err == nil || !strings.Contains(err.Error(), `output "maps" is a sequence, which no answer can carry`) {
		t.Errorf("a sequence: %v", err)
	}
}

// TestStateBesideABatch: inputs whose first dimensions are not one batch are never fed other
// sizes, and run at the file's.
func TestStateBesideABatch(t *testing.T) {
	pm := diamond()
	pm.Graph.Input = []*onnxpb.ValueInfo{declare("x", engine.F32, "batch", 4), declare("state", engine.F32, 2, nil, 8)}
	pm.Graph.Node = append(pm.Graph.Node, &onnxpb.Node{OpType: proto.String("Relu"), Input: []string{"state"}, Output: []string{"next"}})
	pm.Graph.Output = append(pm.Graph.Output, &onnxpb.ValueInfo{Name: proto.String("next")})
	m, err := Read("vad.onnx", encoded(t, pm), Options{Dims: map[string][]int64{"state": {2, 1, 8}}})
	if err != nil {
		t.Fatal(err)
	}
	fed := 0
	probe := func(_ context.Context, _ []byte, inputs []engine.Spec, runs ...ProbeRun) ([]map[string]Value, error) {
		fed++
		if got := specText(inputs); got != "x float32[1,4] state float32[2,1,8]" || runs[0].Batch != 1 {
			t.Errorf("fed with %s at batch %d", got, runs[0].Batch)
		}
		out := map[string]Value{}
		for _, name := range runs[0].Names {
			out[name] = Value{Type: engine.F32, Shape: []int64{1, 4}}
		}
		return []map[string]Value{out}, nil
	}
	if _, err := m.Chain(ctx, probe, ChainOptions{}); err == nil || fed > 0 || !strings.Contains(err.Error(), `the first dimension of input "state" is always 2`) {
		t.Errorf("cut after %d probes: %v", fed, err)
	}
	sub, batch, err := m.Fixed(ctx, probe)
	if err != nil || batch != 1 || specText(sub.Inputs) != "x float32[1,4] state float32[2,1,8]" {
		t.Errorf("as its file: %v %v", sub, err)
	}
}

// TestWeightsOutside: weights in a file beside the model stay there, small ones are read, and
// what is wrong with the file is said.
func TestWeightsOutside(t *testing.T) {
	dir := t.TempDir()
	large, small := make([]byte, 2<<20), []byte{1, 0, 0, 0, 0, 0, 0, 0, 252, 255, 255, 255, 255, 255, 255, 255}
	if err := os.WriteFile(filepath.Join(dir, "w.data"), append(slices.Clone(large), small...), 0o644); err != nil {
		t.Fatal(err)
	}
	lies := func(name string, typ engine.DType, dims []int64, file, offset, length string) *onnxpb.Tensor {
		property := func(k, v string) *onnxpb.Property {
			return &onnxpb.Property{Key: proto.String(k), Value: proto.String(v)}
		}
		return &onnxpb.Tensor{Name: proto.String(name), DataType: proto.Int32(int32(typ)), Dims: dims, DataLocation: onnxpb.Tensor_EXTERNAL.Enum(),
			ExternalData: []*onnxpb.Property{property("location", file), property("offset", offset), property("length", length)}}
	}
	write := func(inits ...*onnxpb.Tensor) string {
		pm := diamond()
		pm.Graph.Input = []*onnxpb.ValueInfo{declare("x", engine.F32, "batch", 4)}
		pm.Graph.Node = []*onnxpb.Node{
			{OpType: proto.String("MatMul"), Input: []string{"x", "w"}, Output: []string{"a"}},
			{OpType: proto.String("Reshape"), Input: []string{"a", "to"}, Output: []string{"y"}},
		}
		pm.Graph.Initializer, pm.Graph.Output = inits, []*onnxpb.ValueInfo{{Name: proto.String("y")}}
		path := filepath.Join(dir, "m.onnx")
		if err := os.WriteFile(path, encoded(t, pm), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	to := lies("to", engine.I64, []int64{2}, "w.data", "2097152", "16")
	path := write(lies("w", engine.F32, []int64{4, 131072}, "w.data", "0", "2097152"), to)
	m, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	data, err := m.Encode()
	if err != nil || len(data) > 4096 {
		t.Fatalf("written with %d bytes: %v", len(data), err)
	}
	back := new(onnxpb.Model)
	if err := proto.Unmarshal(data, back); err != nil {
		t.Fatal(err)
	}
	for _, x := range back.Graph.Initializer {
		if outside := isOutside(x); outside != (x.GetName() == "w") {
			t.Errorf("%s lies outside: %v", x.GetName(), outside)
		}
	}
	before := m.SHA256

	large[0] = 1
	if err := os.WriteFile(filepath.Join(dir, "w.data"), append(slices.Clone(large), small...), 0o644); err != nil {
		t.Fatal(err)
	}
	if m, err = Open(path, Options{}); err != nil || m.SHA256 == before {
		t.Errorf("other weights have the same identity: %v", err)
	}
	for _, c := range []struct {
		w    *onnxpb.Tensor
		says string
	}{
		{lies("w", engine.F32, []int64{4, 4}, "absent.data", "0", "64"), "its weights are in the file absent.data, which is not beside it"},
		{lies("w", engine.F32, []int64{4, 4}, "../w.data", "0", "64"), "expected one beside the model"},
		{lies("w", engine.F32, []int64{4, 4}, "w.data", "2097152", "64"), "ends at byte 2097216 of w.data, which has 2097168"},
		{lies("w", engine.F32, []int64{4, 4}, "w.data", "0", "60"), "60 bytes at 0 of w.data, 64 are expected"},
		{lies("w", engine.F32, []int64{4, 4}, "w.data", "much", "64"), `offset of its values is "much"`},
	} {
		if _, err := Open(write(c.w, to), Options{}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: does not say %s", err, c.says)
		}
	}
}
