package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"inferplan/engine/worker"
	"inferplan/executor/oip"
	"inferplan/formats"
	"inferplan/policy"
)

// The test binary is its own worker, as plan is.
const asWorker = "INFERPLAN_TEST_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(asWorker) != "" {
		if err := worker.Main(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if address := os.Getenv(asHost); address != "" {
		if err := joinForTest(address); err != nil {
			fmt.Fprintln(os.Stderr, "host:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if plan := os.Getenv(asServer); plan != "" {
		if err := serveForTest(plan); err != nil {
			fmt.Fprintln(os.Stderr, "server:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func us(d time.Duration) formats.Micros { return formats.Micros(d) }

// flat are stage times that grow with the batch: base and 10 % per request.
func flat(base time.Duration, batch int) []formats.Micros {
	var out []formats.Micros
	for b := range batch {
		out = append(out, us(base+time.Duration(b)*base/10))
	}
	return out
}

// onePlan is a model on some devices of one kind, one stage.
func onePlan(infer time.Duration, batch, devices int, slo time.Duration) *formats.Plan {
	return complete(&formats.Plan{
		Format: formats.FormatPlan, StoppedBy: "proved", Objective: formats.Objective{Name: "throughput", Value: 100}, Kind: formats.PlanPool, Pools: []formats.Pool{{Device: "L4", Count: devices, MaxShares: 1, PerNode: 1}},
		Models: []formats.PlanModel{{
			Model: "m", SLOUS: us(slo), Percentile: "p99", Weight: 1, RPS: 100, NumBlocks: 2,
			Inputs:  []formats.TensorInfo{{Name: "x", DType: "FP32", Shape: []int64{-1, 4}}},
			Outputs: []formats.TensorInfo{{Name: "y", DType: "FP32", Shape: []int64{-1, 2}}},
			Pipelines: []formats.Pipeline{{Batch: batch, RPS: 100, Stages: []formats.Stage{{
				Blocks: [2]int{0, 2}, Device: "L4", Share: 1, Replicas: devices, GPUs: float64(devices), InferUS: flat(infer, batch),
				Placement: []formats.Placement{{First: 0, PerDevice: 1, Replicas: devices}},
			}}}},
		}},
		Policy: formats.PolicySpec{Name: "reserve", Params: map[string]float64{"guard_us": float64(slo/time.Microsecond) / 5}},
	})
}

// complete fills in what follows from the rest of a plan.
func complete(p *formats.Plan) *formats.Plan {
	for m := range p.Models {
		for i := range p.Models[m].Pipelines {
			pl := &p.Models[m].Pipelines[i]
			pl.LatencyUS = 0
			for k := range pl.Stages {
				s := &pl.Stages[k]
				s.RPS = max(pl.RPS, float64(s.Replicas*pl.Batch)/s.InferUS[pl.Batch-1].D().Seconds())
				pl.LatencyUS += s.InferUS[pl.Batch-1]
			}
		}
	}
	return p
}

// twoStagePlan cuts the model in two, on a device each.
func twoStagePlan(infer time.Duration, batch int, slo time.Duration) *formats.Plan {
	p := onePlan(infer, batch, 1, slo)
	p.Pools[0].Count = 2
	pl := &p.Models[0].Pipelines[0]
	second := pl.Stages[0]
	pl.Stages[0].Blocks, second.Blocks = [2]int{0, 1}, [2]int{1, 2}
	pl.Stages[0].Cut = &formats.Cut{Tensors: []string{"c"}, DType: "FP32", Bytes: 1000, TransferUS: make([]formats.Micros, batch)}
	second.Placement = []formats.Placement{{First: 1, PerDevice: 1, Replicas: 1}}
	pl.Stages = append(pl.Stages, second)
	return complete(p)
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func replayOptions(inside bool) Options {
	return Options{Engine: "replay", Inside: inside, Command: []string{os.Args[0]}, Env: []string{asWorker + "=1"}, Log: quiet()}
}

func open(t testing.TB, p *formats.Plan, o Options) *Executor {
	t.Helper()
	x, err := New(context.Background(), p, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x
}

func sample(x *Executor, n int) *oip.Request { return sampleOf(x, 0, n) }

func compiled(t testing.TB, p *formats.Plan) *policy.Tables {
	t.Helper()
	tables, err := policy.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

func sampleOf(x *Executor, model, n int) *oip.Request {
	m := x.Models().All()[model]
	r := &oip.Request{Model: m.Name, Info: m, Batch: n, Received: time.Now()}
	for _, in := range m.Inputs {
		shape := append([]int64(nil), in.Shape...)
		shape[0] = int64(n)
		size := int64(in.Datatype.Size())
		for _, d := range shape {
			size *= d
		}
		r.Inputs = append(r.Inputs, oip.Tensor{Name: in.Name, Datatype: in.Datatype, Shape: shape, Data: make([]byte, size)})
	}
	return r
}

func reasonOf(err error) string {
	var e *oip.Error
	switch {
	case err == nil:
		return "served"
	case errors.As(err, &e):
		return e.Reason
	case errors.Is(err, context.Canceled):
		return "cancelled"
	}
	return err.Error()
}

func TestServesOneRequest(t *testing.T) {
	for _, inside := range []bool{true, false} {
		t.Run(fmt.Sprintf("inside=%v", inside), func(t *testing.T) {
			x := open(t, onePlan(2*time.Millisecond, 4, 1, 200*time.Millisecond), replayOptions(inside))
			resp, err := x.Infer(context.Background(), sample(x, 1))
			if err != nil {
				t.Fatal(err)
			}
			if len(resp.Outputs) != 1 || resp.Outputs[0].Name != "y" || len(resp.Outputs[0].Data) != 8 || resp.Outputs[0].Shape[0] != 1 {
				t.Errorf("outputs %+v", resp.Outputs)
			}
			resp.Release()
		})
	}
}

func TestTwoStagesAcrossProcesses(t *testing.T) {
	x := open(t, twoStagePlan(time.Millisecond, 2, 500*time.Millisecond), replayOptions(false))
	for n := 1; n <= 5; n++ { // more samples than a batch takes: split and joined
		resp, err := x.Infer(context.Background(), sample(x, n))
		if err != nil {
			t.Fatal(err)
		}
		if got := resp.Outputs[0].Shape[0]; got != int64(n) || len(resp.Outputs[0].Data) != 8*n {
			t.Errorf("%d samples: answer of shape %v", n, resp.Outputs[0].Shape)
		}
		resp.Release()
	}
	r := x.Report()
	if r.Requests != 15 || r.Completed != 15 || r.Late != 0 || r.Attainment != 1 {
		t.Errorf("counts %+v", r.Counts)
	}
	var shm *formats.Tier
	for i := range r.Transfer.Tiers {
		if r.Transfer.Tiers[i].Name == "shm" {
			shm = &r.Transfer.Tiers[i]
		}
	}
	if shm == nil || shm.Bytes != 15*1000 || shm.BytesPerSecond <= 0 {
		t.Errorf("tiers %+v", r.Transfer)
	}
}

// offer sends requests at a rate and gathers how each of them ended.
func offer(x *Executor, rate float64, d time.Duration) map[string]int {
	return offerModel(x, 0, rate, d)
}

func offerModel(x *Executor, model int, rate float64, d time.Duration) map[string]int {
	var mu sync.Mutex
	out := map[string]int{}
	var wg sync.WaitGroup
	start := time.Now()
	for i := 0; ; i++ {
		at := start.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		if at.Sub(start) > d {
			break
		}
		time.Sleep(time.Until(at))
		wg.Go(func() {
			resp, err := x.Infer(context.Background(), sampleOf(x, model, 1))
			if err == nil {
				resp.Release()
			}
			mu.Lock()
			out[reasonOf(err)]++
			mu.Unlock()
		})
	}
	wg.Wait()
	return out
}

func total(m map[string]int) int {
	n := 0
	for _, v := range m {
		n += v
	}
	return n
}

func TestOverloadIsDroppedWithReason(t *testing.T) {
	// 10 ms a batch of 2 at most: 180 requests/s at best, 600 asked.
	x := open(t, onePlan(10*time.Millisecond, 2, 1, 80*time.Millisecond), replayOptions(true))
	got := offer(x, 600, 500*time.Millisecond)
	if got["served"] < 50 || got["deadline"] < 100 || got["served"]+got["deadline"] != total(got) {
		t.Errorf("ended as %v", got)
	}
	r := x.Report()
	if int(r.Requests) != total(got) || int(r.Completed) != got["served"] || int(r.DroppedByReason["deadline"]) != got["deadline"] || len(r.Warnings) != 0 {
		t.Errorf("report %+v of %v, warnings %v", r.Counts, got, r.Warnings)
	}
}

func TestKilledWorker(t *testing.T) {
	o := replayOptions(false)
	x := open(t, onePlan(5*time.Millisecond, 4, 2, 250*time.Millisecond), o)
	if !x.ModelReady("m", "") || x.ModelReady("n", "") {
		t.Error("the served model, and no other, should be ready")
	}
	c := x.core.Load()
	var killed atomic.Int64
	go func() {
		time.Sleep(300 * time.Millisecond)
		var pid int
		c.call(func() { pid = c.devices[0].proc.PID() })
		killed.Store(time.Now().UnixNano())
		syscall.Kill(pid, syscall.SIGKILL)
	}()
	got := offer(x, 300, 1500*time.Millisecond)
	if got["served"]+got["deadline"]+got["worker_lost"] != total(got) || got["served"] < total(got)*8/10 {
		t.Errorf("ended as %v", got)
	}
	r := x.Report()
	if int(r.Requests) != total(got) || r.Completed+r.Dropped != r.Requests {
		t.Errorf("report %+v of %d requests", r.Counts, total(got))
	}
	var back bool
	c.call(func() { back = c.devices[0].proc != nil && c.devices[0].gen == 2 })
	if !back {
		t.Error("the worker is not back after 1.2 s")
	}
	var free, inUse int
	c.call(func() {
		free = len(c.reqs) - len(c.freeReqs)
		for _, d := range c.devices {
			for _, s := range d.slots {
				inUse += s.pool.InUse()
			}
		}
	})
	if free != 0 || inUse != 0 {
		t.Errorf("%d request slots and %d memory slots are still held", free, inUse)
	}
}

func TestCancelledClient(t *testing.T) {
	x := open(t, onePlan(50*time.Millisecond, 1, 1, 10*time.Second), replayOptions(true))
	ctx, cancel := context.WithCancel(context.Background())
	var wg, all sync.WaitGroup
	for i := range 4 {
		c, g := ctx, &wg
		if i == 0 {
			c, g = context.Background(), &all
		}
		g.Go(func() {
			resp, err := x.Infer(c, sample(x, 1))
			if err == nil {
				resp.Release()
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	start := time.Now()
	cancel()
	wg.Wait()
	if d := time.Since(start); d > 40*time.Millisecond {
		t.Errorf("waited %v after the cancellation", d)
	}
	all.Wait()
	r := x.Report()
	if r.Completed+r.DroppedByReason["cancelled"] != 4 || r.DroppedByReason["cancelled"] < 2 {
		t.Errorf("%+v", r.Counts)
	}
}

func TestDrainAnswersEverybody(t *testing.T) {
	x := open(t, onePlan(30*time.Millisecond, 1, 1, 5*time.Second), replayOptions(true))
	results := make(chan string, 10)
	for range 10 {
		go func() {
			resp, err := x.Infer(context.Background(), sample(x, 1))
			if err == nil {
				resp.Release()
			}
			results <- reasonOf(err)
		}()
	}
	time.Sleep(20 * time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := x.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("drain with work left: %v", err)
	}
	if x.Ready() {
		t.Error("ready while draining")
	}
	if _, err := x.Infer(context.Background(), sample(x, 1)); reasonOf(err) != "draining" {
		t.Errorf("a request while draining: %v", err)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for range 10 {
		got[<-results]++
	}
	if got["served"] < 2 || got["draining"] < 2 || total(got) != 10 {
		t.Errorf("ended as %v", got)
	}
}

func TestReloadLosesNothing(t *testing.T) {
	x := open(t, onePlan(4*time.Millisecond, 4, 1, 300*time.Millisecond), replayOptions(true))
	var got map[string]int
	done := make(chan struct{})
	go func() {
		got = offer(x, 300, 800*time.Millisecond)
		close(done)
	}()
	for range 3 {
		time.Sleep(150 * time.Millisecond)
		if err := x.Reload(context.Background(), onePlan(3*time.Millisecond, 2, 2, 300*time.Millisecond), "abc"); err != nil {
			t.Error(err)
		}
	}
	<-done
	if got["served"] != total(got) {
		t.Errorf("ended as %v", got)
	}
	bad := onePlan(time.Millisecond, 2, 1, time.Second)
	bad.Policy.Name = "oracle"
	if err := x.Reload(context.Background(), bad, ""); !errors.Is(err, ErrPlan) {
		t.Errorf("a bad plan: %v", err)
	}
	if resp, err := x.Infer(context.Background(), sample(x, 1)); err != nil {
		t.Errorf("after a reload that failed: %v", err)
	} else {
		resp.Release()
	}
}

func TestPlansThatCannotBeServed(t *testing.T) {
	cases := map[string]func(*formats.Plan, *Options){
		"policy": func(p *formats.Plan, o *Options) { p.Policy.Name = "oracle" },
		"cpus": func(p *formats.Plan, o *Options) {
			p.Pools[0].Device, p.Models[0].Pipelines[0].Stages[0].Device = "cpu-64", "cpu-64"
			o.Engine = "onnx"
			o.ModelsDir = t.TempDir()
			os.WriteFile(o.ModelsDir+"/m.onnx", nil, 0o600)
		},
		"model":    func(p *formats.Plan, o *Options) { o.Engine = "onnx"; o.ModelsDir = t.TempDir() },
		"datatype": func(p *formats.Plan, o *Options) { p.Models[0].Inputs[0].DType = "FP99" },
		"shape":    func(p *formats.Plan, o *Options) { p.Models[0].Inputs[0].Shape = []int64{-1, -1} },
	}
	for name, spoil := range cases {
		t.Run(name, func(t *testing.T) {
			p, o := onePlan(time.Millisecond, 1, 1, time.Second), replayOptions(true)
			spoil(p, &o)
			if x, err := New(context.Background(), p, o); !errors.Is(err, ErrPlan) {
				t.Errorf("got %v, want ErrPlan", err)
				if x != nil {
					x.Close()
				}
			}
		})
	}
}

func TestStatisticsAddUp(t *testing.T) {
	x := open(t, onePlan(time.Millisecond, 4, 1, time.Second), replayOptions(true))
	for range 3 {
		resp, err := x.Infer(context.Background(), sample(x, 2))
		if err != nil {
			t.Fatal(err)
		}
		resp.Release()
	}
	s := x.Statistics("m", "")
	if len(s) != 1 || s[0].InferenceCount != 6 || s[0].Inference.Success.Count != 3 || s[0].ExecutionCount == 0 || len(s[0].Batches) == 0 || s[0].LastInference == 0 {
		t.Errorf("%+v", s)
	}
	families, err := x.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, f := range families {
		found[f.GetName()] = true
		if f.GetName() == "inferplan_request_duration_seconds" {
			edge := false
			for _, b := range f.Metric[0].Histogram.Bucket {
				edge = edge || b.GetUpperBound() == 1.0
			}
			if !edge || f.Metric[0].Histogram.GetSampleCount() != 6 {
				t.Errorf("histogram %v", f.Metric[0].Histogram)
			}
		}
	}
	for _, name := range []string{"requests_total", "queue_length", "in_flight", "batch_size", "worker_up", "plan_info"} {
		if !found[prefix+name] {
			t.Errorf("no series %s%s", prefix, name)
		}
	}
}
