package profiler

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"inferplan/engine"
	"inferplan/engine/graph/onnxpb"
	"inferplan/engine/models"
	"inferplan/engine/ort"
	"inferplan/formats"
	"inferplan/formats/document"
)

// realEngine opens ONNX Runtime, or skips.
func realEngine(t testing.TB) *ort.Engine {
	t.Helper()
	eng, err := ort.Open("")
	if errors.Is(err, engine.ErrNoLibrary) {
		t.Skipf("needs ONNX Runtime, run `make setup`: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := eng.Close(); err != nil {
			t.Error(err)
		}
		if s, b, v := ort.Live(); s+b+v != 0 {
			t.Errorf("left open: %d sessions, %d bindings, %d tensors", s, b, v)
		}
	})
	return eng
}

// realModels writes models of the catalogue with their weights, or skips.
func realModels(t testing.TB, names ...string) []string {
	t.Helper()
	paths, err := models.Write(t.TempDir(), models.DefaultSeed, names...)
	if errors.Is(err, models.ErrAbsent) {
		t.Skipf("needs the model files, run `make setup`: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// coarse is quick rather than exact.
var coarse = Precision{HalfWidth: 0.1, Floor: 5 * time.Microsecond, MinRounds: 8, MaxRounds: 16}

func TestSqueezeNet(t *testing.T) {
	eng := realEngine(t)
	paths := realModels(t, "squeezenet")
	out := filepath.Join(t.TempDir(), "profile.json")
	var est Estimate
	o := Options{
		Models: paths, Device: "cpu", Batches: []int{1, 2}, Engine: eng, OutPath: out, Precision: coarse,
		OnEstimate: func(e Estimate) error { est = e; return nil },
	}
	begin := time.Now()
	p, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("took %v, estimated %v, at most %v", time.Since(begin), est.ExpectedTime, est.MaxTime)
	m := p.Models[0]
	if m.Model != "squeezenet" || len(m.Blocks) != 10 || len(m.Measurements) != 2 || m.Inputs[0].Shape[0] != -1 || m.Inputs[0].DType != "FP32" {
		t.Fatalf("model %+v", m)
	}
	if digest, err := document.Digest(paths[0]); err != nil || !strings.HasSuffix(digest, m.Source.SHA256) {
		t.Errorf("hash %s, the file's is %s (%v)", m.Source.SHA256, digest, err)
	}
	var weights int64
	nodes := 0
	for i, b := range m.Blocks {
		weights += b.WeightBytes
		nodes += b.Nodes
		if i == len(m.Blocks)-1 {
			break
		}
		elements := int64(0)
		for _, c := range b.Cut {
			n := int64(1)
			for _, d := range c.Shape[1:] {
				n *= d
			}
			elements += n
		}
		if b.CutBytesFP32.Bytes() != 4*elements || b.CutBytesFP16.Bytes() != 2*elements {
			t.Errorf("%s: %d and %d bytes for %d elements", b.Name, b.CutBytesFP32, b.CutBytesFP16, elements)
		}
		// 1.2 M parameters with seeded weights: float16 keeps the answer.
		if b.FP16 == nil || b.FP16.Samples != 8 || b.FP16.Top1Agreement < 0.5 || b.FP16.MaxAbsDiff <= 0 || b.FP16.MaxAbsDiff > 0.1 {
			t.Errorf("%s: float16 %+v", b.Name, b.FP16)
		}
	}
	if nodes != 66 || weights < 4<<20 || weights > 6<<20 {
		t.Errorf("%d nodes, %d bytes of weights", nodes, weights)
	}
	for _, x := range m.Measurements {
		var cpu float64
		for _, l := range x.Blocks {
			if l.CPUUS <= 0 || l.WallUS <= 0 || l.P99US < l.WallUS || l.Samples < 8 {
				t.Errorf("batch %d: %+v", x.Batch, l)
			}
			cpu += float64(l.CPUUS)
		}
		// Cuts cost something, but not a multiple.
		if ratio := cpu / float64(x.WholeModel.CPUUS); ratio < 0.7 || ratio > 1.8 {
			t.Errorf("batch %d: the blocks are %.2f times the whole", x.Batch, ratio)
		}
		if x.MemoryBytes < weights || x.MemoryBytes > 1<<30 {
			t.Errorf("batch %d: %d bytes of memory", x.Batch, x.MemoryBytes)
		}
	}
	if a, b := m.Measurements[0].WholeModel.CPUUS, m.Measurements[1].WholeModel.CPUUS; float64(b) < 1.3*float64(a) || float64(b) > 3*float64(a) {
		t.Errorf("batch 2 costs %v, batch 1 %v", b, a)
	}
	if d := p.Devices[0]; d.Device != "cpu-1" || d.Name == "" || d.Driver == "" || d.Engine != "onnxruntime" || d.EngineVersion == "" || d.CopyGbps < 1 {
		t.Errorf("device %+v", d)
	}

	// Measured already: only the model is read.
	begin = time.Now()
	if _, err := Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	t.Logf("a second run without work took %v", time.Since(begin))

	// Ctrl-C in the middle of another batch keeps the file whole.
	ctx, cancel := context.WithCancel(context.Background())
	o.Batches = []int{1, 2, 4}
	o.Progress = func(e Event) {
		if e.Stage == StageSample {
			cancel()
		}
	}
	if _, err := Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	cancel()
	kept, err := formats.ReadProfile(out)
	if err != nil || len(kept.Models[0].Measurements) < 2 {
		t.Errorf("after an interrupt: %v, %+v", err, kept)
	}
}

func TestWeightlessModel(t *testing.T) {
	eng := realEngine(t)
	dir, err := models.Dir()
	if err != nil {
		t.Skipf("needs the model files, run `make setup`: %v", err)
	}
	path := filepath.Join(dir, "light_squeezenet.onnx")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("needs the model files, run `make setup`: %v", err)
	}
	p, err := Run(context.Background(), Options{Models: []string{path}, Device: "cpu", Batches: []int{1}, Blocks: 2, Seed: 7, Engine: eng, Precision: coarse})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(p.Notes, func(n string) bool { return strings.Contains(n, "seed 7") }) {
		t.Errorf("no note about the seed: %q", p.Notes)
	}
}

// tinyModel is an ONNX file of one input x [batch,8] and the given nodes; its
// output is called y.
func tinyModel(t *testing.T, batch int64, nodes []*onnxpb.Node, inits ...*onnxpb.Tensor) string {
	t.Helper()
	shape := &onnxpb.Shape{Dim: []*onnxpb.Shape_Dim{
		{Value: &onnxpb.Shape_Dim_DimValue{DimValue: batch}}, {Value: &onnxpb.Shape_Dim_DimValue{DimValue: 8}},
	}}
	info := func(name string, s *onnxpb.Shape) *onnxpb.ValueInfo {
		return &onnxpb.ValueInfo{Name: proto.String(name), Type: &onnxpb.Type{Value: &onnxpb.Type_TensorType_{
			TensorType: &onnxpb.Type_TensorType{ElemType: proto.Int32(1), Shape: s}}}}
	}
	m := &onnxpb.Model{
		IrVersion: proto.Int64(8), OpsetImport: []*onnxpb.OperatorSet{{Version: proto.Int64(13)}},
		Graph: &onnxpb.Graph{Name: proto.String("tiny"), Node: nodes, Initializer: inits,
			Input: []*onnxpb.ValueInfo{info("x", shape)}, Output: []*onnxpb.ValueInfo{info("y", nil)}},
	}
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tiny.onnx")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func opNode(op string, in []string, out string) *onnxpb.Node {
	return &onnxpb.Node{OpType: proto.String(op), Name: proto.String("node_" + op), Input: in, Output: []string{out}}
}

// A Reshape to a fixed first dimension of 4 keeps the batch from being free: a request is
// a whole run.
func TestRealFixedBatch(t *testing.T) {
	eng := realEngine(t)
	target := &onnxpb.Tensor{Name: proto.String("target"), DataType: proto.Int32(7), Dims: []int64{3}, Int64Data: []int64{4, 2, 4}}
	path := tinyModel(t, 4, []*onnxpb.Node{opNode("Relu", []string{"x"}, "r"), opNode("Reshape", []string{"r", "target"}, "y")}, target)
	var warnings []string
	p, err := Run(context.Background(), Options{Models: []string{path}, Device: "cpu", Engine: eng, Precision: coarse, Progress: func(e Event) {
		if e.Stage == StageWarning {
			warnings = append(warnings, e.Text)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	m := p.Models[0]
	if len(m.Blocks) != 1 || len(m.Measurements) != 1 || m.Measurements[0].Batch != 1 || !slices.Equal(m.Inputs[0].Shape, []int64{4, 8}) || !slices.Equal(m.Outputs[0].Shape, []int64{4, 2, 4}) {
		t.Errorf("%+v", m)
	}
	if !slices.ContainsFunc(warnings, func(w string) bool {
		return strings.Contains(w, "one run with inputs of the file's shapes, [x float32[4,8]]")
	}) {
		t.Errorf("warnings %q", warnings)
	}
}

func TestRealBadModels(t *testing.T) {
	eng := realEngine(t)
	good := tinyModel(t, 1, []*onnxpb.Node{opNode("Relu", []string{"x"}, "y")})
	data, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	truncated := filepath.Join(t.TempDir(), "truncated.onnx")
	if err := os.WriteFile(truncated, data[:len(data)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(t.TempDir(), "text.onnx")
	if err := os.WriteFile(text, []byte("this is not a model"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, path, says string }{
		{"truncated", truncated, "truncated.onnx"},
		{"no ONNX", text, "text.onnx"},
		{"absent", filepath.Join(t.TempDir(), "absent.onnx"), "absent.onnx"},
		{"unknown operator", tinyModel(t, 1, []*onnxpb.Node{opNode("Frobnicate", []string{"x"}, "y")}), "Frobnicate"},
		{"missing tensor", tinyModel(t, 1, []*onnxpb.Node{opNode("Add", []string{"x", "nowhere"}, "y")}), "nowhere"},
	} {
		out := filepath.Join(t.TempDir(), "profile.json")
		_, err := Run(context.Background(), Options{Models: []string{c.path}, Device: "cpu", Engine: eng, OutPath: out, Precision: coarse})
		if !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), filepath.Base(c.path)) {
			t.Errorf("%s: %v", c.name, err)
		} else {
			t.Logf("%s: %v", c.name, err)
		}
		if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: something was written", c.name)
		}
	}
}

// Without CUDA the error says what is missing; with it, this is no test.
func TestNoCUDA(t *testing.T) {
	eng := realEngine(t)
	devices, err := eng.Devices()
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(devices, func(d engine.Device) bool { return !d.IsCPU() }) {
		t.Skip("this machine has a GPU: the error cannot be seen here")
	}
	path := tinyModel(t, 1, []*onnxpb.Node{opNode("Relu", []string{"x"}, "y")})
	_, err = Run(context.Background(), Options{Models: []string{path}, Device: "cuda:0", Engine: eng})
	var missing *engine.MissingError
	if !errors.As(err, &missing) || !strings.Contains(err.Error(), "libcuda.so.1") {
		t.Errorf("error %v", err)
	}
	p, err := Run(context.Background(), Options{Models: []string{path}, Engine: eng, Precision: coarse})
	if err != nil || p.Devices[0].Device != "cpu-1" {
		t.Errorf("auto: %v, %+v", err, p)
	}
}

// Quick passes at several thread counts give device kinds of their own.
func TestThreadCountsAreDeviceKinds(t *testing.T) {
	eng := realEngine(t)
	cpus, err := engine.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	if len(cpus) < 2 {
		t.Skip("needs two CPUs")
	}
	path := tinyModel(t, 1, []*onnxpb.Node{opNode("Relu", []string{"x"}, "y")})
	out := filepath.Join(t.TempDir(), "profile.json")
	for _, d := range []string{"cpu-1", "cpu-2"} {
		if _, err := Run(context.Background(), Options{Models: []string{path}, Device: d, Engine: eng, OutPath: out, Batches: []int{1}, Precision: coarse}); err != nil {
			t.Fatal(err)
		}
	}
	p, err := formats.ReadProfile(out)
	if err != nil || len(p.Devices) != 2 || len(p.Models[0].Measurements) != 2 || !strings.Contains(p.Devices[1].Method, "2 intra-op threads") {
		t.Errorf("%v, %+v", err, p)
	}
	for _, m := range p.Models[0].Measurements {
		if m.Blocks[0].CPUUS <= 0 {
			t.Errorf("%s: %+v", m.Device, m.Blocks[0])
		}
	}
}

// A model that computes in float16: the profile says so, what it does to the
// answers, and that its weights are half as large. The same file in float32
// does not go on where it was measured in float16.
func TestHalfModel(t *testing.T) {
	eng := realEngine(t)
	paths := realModels(t, "squeezenet")
	o := Options{Models: paths, Device: "cpu", Batches: []int{1}, Blocks: 2, Engine: eng, Precision: Precision{HalfWidth: 1, MinRounds: 2, MaxRounds: 2}, FP16: true, FP16Samples: 4,
		OutPath: filepath.Join(t.TempDir(), "profile.json")}
	p, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	m, d := p.Models[0], p.Devices[0]
	if d.Precision != formats.PrecisionFP16 || !strings.Contains(d.Method, "float16") {
		t.Errorf("device %+v", d)
	}
	if f := m.FP16; f == nil || f.Samples != 4 || f.Top1Agreement < 0.5 || f.MaxAbsDiff <= 0 || f.MaxAbsDiff > 0.1 {
		t.Errorf("the check of the whole model: %+v", f)
	}
	if m.Blocks[0].FP16 != nil {
		t.Errorf("a cut in float16 that loses nothing was checked: %+v", m.Blocks[0].FP16)
	}
	var warnings []string
	o.FP16 = false
	o.Progress = func(e Event) {
		if e.Stage == StageWarning {
			warnings = append(warnings, e.Text)
		}
	}
	if p, err = Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	if p.Devices[0].Precision != "" || p.Models[0].FP16 != nil || !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, "float16") }) {
		t.Errorf("in float32: %+v, %+v, warnings %q", p.Devices[0], p.Models[0].FP16, warnings)
	}
}

// A first dimension that is free and no batch (here the time of an LSTM, a sum over it) is
// seen from the answers of a batch: the model runs whole. A model that quantises a batch as
// a whole keeps its batch, with a warning.
func TestRealFirstDimensionIsNoBatch(t *testing.T) {
	eng := realEngine(t)
	weights := func(name string, dims ...int64) *onnxpb.Tensor {
		w := &onnxpb.Tensor{Name: proto.String(name), DataType: proto.Int32(1), Dims: dims}
		for i := range dims[0] * dims[1] * dims[2] {
			w.FloatData = append(w.FloatData, float32(math.Sin(float64(i))))
		}
		return w
	}
	axis := &onnxpb.Tensor{Name: proto.String("axis"), DataType: proto.Int32(7), Int64Data: []int64{0}}
	lstm := opNode("LSTM", []string{"x", "W", "R"}, "y")
	lstm.Attribute = []*onnxpb.Attribute{{Name: proto.String("hidden_size"), Type: onnxpb.Attribute_INT.Enum(), I: proto.Int64(4)}}
	quantise := opNode("DynamicQuantizeLinear", []string{"x"}, "q")
	quantise.Output = append(quantise.Output, "scale", "zero")
	for _, c := range []struct {
		name  string
		dims  []int64
		nodes []*onnxpb.Node
		inits []*onnxpb.Tensor
		whole bool
		says  string
	}{
		{"lstm", []int64{5, 1, 3}, []*onnxpb.Node{lstm}, []*onnxpb.Tensor{weights("W", 1, 16, 3), weights("R", 1, 16, 4)}, true, "samples change each other's answers"},
		{"running sum", []int64{5, 1, 3}, []*onnxpb.Node{opNode("CumSum", []string{"x", "axis"}, "y")}, []*onnxpb.Tensor{axis}, true, "samples change each other's answers"},
		{"rows", []int64{5, 1, 3}, []*onnxpb.Node{opNode("Tanh", []string{"x"}, "y")}, nil, false, ""},
		{"quantised", []int64{5, 1, 3}, []*onnxpb.Node{quantise, opNode("DequantizeLinear", []string{"q", "scale", "zero"}, "y")}, nil, false, "quantises a batch as a whole"},
	} {
		t.Run(c.name, func(t *testing.T) {
			shape := &onnxpb.Shape{Dim: []*onnxpb.Shape_Dim{{Value: &onnxpb.Shape_Dim_DimParam{DimParam: "free"}}}}
			for _, d := range c.dims[1:] {
				shape.Dim = append(shape.Dim, &onnxpb.Shape_Dim{Value: &onnxpb.Shape_Dim_DimValue{DimValue: d}})
			}
			data, err := proto.Marshal(&onnxpb.Model{IrVersion: proto.Int64(8), OpsetImport: []*onnxpb.OperatorSet{{Version: proto.Int64(14)}}, Graph: &onnxpb.Graph{
				Name: proto.String("g"), Node: c.nodes, Initializer: c.inits,
				Input:  []*onnxpb.ValueInfo{{Name: proto.String("x"), Type: &onnxpb.Type{Value: &onnxpb.Type_TensorType_{TensorType: &onnxpb.Type_TensorType{ElemType: proto.Int32(1), Shape: shape}}}}},
				Output: []*onnxpb.ValueInfo{{Name: proto.String("y")}},
			}})
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "m.onnx")
			if err := os.WriteFile(path, data, 0o644); err != nil {
				t.Fatal(err)
			}
			opened, err := openONNX(context.Background(), path, &Options{Engine: eng, Dims: map[string]map[string][]int64{"": {"x": c.dims}}})
			if err != nil {
				t.Fatal(err)
			}
			in := opened.info()
			first, batch := int64(engine.BatchDim), 0
			if c.whole {
				first, batch = c.dims[0], 1
			}
			if in.inputs[0].Shape[0] != first || in.batch != batch {
				t.Errorf("input %v, runs at batch %d, expected the first dimension %d and batch %d", in.inputs[0], in.batch, first, batch)
			}
			if all := strings.Join(in.warnings, "; "); c.says == "" && all != "" || !strings.Contains(all, c.says) {
				t.Errorf("warnings %q, expected %q", all, c.says)
			}
		})
	}
}
