package profiler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/engine/graph"
	"inferplan/formats"
)

// joiner is a benchmark whose layers have the names of their operators, joined with " + ".
type joiner struct{}

func (joiner) Name() string     { return "stopwatch" }
func (joiner) Provider() string { return "fused" }
func (joiner) Method() string   { return "by hand" }
func (joiner) OperatorNames(layer string) []string {
	if strings.HasPrefix(layer, "Reformatting") {
		return nil
	}
	return strings.Split(layer, " + ")
}

func l4() formats.ProfileDevice { return formats.ProfileDevice{Device: "L4", EngineVersion: "10.3"} }

// layersOf are layers with times in microseconds.
func layersOf(pairs ...any) *Layers {
	l := &Layers{Count: 100}
	for i := 0; i < len(pairs); i += 2 {
		l.Layers = append(l.Layers, Layer{Name: pairs[i].(string), Time: time.Duration(pairs[i+1].(int)) * time.Microsecond})
	}
	return l
}

// timesOf are inferences of so many microseconds on the GPU.
func computed(us ...int) (out []Inference) {
	for _, v := range us {
		out = append(out, Inference{Compute: time.Duration(v) * time.Microsecond})
	}
	return out
}

func blockTimes(m *formats.Measurement) (out []time.Duration) {
	for _, b := range m.Blocks {
		out = append(out, b.WallUS.D())
	}
	return out
}

func us(v ...float64) (out []time.Duration) {
	for _, x := range v {
		out = append(out, time.Duration(x*1000))
	}
	return out
}

