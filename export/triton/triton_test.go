package triton

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/engine/ort"
	"inferplan/export"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/modelfile"
	"inferplan/formats/triton"
	"inferplan/formats/triton/configpb"
	"inferplan/formats/usage"
)

var update = flag.Bool("update", false, "write the golden files")

const cluster = `{"format": "inferplan.cluster/v1", "host": "shared", "pools": [{"device": "L4", "count": 2}, {"device": "T4", "count": 2, "max_shares": 2}, {"device": "cpu-2", "count": 2}]}`

// openEngine returns ONNX Runtime, or skips where it is not set up.
func openEngine(t *testing.T) *ort.Engine {
	t.Helper()
	e, err := ort.Open("")
	if errors.Is(err, engine.ErrNoLibrary) {
		t.Skip("ONNX Runtime is not set up: run `make setup`")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// stage returns a stage of a plan with times of 1 ms for each request of a batch.
func stage(first, end int, device string, share, batch int, placement ...formats.Placement) formats.Stage {
	s := formats.Stage{Blocks: [2]int{first, end}, Device: device, Share: share, Placement: placement}
	for _, p := range placement {
		s.Replicas += p.Replicas
	}
	for b := 1; b <= batch; b++ {
		s.InferUS = append(s.InferUS, document.Micros(b)*1000_000)
	}
	return s
}

// twoStages returns a source whose plan has BERT in two stages, L4 then T4, and whole on shares of a T4, and an MLP
// on sets of two CPU threads. It writes the models to dir.
func twoStages(t *testing.T, e *ort.Engine, dir, cutType string) *export.Source {
	t.Helper()
	bert, err := graph.BERT(graph.TransformerConfig{Layers: 2, Hidden: 32, Heads: 2, Seq: 8, Vocab: 50, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	mlp, err := graph.MLP(16, 1)
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]*graph.Model{"bert": bert, "mlp": mlp} {
		if err := m.WriteFile(filepath.Join(dir, name+".onnx")); err != nil {
			t.Fatal(err)
		}
	}
	read, err := graph.Open(filepath.Join(dir, "bert.onnx"), graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	chain, err := read.Chain(t.Context(), e.Probe, graph.ChainOptions{})
	if err != nil {
		t.Fatal(err)
	}

	// The plan.
	cut := &formats.Cut{Tensors: chain.Cuts[len(chain.Cuts)/2].Names(), DType: cutType, TransferUS: []document.Micros{0, 0, 0, 0}}
	staged := formats.Pipeline{Batch: 4, RPS: 400, LatencyUS: 8000_000, Stages: []formats.Stage{
		stage(0, 3, "L4", 1, 4, formats.Placement{PerDevice: 1, Replicas: 2}), stage(3, 5, "T4", 1, 4, formats.Placement{PerDevice: 1, Replicas: 1}),
	}}
	staged.Stages[0].Cut = cut
	whole := formats.Pipeline{Batch: 2, RPS: 200, LatencyUS: 2000_000, Stages: []formats.Stage{stage(0, 5, "T4", 2, 2, formats.Placement{FirstDevice: 1, PerDevice: 2, Replicas: 2})}}
	onCPU := formats.Pipeline{Batch: 1, RPS: 500, LatencyUS: 1000_000, Stages: []formats.Stage{stage(0, 1, "cpu-2", 1, 1, formats.Placement{PerDevice: 1, Replicas: 2})}}
	plan := &formats.Plan{
		Kind: formats.PlanPool, Pools: []formats.Pool{{Device: "L4", Count: 2}, {Device: "T4", Count: 2, MaxShares: 2}, {Device: "cpu-2", Count: 2}},
		Deployment: []formats.Deployed{{Model: "bert", NumBlocks: 5, Pipelines: []formats.Pipeline{staged, whole}}, {Model: "mlp", Class: "fast", NumBlocks: 1, Pipelines: []formats.Pipeline{onCPU}}},
		Section:    &formats.PoolPlan{Models: []formats.Served{{Model: "bert", SLOUS: 20000_000, Percentile: "p99", RPS: 600}, {Model: "mlp", Class: "fast", SLOUS: 5000_000, Percentile: "p99", RPS: 500}}},
		Execution:  []formats.Execution{{Device: "T4", Provider: "cuda", Options: map[string]string{"use_tf32": "0"}}},
	}
	path := filepath.Join(dir, "cluster.json")
	if err := os.WriteFile(path, []byte(cluster), 0o644); err != nil {
		t.Fatal(err)
	}
	digest, err := document.Digest(path)
	if err != nil {
		t.Fatal(err)
	}
	plan.Inputs = []formats.Input{{Role: "cluster", Path: "cluster.json", SHA256: digest}}
	return &export.Source{Plan: plan, Path: filepath.Join(dir, "plan.json")}
}

// exported writes a source's repositories to a new folder, and reads them back.
func exported(t *testing.T, source *export.Source, models string) (string, []triton.Repository) {
	t.Helper()
	folder, dir := &export.Folder{}, filepath.Join(t.TempDir(), "out")
	if err := addFiles(t.Context(), source, folder, models); err != nil {
		t.Fatal(err)
	}
	if _, err := folder.Save(Target(), source, dir, false); err != nil {
		t.Fatal(err)
	}
	repositories, err := triton.ReadRepositories(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, repositories
}

// The configurations and the README are those of the golden file, and parse strictly.
func TestGoldenRepository(t *testing.T) {
	models := t.TempDir()
	source := twoStages(t, openEngine(t), models, "FP16")
	dir, _ := exported(t, source, models)
	var got strings.Builder
	for _, name := range []string{"README.md", "host/bert-1/config.pbtxt", "host/bert-1.stage1/config.pbtxt", "host/bert-1.stage2/config.pbtxt", "host/bert-2/config.pbtxt", "host/mlp.fast/config.pbtxt"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "-- %s --\n%s", name, data)
	}
	golden := filepath.Join("testdata", "repository.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("the export differs from %s (-update writes it):\n%s", golden, got.String())
	}
}

// The parts of a two-stage plan, chained by the ensemble of the repository, give the outputs of the whole model.
func TestPartsAreTheModel(t *testing.T) {
	e := openEngine(t)
	for cutType, tolerance := range map[string]float64{"FP32": 1e-5, "FP16": 1e-2} {
		models := t.TempDir()
		dir, repositories := exported(t, twoStages(t, e, models, cutType), models)
		configs := map[string]*configpb.ModelConfig{}
		for _, m := range repositories[0].Models {
			configs[m.Config.Name] = m.Config
		}
		whole := configs["bert-2"]
		tensors := randomInputs(whole)
		expected := runFile(t, e, filepath.Join(models, "bert.onnx"), whole, tensors)

		// Each step takes tensors of the ensemble by its input map, and names its outputs by its output map.
		for _, step := range configs["bert-1"].GetEnsembleScheduling().Step {
			part, inputs := configs[step.ModelName], map[string][]byte{}
			for name, tensor := range step.InputMap {
				inputs[name] = tensors[tensor]
			}
			for name, data := range runFile(t, e, filepath.Join(dir, "host", step.ModelName, "1", "model.onnx"), part, inputs) {
				tensors[step.OutputMap[name]] = data
			}
		}
		for name, want := range expected {
			if d := difference(want, tensors[name]); d > tolerance || len(want) == 0 || len(want) != len(tensors[name]) {
				t.Errorf("cut in %s: output %s differs by %g", cutType, name, d)
			}
		}
	}
}

const runBatch = 3

// runFile runs a model file with the boundary of a configuration on inputs of a batch of runBatch.
func runFile(t *testing.T, e *ort.Engine, path string, c *configpb.ModelConfig, inputs map[string][]byte) map[string][]byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sub := &engine.Submodel{Model: c.Name, To: 1, Blocks: 1, ONNX: data}
	for _, in := range c.Input {
		sub.Inputs = append(sub.Inputs, boundarySpec(in.Name, in.DataType, in.Dims))
	}
	for _, out := range c.Output {
		sub.Outputs = append(sub.Outputs, boundarySpec(out.Name, out.DataType, out.Dims))
	}
	block, err := e.Load(context.Background(), sub, engine.CPUDevice(0), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer block.Close()
	binding, err := block.Bind(engine.BindOptions{Batch: runBatch})
	if err != nil {
		t.Fatal(err)
	}
	defer binding.Close()
	for _, in := range binding.Inputs() {
		if err := in.Write(inputs[in.Spec().Name]); err != nil {
			t.Fatalf("%s: %v", in.Spec(), err)
		}
	}
	if err := binding.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	outputs := map[string][]byte{}
	for _, out := range binding.Outputs() {
		outputs[out.Spec().Name] = append([]byte(nil), out.Bytes()...)
	}
	return outputs
}

// boundarySpec returns a tensor of a configuration for the engine.
func boundarySpec(name string, dataType configpb.DataType, dims []int64) engine.Spec {
	for d, name2 := range dataTypes {
		if name2 == dataType {
			return engine.Spec{Name: name, Type: d, Shape: append([]int64{engine.BatchDim}, dims...)}
		}
	}
	panic("unknown type")
}

// randomInputs returns values for the inputs of a configuration: token ids, masks and types.
func randomInputs(c *configpb.ModelConfig) map[string][]byte {
	inputs, random := map[string][]byte{}, rand.New(rand.NewPCG(1, 2))
	for _, in := range c.Input {
		data := make([]byte, boundarySpec(in.Name, in.DataType, in.Dims).BytesAt(runBatch))
		for i := 0; i < len(data); i += 8 {
			binary.LittleEndian.PutUint64(data[i:], uint64(random.IntN(2)))
		}
		inputs[in.Name] = data
	}
	return inputs
}

// difference returns the largest difference of two lists of float32, relative to the largest value.
func difference(a, b []byte) float64 {
	largest, size := 0.0, 0.0
	for i := 0; i+4 <= min(len(a), len(b)); i += 4 {
		x, y := float64(math.Float32frombits(binary.LittleEndian.Uint32(a[i:]))), float64(math.Float32frombits(binary.LittleEndian.Uint32(b[i:])))
		largest, size = max(largest, math.Abs(x-y)), max(size, math.Abs(x))
	}
	return largest / size
}

// The command of a server names its folder to the shell, whatever the kind of its devices is called.
func TestHostNames(t *testing.T) {
	x, folder := &exporter{plan: &formats.Plan{Pools: []formats.Pool{{Device: "L4 `$x", Count: 1}}}}, &export.Folder{}
	x.hosts = triton.Hosts(x.plan.Pools, false)
	folder.AddText("L4 `$x/m/config.pbtxt", "")
	x.addServers(folder)
	if want := `-v "$PWD"'/L4 ` + "`" + `$x:/models'`; len(folder.Steps) != 1 || !strings.Contains(folder.Steps[0].Commands, want) {
		t.Errorf("%v, expected %s", folder.Steps, want)
	}
}

// Plans and files that Triton cannot run are refused with what is wrong.
func TestRefusedPlans(t *testing.T) {
	e := openEngine(t)
	for name, c := range map[string]struct {
		change   func(s *export.Source)
		expected string
	}{
		"language models": {func(s *export.Source) { s.Plan.Kind, s.Plan.Section = formats.PlanQueue, &formats.QueuePlan{} }, "targets for servers of language models"},
		"no cluster":      {func(s *export.Source) { s.Plan.Inputs[0].Path = "absent.json" }, "the cluster that the plan was made from"},
		"other file":      {func(s *export.Source) { s.Plan.Deployment[0].SHA256 = strings.Repeat("0", 64) }, "the plan was made for"},
		"no file":         {func(s *export.Source) { s.Plan.Deployment[0].Model = "absent" }, "absent.onnx"},
		"operators": {func(s *export.Source) {
			s.Plan.Deployment[0].Operators = append(s.Plan.Deployment[0].Operators, modelfile.OperatorLibrary{Path: "x.so"})
		}, "libraries of operators"},
	} {
		models := t.TempDir()
		source := twoStages(t, e, models, "FP32")
		c.change(source)
		err := addFiles(t.Context(), source, &export.Folder{}, models)
		if _, usage := errors.AsType[*usage.Error](err); !usage || !strings.Contains(err.Error(), c.expected) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Plans of cascades and applications are exported as models, and the README says what else they need. Stages that take
// turns on GPUs share a resource of their device.
func TestOtherKinds(t *testing.T) {
	e := openEngine(t)
	for name, c := range map[string]struct {
		section  formats.PlanSection
		expected string
	}{
		"gear":     {&formats.GearPlan{SLOUS: 20000_000}, "The cascade: Triton answers with the model that a request names"},
		"flow":     {&formats.FlowPlan{Applications: []formats.FlowApplication{{Modules: []formats.Module{{Model: "bert"}}}}}, "The graph of the application: its modules are models here"},
		"workflow": {workflow([]int{0, 1, 2, 3}, []int{4, 5}), "Loads at run time"},
	} {
		models := t.TempDir()
		source := twoStages(t, e, models, "FP32")
		source.Plan.Section = c.section
		source.Plan.Pools[1].Sharing = formats.SharingTime
		dir, repositories := exported(t, source, models)
		readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
		if err != nil || !strings.Contains(string(readme), c.expected) || !strings.Contains(string(readme), "--rate-limit=execution_count") {
			t.Errorf("%s: %s, %v", name, readme, err)
		}
		for _, m := range repositories[0].Models {
			for _, g := range m.Config.InstanceGroup {
				if turns := len(g.RateLimiter.GetResources()) == 1; turns != strings.HasPrefix(g.Name, "T4") {
					t.Errorf("%s: turns %v of %s on %s", name, turns, m.Config.Name, g.Name)
				}
			}
			if d := m.Config.GetDynamicBatching(); d != nil && (d.MaxQueueDelayMicroseconds > 0 || d.DefaultQueuePolicy != nil && d.DefaultQueuePolicy.DefaultTimeoutMicroseconds < 10_000) {
				t.Errorf("%s: the queue of %s waits as if the SLO were its own: %v", name, m.Config.Name, d)
			}
		}
	}
}

// workflow returns the section of a workflow whose models are held at the start by these devices.
func workflow(bert, mlp []int) *formats.FlowPlan {
	return &formats.FlowPlan{
		Applications: []formats.FlowApplication{{Segments: []formats.Segment{{}}}},
		Modules:      []formats.FlowModule{{Model: "bert", Resident: bert}, {Model: "mlp", Resident: mlp}},
	}
}

// A model of a workflow has instances on the devices that hold it at the start alone.
func TestResidents(t *testing.T) {
	e := openEngine(t)
	for _, c := range []struct {
		bert, mlp []int
		want      string // instances and rates
		lost      bool   // mlp is on no device
	}{
		{[]int{1, 2, 3}, []int{5}, "bert-1=400 bert-2=200 mlp.fast=500 bert-1.stage1 1[1] bert-1.stage2 1[2] bert-2 2[3] mlp.fast 1[] ", false},
		{[]int{0, 2}, nil, "bert-1=400 bert-1.stage1 1[0] bert-1.stage2 1[2] ", true},
	} {
		models := t.TempDir()
		source := twoStages(t, e, models, "FP32")
		source.Plan.Section = workflow(c.bert, c.mlp)
		x, folder := &exporter{plan: source.Plan, hosts: triton.Hosts(source.Plan.Pools, true)}, &export.Folder{}
		var err error
		if x.variants, err = deployedVariants(source.Plan, models); err != nil {
			t.Fatal(err)
		}
		if err := x.readParts(t.Context()); err != nil {
			t.Fatal(err)
		}
		repository, got := x.repository(&x.hosts[0]), ""
		for _, r := range x.requests {
			got += fmt.Sprintf("%s=%g ", r.model, r.rps)
		}
		for _, m := range repository {
			for _, g := range m.config.InstanceGroup {
				got += fmt.Sprintf("%s %d%v ", m.config.Name, g.Count, g.Gpus)
			}
		}
		if got != c.want {
			t.Errorf("%v, %v: %s\nwant %s", c.bert, c.mlp, got, c.want)
		}
		x.guide(folder)
		if lost := strings.Contains(strings.Join(folder.Lost, " "), "The model mlp, which no device holds"); lost != c.lost {
			t.Errorf("%v, %v: lost %q", c.bert, c.mlp, folder.Lost)
		}
	}
}

// Nodes with a network have a repository each, whose queues wait as long as the rate of the node takes to fill a batch,
// and a pipeline across them is named as one that a server cannot run.
func TestPipelinesAcrossHosts(t *testing.T) {
	models := t.TempDir()
	source := twoStages(t, openEngine(t), models, "FP32")
	for k := range source.Plan.Pools[:2] {
		source.Plan.Pools[k].NICGbps = 10
	}
	source.Plan.Section.(*formats.PoolPlan).Models[0].SLOUS = 100_000_000
	dir, repositories := exported(t, source, models)
	got := ""
	for _, r := range repositories {
		for _, m := range r.Models {
			got += fmt.Sprintf("%s/%s%v %d us, ", r.Host, m.Config.Name, m.Config.InstanceGroup[0].Gpus, m.Config.GetDynamicBatching().GetMaxQueueDelayMicroseconds())
		}
	}
	if want := "L4-0/bert-1.stage1[0] 15000 us, L4-1/bert-1.stage1[0] 15000 us, T4-0/bert-1.stage2[0] 7500 us, T4-1/bert-2[0] 5000 us, host/mlp.fast[] 0 us, "; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil || !strings.Contains(string(readme), "a client sends 400 requests/s to the first part, and the outputs of each to the next, by position: bert-1.stage1 (on L4-0, L4-1), then bert-1.stage2 (on T4-0)") {
		t.Errorf("%s, %v", readme, err)
	}
}
