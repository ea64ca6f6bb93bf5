package profiler

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"inferplan/engine"
	"inferplan/engine/certainty"
	"inferplan/engine/graph"
	"inferplan/engine/graph/onnxpb"
	"inferplan/engine/ort"
	"inferplan/formats"
	"inferplan/formats/importer/samples"
)

// Records are what the models say, one sample at a time.
func TestRecordsAreWhatModelsAnswer(t *testing.T) {
	eng, err := ort.Open("")
	if errors.Is(err, engine.ErrNoLibrary) {
		t.Skipf("ONNX Runtime is not here (make setup fetches it): %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	ctx, dir := context.Background(), t.TempDir()
	set := &samples.SampleSet{Width: 784}
	for i := range 70 { // two full batches and a part of one
		for k := range set.Width {
			set.Values = append(set.Values, float32((i*31+k*17)%101)/50-1)
		}
		set.Labels = append(set.Labels, i%10)
	}
	var paths []string
	want := map[string]int{}
	for i, hidden := range []int{4, 32} {
		m, err := graph.MLP(hidden, uint64(i+1))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, m.Name+".onnx")
		if err := m.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
		onnx, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		for s := range set.Labels {
			in, err := engine.NewHostTensor(m.Inputs[0], 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			for k, v := range set.Sample(s) {
				putFloat32(in.Bytes(), k, v)
			}
			got, err := eng.Eval(ctx, onnx, []engine.Tensor{in}, m.Outputs, engine.Options{}, -1)
			if err != nil {
				t.Fatal(err)
			}
			p := make([]float64, 10)
			for k := range p {
				p[k] = scoreAt(got[m.Outputs[0]].Data, k, engine.F32)
			}
			if certainty.Normalise(p) == set.Labels[s] {
				want[m.Name]++
			}
		}
	}
	rec, err := Record(ctx, RecordOptions{Models: paths, Samples: set, HeldOut: .2, Seed: 3, Engine: eng})
	if err != nil {
		t.Fatal(err)
	}
	if rec.Samples != 70 || rec.PlanningSamples != 56 || rec.Score != certainty.Default || len(rec.Models) != 2 {
		t.Errorf("%+v", rec)
	}
	for _, m := range rec.Models {
		if got := strings.Count(m.Correct, "1"); got != want[m.Model] {
			t.Errorf("%s: %d right, one by one %d", m.Model, got, want[m.Model])
		}
	}
	p := &formats.Profile{Format: formats.FormatProfile, Records: []formats.Records{*rec}}
	PutRecords(p, rec)
	if err := p.Validate(); err != nil || len(p.Records) != 1 {
		t.Errorf("%d records, %v", len(p.Records), err)
	}
	narrow := &samples.SampleSet{Width: 3, Labels: []int{1}, Values: []float32{1, 2, 3}}
	far := &samples.SampleSet{Width: 784, Labels: []int{10}, Values: make([]float32, 784)}
	for name, o := range map[string]RecordOptions{
		"samples of 3 values": {Models: paths, Samples: narrow, Engine: eng}, "labels up to 10": {Models: paths, Samples: far, Engine: eng},
		"given twice": {Models: []string{paths[0], paths[0]}, Samples: set, Engine: eng}, "share": {Models: paths, Samples: set, HeldOut: 1, Engine: eng},
		"topp": {Models: paths, Samples: set, Score: "topp", Engine: eng},
	} {
		if _, err := Record(ctx, o); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not say %q", err, name)
		}
	}
}

func putFloat32(b []byte, i int, v float32) {
	binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
}

// Models with free dimensions are recorded at the sizes that are given, or that the
// profile has.
func TestRecordFreeSizes(t *testing.T) {
	eng := realEngine(t)
	free := func(name string) *onnxpb.Shape_Dim {
		return &onnxpb.Shape_Dim{Value: &onnxpb.Shape_Dim_DimParam{DimParam: name}}
	}
	data, err := proto.Marshal(&onnxpb.Model{IrVersion: proto.Int64(8), OpsetImport: []*onnxpb.OperatorSet{{Version: proto.Int64(14)}}, Graph: &onnxpb.Graph{
		Name: proto.String("g"), Node: []*onnxpb.Node{opNode("Softmax", []string{"x"}, "y")},
		Input: []*onnxpb.ValueInfo{{Name: proto.String("x"), Type: &onnxpb.Type{Value: &onnxpb.Type_TensorType_{TensorType: &onnxpb.Type_TensorType{
			ElemType: proto.Int32(1), Shape: &onnxpb.Shape{Dim: []*onnxpb.Shape_Dim{free("n"), free("width")}}}}}}},
		Output: []*onnxpb.ValueInfo{{Name: proto.String("y")}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "softmax.onnx")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	set := &samples.SampleSet{Width: 3, Labels: []int{0, 2, 1}, Values: []float32{3, 1, 2, 1, 2, 3, 3, 2, 1}}
	o := RecordOptions{Models: []string{path}, Samples: set, Seed: 1, Engine: eng}
	if _, err := Record(context.Background(), o); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "--shape x=1x128") {
		t.Errorf("without a size: %v", err)
	}
	given, held := o, o
	given.Dims = map[string]map[string][]int64{"": {"x": {1, 3}}}
	held.Profile = &formats.Profile{Models: []formats.ProfileModel{{Model: "softmax", Inputs: []formats.TensorInfo{{Name: "x", DType: "FP32", Shape: []int64{-1, 3}}}}}}
	for _, o := range []RecordOptions{given, held} {
		rec, err := Record(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		if right := strings.Count(rec.Models[0].Correct, "1"); right != 2 {
			t.Errorf("%d of 3 right, want 2: %+v", right, rec.Models[0])
		}
	}
}
