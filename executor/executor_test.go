package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"inferplan/engine/worker"
	"inferplan/executor/oip"
	"inferplan/executor/series"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/document"
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

func us(d time.Duration) document.Micros { return document.Micros(d) }

// patient is the SLO of tests that say what becomes of requests, not when: no
// machine is busy enough to miss it.
const patient = 10 * time.Minute

// long says that figures which depend on the machine are to be judged, too.
func long() bool { return os.Getenv("INFERPLAN_LONG") != "" }

// until waits until something is so. It has no limit of its own: the machine may
// be busy, and the test's time-out ends what never comes.
func until(done func() bool) {
	for !done() {
		time.Sleep(2 * time.Millisecond)
	}
}

// flat are stage times that grow with the batch: base and 10 % per request.
func flat(base time.Duration, batch int) []document.Micros {
	var out []document.Micros
	for b := range batch {
		out = append(out, us(base+time.Duration(b)*base/10))
	}
	return out
}

// onePlan is a model on some devices of one kind, one stage.
func onePlan(infer time.Duration, batch, devices int, slo time.Duration) *formats.Plan {
	return complete(&formats.Plan{
		Format: formats.FormatPlan, StoppedBy: "proved", Objective: formats.Objective{Name: "throughput", Value: 100}, Kind: formats.PlanPool, Pools: []formats.Pool{{Device: "L4", Count: devices, MaxShares: 1, PerNode: 1}},
		Deployment: []formats.Deployed{{
			Model: "m", NumBlocks: 2,
			Inputs:  []formats.TensorInfo{{Name: "x", DType: "FP32", Shape: []int64{-1, 4}}},
			Outputs: []formats.TensorInfo{{Name: "y", DType: "FP32", Shape: []int64{-1, 2}}},
			Pipelines: []formats.Pipeline{{Batch: batch, RPS: 100, Stages: []formats.Stage{{
				Blocks: [2]int{0, 2}, Device: "L4", Share: 1, Replicas: devices, GPUs: float64(devices), InferUS: flat(infer, batch),
				Placement: []formats.Placement{{FirstDevice: 0, PerDevice: 1, Replicas: devices}},
			}}}}}},
		Section: &formats.PoolPlan{Models: []formats.Served{{Model: "m", SLOUS: us(slo), Percentile: "p99", Weight: 1, RPS: 100}}},
		Policy:  formats.PolicySpec{Name: "reserve", Params: map[string]float64{"guard_us": float64(slo/time.Microsecond) / 5}},
	})
}