// Layers become blocks by time, scaled to what an inference takes.
func TestBenchmarkByTime(t *testing.T) {
	a := layersOf("in", 10, "conv1", 30, "relu", 0, "conv2", 40, "fc", 20)
	b := layersOf("in", 20, "conv1", 90, "relu", 0, "conv2", 130, "fc", 60)
	p, err := ImportBenchmark(context.Background(), BenchmarkOptions{
		Benchmark: joiner{}, Model: "net", Device: l4(), Blocks: 3, OutPath: "profile.json",
		Runs: []BenchmarkRun{
			{Share: 1, Batch: 4, Times: computed(280, 270, 240, 260, 250, 290, 275), Layers: b, Name: "t4 and p4"},
			{Share: 1, Batch: 1, Layers: a, Name: "p1"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	m := &p.Models[0]
	var names []string
	for _, b := range m.Blocks {
		names = append(names, b.Name)
	}
	if m.Model != "net" || m.Source != nil || !slices.Equal(names, []string{"layers 0-1", "layers 2-3", "layers 4-4"}) {
		t.Errorf("%s in %q", m.Model, names)
	}
	if one := &m.Measurements[0]; one.Batch != 1 || !slices.Equal(blockTimes(one), us(40, 40, 20)) || one.WholeModel.WallUS.D() != 100*time.Microsecond || one.Blocks[0].Samples != 100 {
		t.Errorf("batch 1: %+v, whole %+v", one.Blocks, one.WholeModel)
	}
	// At batch 4 the layers sum to 300 us, the inference takes 270.
	four := &m.Measurements[1]
	if four.Batch != 4 || !slices.Equal(blockTimes(four), us(99, 117, 54)) || four.WholeModel.WallUS.D() != 270*time.Microsecond ||
		four.WholeModel.P99US.D() != 290*time.Microsecond || four.WholeModel.Samples != 7 || four.WholeModel.HalfWidthUS <= 0 {
		t.Errorf("batch 4: %+v, whole %+v", four.Blocks, four.WholeModel)
	}
	d := p.Devices[0]
	if d.Engine != "imported" || d.Provider != "fused" || d.Source != "p1, t4 and p4" || d.Method != "by hand" {
		t.Errorf("%+v", d)
	}
	if n := strings.Join(p.Notes, "\n"); !strings.Contains(n, "stopwatch of net on L4: 5 layers in 3 blocks by time; what crosses between them is not known") || !strings.Contains(n, "0.900 at batch 4") {
		t.Errorf("notes %s", n)
	}

	// Another batch of the same engine, later, goes to the same blocks.
	more, err := ImportBenchmark(context.Background(), BenchmarkOptions{Benchmark: joiner{}, Model: "net", Device: l4(), Blocks: 2, Profile: p, Runs: []BenchmarkRun{
		{Share: 2, Batch: 1, Layers: layersOf("in", 500, "conv1", 1, "relu", 1, "conv2", 1, "fc", 1), Name: "half"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := Merge(p, more); err != nil {
		t.Fatal(err)
	}
	if len(p.Models[0].Measurements) != 3 || !slices.Equal(blockTimes(&p.Models[0].Measurements[2]), us(501, 2, 1)) {
		t.Errorf("merged: %+v", p.Models[0].Measurements)
	}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	if d := p.Devices[0]; len(p.Devices) != 1 || d.EngineVersion != "10.3" || d.Source != "p1, t4 and p4, half" {
		t.Errorf("%+v", p.Devices)
	}
}

func TestBenchmarkWithoutLayers(t *testing.T) {
	p, err := ImportBenchmark(context.Background(), BenchmarkOptions{Benchmark: joiner{}, Model: "net", Device: l4(), Runs: []BenchmarkRun{{Share: 1, Batch: 2, Times: computed(5, 6, 7), Name: "t"}}})
	if err != nil {
		t.Fatal(err)
	}
	m := &p.Models[0].Measurements[0]
	if len(p.Models[0].Blocks) != 1 || !slices.Equal(blockTimes(m), us(6)) || m.Blocks[0].Samples != 3 || p.Validate() != nil {
		t.Errorf("%+v, %v", m, p.Validate())
	}
}

func TestBenchmarkErrors(t *testing.T) {
	good := BenchmarkRun{Share: 1, Batch: 1, Layers: layersOf("a", 1, "b", 1), Name: "p1"}
	with := func(edit func(o *BenchmarkOptions)) BenchmarkOptions {
		o := BenchmarkOptions{Benchmark: joiner{}, Model: "net", Device: l4(), Runs: []BenchmarkRun{good}}
		edit(&o)
		return o
	}
	into := func(names ...string) *formats.Profile {
		m := formats.ProfileModel{Model: "net"}
		for _, n := range names {
			m.Blocks = append(m.Blocks, formats.Block{Name: n})
		}
		return &formats.Profile{Models: []formats.ProfileModel{m}}
	}
	for _, c := range []struct {
		o    BenchmarkOptions
		want string
	}{
		{with(func(o *BenchmarkOptions) { o.Device.Device = "" }), "no device kind"},
		{with(func(o *BenchmarkOptions) { o.Device.Device = "cpu-1" }), "stopwatch runs on GPUs"},
		{with(func(o *BenchmarkOptions) { o.Model = "" }), "no model"},
		{with(func(o *BenchmarkOptions) { o.File = "x.onnx" }), "no engine"},
		{with(func(o *BenchmarkOptions) { o.Blocks = -1 }), "-1 blocks"},
		{with(func(o *BenchmarkOptions) { o.Runs = nil }), "no run"},
		{with(func(o *BenchmarkOptions) { o.Runs = append(o.Runs, good) }), "batch 1 on a share 1/1 a second time"},
		{with(func(o *BenchmarkOptions) { o.Runs[0].Batch = 0 }), "batch 0"},
		{with(func(o *BenchmarkOptions) { o.Runs[0].Layers = nil }), "neither times nor layers"},
		{with(func(o *BenchmarkOptions) {
			o.Runs = append(o.Runs, BenchmarkRun{Share: 1, Batch: 2, Times: computed(3), Name: "t2"})
		}), "t2: no layers, which other runs have"},
		{with(func(o *BenchmarkOptions) {
			o.Runs = append(o.Runs, BenchmarkRun{Share: 1, Batch: 2, Layers: layersOf("a", 1, "c", 1), Name: "p2"})
		}), `p2: layer 1 is "c", in p1 it is "b"`},
		{with(func(o *BenchmarkOptions) {
			o.Runs = append(o.Runs, BenchmarkRun{Share: 1, Batch: 2, Layers: layersOf("a", 1), Name: "p2"})
		}), `p2: layer 1 is "nothing"`},
		{with(func(o *BenchmarkOptions) {
			o.Profile = &formats.Profile{Devices: []formats.ProfileDevice{{Device: "L4", Engine: "onnxruntime", EngineVersion: "1.29"}}}
		}), "the profile has L4 from elsewhere (onnxruntime 1.29)"},
		{with(func(o *BenchmarkOptions) { o.Profile = into("layers 0-0", "layers 1-4") }), "net has 5 layers in the profile, 2 here"},
		{with(func(o *BenchmarkOptions) { o.Profile = into("block0", "block1") }), "net is cut otherwise in the profile (block block0)"},
		{with(func(o *BenchmarkOptions) {
			o.Runs[0] = BenchmarkRun{Share: 1, Batch: 2, Times: computed(3), Name: "t2"}
			o.Profile = into("layers 0-0", "layers 1-1")
		}), "net is cut into 2 blocks in the profile, and the runs have no layers"},
	} {
		_, err := ImportBenchmark(context.Background(), c.o)
		if !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v\nwant %s", err, c.want)
		}
	}
}

// fusedLayers makes an engine's layers of a real model: its operators fused two by
// two, a change of layout first, one microsecond per operator and batch.
func fusedLayers(c *graph.Chain, batch, fuse int) *Layers {
	l := &Layers{Count: 10, Layers: []Layer{{Name: "Reformatting CopyNode for Input Tensor 0 to x", Time: time.Duration(batch) * time.Microsecond}}}
	var names []string
	for i := range c.AtomCount() {
		names = append(names, c.AtomNodes(i)...)
	}
	for k := 0; k < len(names); k += fuse {
		group := names[k:min(k+fuse, len(names))]
		l.Layers = append(l.Layers, Layer{Name: strings.Join(group, " + "), Time: time.Duration(len(group)*batch) * time.Microsecond})
	}
	return l
}

func graphChain(t *testing.T, o *Options, path string) *graph.Chain {
	t.Helper()
	m, err := openONNX(context.Background(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	return m.(onnxModel).chain
}

// With the model's file, layers of different engines meet in the same blocks,
// which end where the model can be cut and no layer spans the cut.
func TestBenchmarkByGraph(t *testing.T) {
	eng := realEngine(t)
	path := realModels(t, "squeezenet")[0]
	c := graphChain(t, &Options{Engine: eng}, path)
	operators := 0
	for i := range c.AtomCount() {
		operators += len(c.AtomNodes(i))
	}
	o := BenchmarkOptions{
		Benchmark: joiner{}, Device: l4(), File: path, Prober: eng, Blocks: 4, OutPath: "profile.json",
		Runs: []BenchmarkRun{
			{Share: 1, Batch: 1, Layers: fusedLayers(c, 1, 1), Times: computed(operators + 1), Name: "one"},
			{Share: 1, Batch: 2, Layers: fusedLayers(c, 2, 3), Name: "two"},
		},
	}
	p, err := ImportBenchmark(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	m := &p.Models[0]
	if m.Model != "squeezenet" || m.Source == nil || len(m.Inputs) == 0 || len(m.Blocks) != 4 {
		t.Fatalf("%s: %d blocks, source %v", m.Model, len(m.Blocks), m.Source)
	}
	nodes := 0
	for b, blk := range m.Blocks {
		if last := b == len(m.Blocks)-1; last != (blk.CutBytesFP32 == 0) || last != (len(blk.Cut) == 0) || blk.WeightBytes == 0 && b == 0 {
			t.Errorf("block %d: %+v", b, blk)
		}
		// Each operator takes a microsecond; the change of layout goes to the first.
		want := blk.Nodes
		if nodes += blk.Nodes; b == 0 {
			want++
		}
		for i := range m.Measurements {
			if got := m.Measurements[i].Blocks[b].WallUS.D(); got != time.Duration(want*m.Measurements[i].Batch)*time.Microsecond {
				t.Errorf("block %d of %d operators at batch %d takes %v", b, blk.Nodes, m.Measurements[i].Batch, got)
			}
		}
	}
	if nodes != operators {
		t.Errorf("%d operators in the blocks, %d in the model", nodes, operators)
	}
	for _, b := range m.Blocks[:3] {
		var names []string
		for _, x := range b.Cut {
			names = append(names, x.Name)
		}
		at, err := c.FindCut(names)
		if err != nil {
			t.Fatal(err)
		}
		before := 0
		for i := range at {
			before += len(c.AtomNodes(i))
		}
		if before%3 != 0 {
			t.Errorf("a block ends after %d operators, inside a layer of three", before)
		}
	}

	// Into a profile that has other cuts, the numbers go to those; a layer over
	// one of them is refused.
	o.Profile, o.Blocks = p, 7
	o.Runs = o.Runs[:1]
	if again, err := ImportBenchmark(context.Background(), o); err != nil || !formats.SameCuts(again.Models[0].Blocks, m.Blocks) {
		t.Errorf("%v, cuts of the profile kept: %v", err, err == nil && formats.SameCuts(again.Models[0].Blocks, m.Blocks))
	}
	o.Runs = []BenchmarkRun{{Share: 1, Batch: 4, Layers: fusedLayers(c, 4, operators), Name: "all in one"}}
	if _, err := ImportBenchmark(context.Background(), o); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "inside the layer") {
		t.Errorf("%v", err)
	}
	o.Profile = nil
	if whole, err := ImportBenchmark(context.Background(), o); err != nil || len(whole.Models[0].Blocks) != 1 {
		t.Errorf("one layer: %v", err)
	}

	// Layers of another model are not quietly spread over this one.
	o.Runs = []BenchmarkRun{{Share: 1, Batch: 1, Layers: layersOf("/other/Conv", 9), Name: "p"}}
	if _, err := ImportBenchmark(context.Background(), o); err == nil || !strings.Contains(err.Error(), "none of its 1 layers has the name of an operator") {
		t.Errorf("%v", err)
	}
	some := fusedLayers(c, 1, 1)
	some.Layers = append(some.Layers, Layer{Name: "stranger", Time: time.Duration(operators) * time.Microsecond})
	o.Runs[0].Layers = some
	if _, err := ImportBenchmark(context.Background(), o); err == nil || !strings.Contains(err.Error(), `such as "stranger", take 5`) && !strings.Contains(err.Error(), "take 50 %") {
		t.Errorf("%v", err)
	}
	o.File = fmt.Sprint(path, ".none")
	if _, err := ImportBenchmark(context.Background(), o); err == nil {
		t.Error("a file that is not there")
	}
}
