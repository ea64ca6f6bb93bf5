package executor

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/engine/models"
	"inferplan/engine/ort"
	"inferplan/engine/worker"
	"inferplan/executor/oip"
	"inferplan/formats"
	"inferplan/formats/document"
)

// withORT skips where ONNX Runtime has not been set up.
func withORT(t testing.TB) *ort.Engine {
	t.Helper()
	eng, err := ort.Open("")
	if errors.Is(err, engine.ErrNoLibrary) {
		t.Skipf("ONNX Runtime is not here (make setup fetches it): %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { eng.Close() })
	return eng
}

// squeezenet writes the model with its seeded weights into a folder.
func squeezenet(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := models.Write(dir, models.DefaultSeed, "squeezenet"); errors.Is(err, models.ErrAbsent) {
		t.Skipf("the models are not here (make setup fetches them): %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	return dir
}

// onnxPlan serves a file as one stage on a CPU.
func onnxPlan(t testing.TB, path string, infer time.Duration, batch int, slo time.Duration) *formats.Plan {
	t.Helper()
	p := onePlan(infer, batch, 1, slo)
	p.Pools[0] = formats.Pool{Device: "cpu-1", Count: 1, PerNode: 1, Sharing: formats.SharingTime}
	m := &p.Deployment[0]
	m.Model = modelName(path)
	m.Inputs, m.Outputs = nil, nil
	m.Pipelines[0].Stages[0].Device = "cpu-1"
	sum, err := document.Digest(path)
	if err != nil {
		t.Fatal(err)
	}
	m.SHA256 = sum
	return complete(p)
}

func modelName(path string) string {
	base := filepath.Base(path)
	return base[:len(base)-len(filepath.Ext(base))]
}

func onnxOptions(dir string) Options {
	o := replayOptions(false)
	o.Engine, o.ModelsDir, o.ShareCPUs = "onnx", dir, true
	return o
}

// image fills a request with numbers that depend on the sample's index.
func image(r *oip.Request) {
	for _, in := range r.Inputs {
		per := len(in.Data) / 4 / r.Batch
		for i := 0; i < len(in.Data)/4; i++ {
			v := math.Sin(float64(i%per)*0.37 + float64(i/per))
			binary.LittleEndian.PutUint32(in.Data[4*i:], math.Float32bits(float32(v)))
		}
	}
}

func floats(b []byte) []float64 {
	out := make([]float64, len(b)/4)
	for i := range out {
		out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
	}
	return out
}

func furthest(a, b []float64) (diff, size float64) {
	for i := range a {
		diff, size = max(diff, math.Abs(a[i]-b[i])), max(size, math.Abs(a[i]))
	}
	return diff, size
}

// A model cut in two over two processes, its cut in half precision or not,
// answers what the whole model answers, sample by sample.
func TestPipelineAnswersAsTheWholeModel(t *testing.T) {
	eng, dir := withORT(t), squeezenet(t)
	path := filepath.Join(dir, "squeezenet.onnx")
	ctx := context.Background()
	whole := open(t, onnxPlan(t, path, 30*time.Millisecond, 2, patient), onnxOptions(dir))
	req := sample(whole, 4)
	image(req)
	want, err := whole.Infer(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	ref := floats(want.Outputs[0].Data)
	if d, _ := furthest(ref[:1000], ref[1000:2000]); d == 0 {
		t.Fatal("different samples have the same answer")
	}
	m, err := graph.Open(path, graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	chain, err := m.Chain(ctx, eng.Probe, graph.ChainOptions{MaxLive: 1})
	if err != nil {
		t.Fatal(err)
	}
	cut := chain.Cuts[len(chain.Cuts)/2]
	for _, dtype := range []string{"FP32", "FP16"} {
		p := onnxPlan(t, path, 15*time.Millisecond, 2, patient)
		p.Pools[0] = formats.Pool{Device: "cpu-1", Count: 2, PerNode: 2}
		pl := &p.Deployment[0].Pipelines[0]
		bytes := cut.Bytes
		if dtype == "FP16" {
			bytes = cut.HalfBytes
		}
		second := pl.Stages[0]
		pl.Stages[0].Blocks, second.Blocks = [2]int{0, 1}, [2]int{1, 2}
		pl.Stages[0].Cut = &formats.Cut{Tensors: cut.Names(), DType: dtype, Bytes: bytes, TransferUS: make([]document.Micros, 2)}
		second.Placement = []formats.Placement{{FirstDevice: 1, PerDevice: 1, Replicas: 1}}
		pl.Stages = append(pl.Stages, second)
		x := open(t, complete(p), onnxOptions(dir))
		got, err := x.Infer(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		diff, size := furthest(ref, floats(got.Outputs[0].Data))
		limit := 1e-5
		if dtype == "FP16" {
			limit = 2e-2
		}
		if diff > limit*size || dtype == "FP16" && diff == 0 {
			t.Errorf("cut at %v in %s: answers differ by %g of %g", cut.Names(), dtype, diff, size)
		}
		got.Release()
		for _, tier := range x.Report().Transfer.Tiers {
			if tier.Name == "shm" && tier.Bytes != 4*bytes {
				t.Errorf("%s: %d bytes crossed, want %d", dtype, tier.Bytes, 4*bytes)
			}
		}
		x.Close()
	}
}

func TestKilledSqueezenetIsBackInTwoSeconds(t *testing.T) {
	withORT(t)
	dir := squeezenet(t)
	x := open(t, onnxPlan(t, filepath.Join(dir, "squeezenet.onnx"), 40*time.Millisecond, 4, patient), onnxOptions(dir))
	c := x.core.Load()
	var back time.Duration
	got := during(x, 0, 4, 4, func() {
		var pid int
		until(func() (busy bool) {
			c.Loop.CallInRound(func() { pid, busy = workersOf(c).Devices[0].Process.PID(), len(workersOf(c).Devices[0].InFlight) > 0 })
			return busy
		})
		killed := time.Now()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		until(func() (up bool) {
			c.Loop.CallInRound(func() { up = workersOf(c).Devices[0].Process != nil && workersOf(c).Devices[0].Generation > 1 })
			return up
		})
		back = time.Since(killed)
	})
	t.Logf("the worker was back after %v", back)
	// The wall clock of a shared machine says little: the limit is checked with
	// INFERPLAN_LONG, on a machine that is otherwise idle.
	if limit := 2 * time.Second; back > limit && long() {
		t.Errorf("back after %v, want at most %v", back, limit)
	}
	if got["served"] != total(got) {
		t.Errorf("ended as %v", got)
	}
	if r := x.Report(); int(r.Requests) != total(got) || r.Completed+r.Dropped != r.Requests {
		t.Errorf("report %+v of %v", r.Counts, got)
	}
}

func TestModelThatDiffersIsRefused(t *testing.T) {
	withORT(t)
	dir := t.TempDir()
	m, err := graph.MLP(16, 1)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "mlp.onnx")
	if err := m.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	p := onnxPlan(t, path, time.Millisecond, 1, time.Second)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file []byte
		sum  string
		is   error
	}{
		"other file": {data, "00", worker.ErrHash}, "truncated": {data[:len(data)/2], "", engine.ErrModel}, "garbage": {[]byte("no model"), "", engine.ErrModel},
	} {
		if err := os.WriteFile(path, c.file, 0o600); err != nil {
			t.Fatal(err)
		}
		p.Deployment[0].SHA256 = c.sum
		if _, err := New(context.Background(), p, onnxOptions(dir)); !errors.Is(err, c.is) {
			t.Errorf("%s: %v, want %v", name, err, c.is)
		}
	}
}

// A plan whose numbers were measured in float16 is served in it: near the answers
// in float32, and not the same. A flag takes that back.
func TestServedAsMeasured(t *testing.T) {
	withORT(t)
	dir := squeezenet(t)
	plan := onnxPlan(t, filepath.Join(dir, "squeezenet.onnx"), 5*time.Millisecond, 1, patient)
	answer := func(o Options) []float64 {
		x := open(t, plan, o)
		req := sample(x, 1)
		image(req)
		resp, err := x.Infer(context.Background(), req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Release()
		return floats(resp.Outputs[0].Data)
	}
	full := answer(onnxOptions(dir))
	plan.Execution = []formats.Execution{{Device: "cpu-1", Precision: formats.PrecisionFP16}}
	if err := plan.Validate(); err != nil {
		t.Fatal(err)
	}
	half := answer(onnxOptions(dir))
	if diff, size := furthest(full, half); diff == 0 || diff > 0.02*size {
		t.Errorf("in float16 the answer differs by %g of %g", diff, size)
	}
	o := onnxOptions(dir)
	o.OverrideExecution = func(kind string, x worker.Execution) worker.Execution {
		if kind != "cpu-1" || !x.FP16 {
			t.Errorf("asked for %s, %+v", kind, x)
		}
		x.FP16 = false
		return x
	}
	if diff, _ := furthest(full, answer(o)); diff != 0 {
		t.Errorf("in float32 again the answer differs by %g", diff)
	}
}