// complete fills in what follows from the rest of a plan: a deployed model for
// which nothing is promised gets the promise of the one before.
func complete(p *formats.Plan) *formats.Plan {
	if s := formats.PoolOf(p); s != nil {
		for i := range p.Deployment {
			if i == len(s.Models) {
				s.Models = append(s.Models, s.Models[i-1])
			}
			s.Models[i].Model, s.Models[i].Class, s.Models[i].RPS = p.Deployment[i].Model, p.Deployment[i].Class, p.Deployment[i].RPS()
		}
		s.Models = s.Models[:len(p.Deployment)]
	}
	for m := range p.Deployment {
		for i := range p.Deployment[m].Pipelines {
			pl := &p.Deployment[m].Pipelines[i]
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
	pl := &p.Deployment[0].Pipelines[0]
	second := pl.Stages[0]
	pl.Stages[0].Blocks, second.Blocks = [2]int{0, 1}, [2]int{1, 2}
	pl.Stages[0].Cut = &formats.Cut{Tensors: []string{"c"}, DType: "FP32", Bytes: 1000, TransferUS: make([]document.Micros, batch)}
	second.Placement = []formats.Placement{{FirstDevice: 1, PerDevice: 1, Replicas: 1}}
	pl.Stages = append(pl.Stages, second)
	return complete(p)
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func replayOptions(inside bool) Options {
	return Options{
		CoreOptions:   turn.Options{Engine: "replay", Log: quiet()},
		WorkerOptions: WorkerOptions{InProcess: inside, Command: []string{os.Args[0]}, Env: []string{asWorker + "=1"}, HangTimeout: patient}, // the machine may be busy
	}
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

func sampleOf(x *Executor, model, n int) *oip.Request {
	m := x.Models().Models()[model]
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
			x := open(t, onePlan(2*time.Millisecond, 1, 1, patient), replayOptions(inside))
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

// Requests that come one after the other to an idle server are answered at once, in batches
// of one where the plan has eight: none waits for others until its SLO is nearly over, and none is refused.
func TestLoneRequestsDoNotWait(t *testing.T) {
	x := open(t, onePlan(60*time.Microsecond, 8, 1, patient), replayOptions(false))
	for i := range 8 {
		start := time.Now()
		resp, err := x.Infer(context.Background(), sample(x, 1))
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		resp.Release()
		if took := time.Since(start); took > patient/10 {
			t.Fatalf("request %d of an idle server took %v", i, took)
		}
	}
	resp, err := x.Infer(context.Background(), sample(x, 8))
	if err != nil {
		t.Fatal(err)
	}
	resp.Release()
	if runs := x.Statistics("m", "")[0].ExecutionCount; runs != 9 {
		t.Errorf("%d runs, expected one for each request of one sample and one for that of eight", runs)
	}
}

func TestTwoStagesAcrossProcesses(t *testing.T) {
	x := open(t, twoStagePlan(time.Millisecond, 2, patient), replayOptions(false))
	for n := 2; n <= 6; n += 2 { // more samples than a batch takes: split and joined
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
	if r.Requests != 12 || r.Completed != 12 || r.Late != 0 || r.Attainment != 1 {
		t.Errorf("counts %+v", r.Counts)
	}
	var shm *formats.Tier
	for i := range r.Transfer.Tiers {
		if r.Transfer.Tiers[i].Name == "shm" {
			shm = &r.Transfer.Tiers[i]
		}
	}
	if shm == nil || shm.Bytes != 12*1000 || shm.BytesPerSecond <= 0 {
		t.Errorf("tiers %+v", r.Transfer)
	}
}

// crowd gathers how requests ended.
type crowd struct {
	x    *Executor
	mu   sync.Mutex
	how  map[string]int // samples
	wait sync.WaitGroup
}

func newCrowd(x *Executor) *crowd { return &crowd{x: x, how: map[string]int{}} }

// ask sends one request of n samples.
func (c *crowd) ask(model, n int) {
	c.wait.Go(func() {
		resp, err := c.x.Infer(context.Background(), sampleOf(c.x, model, n))
		if err == nil {
			resp.Release()
		}
		c.mu.Lock()
		c.how[reasonOf(err)] += n
		c.mu.Unlock()
	})
}

// ended waits for all answers.
func (c *crowd) ended() map[string]int {
	c.wait.Wait()
	return c.how
}

// burst asks for many requests of n samples at once.
func burst(x *Executor, model, requests, n int) map[string]int {
	c := newCrowd(x)
	for range requests {
		c.ask(model, n)
	}
	return c.ended()
}

// during sends requests of n samples, at a rate, for as long as f takes, and
// gathers how they ended, by sample.
func during(x *Executor, model, n int, rate float64, f func()) map[string]int {
	out := map[string]int{}
	for _, a := range openLoop(x, model, n, rate, f) {
		out[a.how] += n
	}
	return out
}

func total(m map[string]int) int {
	n := 0
	for _, v := range m {
		n += v
	}
	return n
}

// What comes at once and cannot all be in time is served as far as the SLO
// goes; the rest is dropped with the reason.
func TestOverloadIsDroppedWithReason(t *testing.T) {
	// 11 ms a batch of 2: an SLO of 1 s has room for 90 batches, and 300 come.
	x := open(t, onePlan(10*time.Millisecond, 2, 1, time.Second), replayOptions(true))
	all := map[string]int{}
	// A machine that stands still for the SLO serves nothing: then once more.
	for round := 0; round < 5 && all["served"] == 0; round++ {
		got := burst(x, 0, 300, 2)
		if got["deadline"] < 600-2*100 || got["served"]+got["deadline"] != 600 {
			t.Errorf("ended as %v", got)
		}
		for k, n := range got {
			all[k] += n
		}
	}
	if all["served"] == 0 {
		t.Errorf("ended as %v", all)
	}
	r := x.Report()
	if int(r.Requests) != total(all) || int(r.Completed) != all["served"] || int(r.DroppedByReason["deadline"]) != all["deadline"] || len(r.Warnings) != 0 {
		t.Errorf("report %+v of %v, warnings %v", r.Counts, all, r.Warnings)
	}
}

// A worker that is killed loses no request whose deadline is far: its batches
// run again, and it comes back.
func TestKilledWorkerLosesNoRequest(t *testing.T) {
	x := open(t, onePlan(5*time.Millisecond, 4, 2, patient), replayOptions(false))
	if !x.ModelReady("m", "") || x.ModelReady("n", "") {
		t.Error("the served model, and no other, should be ready")
	}
	c := x.core.Load()
	got := during(x, 0, 4, 75, func() {
		var pid int
		until(func() (busy bool) {
			c.Loop.CallInRound(func() { pid, busy = workersOf(c).Devices[0].Process.PID(), len(workersOf(c).Devices[0].InFlight) > 0 })
			return busy
		})
		syscall.Kill(pid, syscall.SIGKILL)
		until(func() (back bool) {
			c.Loop.CallInRound(func() { back = workersOf(c).Devices[0].Process != nil && workersOf(c).Devices[0].Generation == 2 })
			return back
		})
	})
	if got["served"] != total(got) {
		t.Errorf("ended as %v", got)
	}
	if r := x.Report(); int(r.Requests) != total(got) || r.Completed != r.Requests {
		t.Errorf("report %+v of %d requests", r.Counts, total(got))
	}
	if q, s := held(x); q != 0 || s != 0 {
		t.Errorf("%d request slots and %d memory slots are still held", q, s)
	}
}

// A client that goes away has its answer at once: before a run ends that lasts
// longer than any test.
func TestCancelledClientIsAnsweredAtOnce(t *testing.T) {
	x := open(t, onePlan(time.Hour, 1, 1, 10*time.Hour), replayOptions(false))
	c := x.core.Load()
	last := make(chan string, 1)
	ask := func(ctx context.Context) string {
		resp, err := x.Infer(ctx, sample(x, 1))
		if err == nil {
			resp.Release()
		}
		return reasonOf(err)
	}
	go func() { last <- ask(context.Background()) }()
	until(func() bool { return c.ServedModels.Models[0].Running.Load() == 1 })
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if how := ask(ctx); how != "cancelled" {
				t.Errorf("a client that went away: %s", how)
			}
		})
	}
	until(func() bool {
		return c.ServedModels.Models[0].Running.Load()+c.ServedModels.Models[0].Waiting.Load() == 4
	})
	cancel()
	wg.Wait()
	if r := x.Report(); r.Completed != 0 || r.DroppedByReason["cancelled"] != 3 {
		t.Errorf("%+v", r.Counts)
	}
	c.Loop.CallInRound(func() { workersOf(c).Devices[0].Process.Kill() }) // or Close would wait for the run
	x.Close()
	if how := <-last; how != "draining" {
		t.Errorf("the one that ran until the end: %s", how)
	}
}

func TestDrainAnswersEverybody(t *testing.T) {
	x := open(t, onePlan(30*time.Millisecond, 1, 1, patient), replayOptions(true))
	c := newCrowd(x)
	const n = 200 // 6 s of work
	for range n {
		c.ask(0, 1)
	}
	m := x.core.Load().ServedModels.Models[0]
	until(func() bool { return m.Waiting.Load()+m.Running.Load() > n/2 && x.Report().Completed > 0 })
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
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
	if got := c.ended(); got["served"] == 0 || got["draining"] == 0 || got["served"]+got["draining"] != n {
		t.Errorf("ended as %v", got)
	}
}

func TestReloadLosesNothing(t *testing.T) {
	x := open(t, onePlan(4*time.Millisecond, 4, 1, patient), replayOptions(true))
	got := during(x, 0, 4, 75, func() {
		for range 3 {
			until(func() bool { return inForce(x).Completed >= 20 })
			if err := x.Reload(context.Background(), onePlan(3*time.Millisecond, 2, 2, patient), "abc"); err != nil {
				t.Error(err)
			}
		}
	})
	if got["served"] != total(got) || total(got) < 60 {
		t.Errorf("ended as %v", got)
	}
	bad := onePlan(time.Millisecond, 2, 1, time.Second)
	bad.Policy.Name = "oracle"
	if err := x.Reload(context.Background(), bad, ""); !errors.Is(err, turn.ErrPlan) {
		t.Errorf("a bad plan: %v", err)
	}
	if resp, err := x.Infer(context.Background(), sample(x, 2)); err != nil {
		t.Errorf("after a reload that failed: %v", err)
	} else {
		resp.Release()
	}
}

func TestPlansThatCannotBeServed(t *testing.T) {
	cases := map[string]func(*formats.Plan, *Options){
		"policy": func(p *formats.Plan, o *Options) { p.Policy.Name = "oracle" },
		"cpus": func(p *formats.Plan, o *Options) {
			p.Pools[0].Device, p.Deployment[0].Pipelines[0].Stages[0].Device = "cpu-64", "cpu-64"
			o.Engine = "onnx"
			o.ModelsDir = t.TempDir()
			os.WriteFile(o.ModelsDir+"/m.onnx", nil, 0o600)
		},
		"model":    func(p *formats.Plan, o *Options) { o.Engine = "onnx"; o.ModelsDir = t.TempDir() },
		"datatype": func(p *formats.Plan, o *Options) { p.Deployment[0].Inputs[0].DType = "FP99" },
		"shape":    func(p *formats.Plan, o *Options) { p.Deployment[0].Inputs[0].Shape = []int64{-1, -1} },
	}
	for name, spoil := range cases {
		t.Run(name, func(t *testing.T) {
			p, o := onePlan(time.Millisecond, 1, 1, time.Second), replayOptions(true)
			spoil(p, &o)
			if x, err := New(context.Background(), p, o); !errors.Is(err, turn.ErrPlan) {
				t.Errorf("got %v, want ErrPlan", err)
				if x != nil {
					x.Close()
				}
			}
		})
	}
}

func TestStatisticsAddUp(t *testing.T) {
	x := open(t, onePlan(time.Millisecond, 2, 1, patient), replayOptions(true))
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
				edge = edge || b.GetUpperBound() == patient.Seconds()
			}
			if !edge || f.Metric[0].Histogram.GetSampleCount() != 6 {
				t.Errorf("histogram %v", f.Metric[0].Histogram)
			}
		}
	}
	for _, name := range []string{"requests_total", "queue_length", "in_flight", "batch_size", "worker_up", "plan_info"} {
		if !found[series.Prefix+name] {
			t.Errorf("no series %s%s", series.Prefix, name)
		}
	}
}
