package planner

import (
	"bytes"
	"context"
	"errors"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/planner/pool/documents"
	"inferplan/solver/highs"
	"inferplan/solver/milp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ms(v float64) document.Micros { return document.Micros(math.Round(v * 1e6)) }

// measure adds measurements of a model on a device: block times in ms at batch
// 1, a batch of b taking (1+b)/2 times as long, a share of 1/v taking v times. The
// whole model takes .95 of its blocks.
func measure(p *formats.Profile, model, device string, shares int, batches []int, blocks ...float64) {
	i := slices.IndexFunc(p.Models, func(m formats.ProfileModel) bool { return m.Model == model })
	if i < 0 {
		m := formats.ProfileModel{Model: model, Source: &formats.ModelSource{Path: model + ".onnx", SHA256: strings.Repeat("a", 64)}}
		for b := range blocks {
			blk := formats.Block{Name: model + "-" + string(rune('a'+b)), WeightBytes: 1000}
			if b+1 < len(blocks) {
				blk.Cut = []formats.TensorInfo{{Name: "t" + string(rune('0'+b)), DType: "FP32", Shape: []int64{-1, 100}}}
				blk.CutBytesFP32, blk.CutBytesFP16 = 400_000, 200_000
			}
			m.Blocks = append(m.Blocks, blk)
		}
		p.Models = append(p.Models, m)
		i = len(p.Models) - 1
	}
	for v := 1; v <= shares; v++ {
		for _, b := range batches {
			me := formats.Measurement{Device: device, Share: v, Batch: b}
			sum := 0.0
			for _, t := range blocks {
				us := t * float64(1+b) / 2 * float64(v)
				me.Blocks = append(me.Blocks, formats.Latency{WallUS: ms(us)})
				sum += us
			}
			me.WholeModel = &formats.Latency{WallUS: ms(sum * 0.95)}
			p.Models[i].Measurements = append(p.Models[i].Measurements, me)
		}
	}
}

// twoKinds is a small world of two device kinds and two models.
func twoKinds() Inputs {
	p := &formats.Profile{Format: "inferplan.profile/v1"}
	measure(p, "small", "H", 2, []int{1, 2, 4}, 1, 2, 1)
	measure(p, "small", "L", 1, []int{1, 2, 4}, 4, 9, 3)
	measure(p, "large", "H", 2, []int{1, 2, 4}, 3, 4, 5)
	measure(p, "large", "L", 1, []int{1, 2, 4}, 9, 16, 21)
	return Inputs{
		Profile: p,
		Cluster: &formats.Cluster{Format: "inferplan.cluster/v1", Pools: []formats.Pool{
			{Device: "H", Count: 3, MaxShares: 2, PerNode: 1, NICGbps: 10, USDPerHour: 2},
			{Device: "L", Count: 5, MaxShares: 1, PerNode: 1, NICGbps: 10, USDPerHour: 0.5},
		}},
		Workload: &formats.Workload{Format: "inferplan.workload/v1", Section: formats.WorkloadModels{
			{Model: "small", SLO: document.SLO{Duration: 40 * time.Millisecond}, Weight: 0.6},
			{Model: "large", SLO: document.SLO{Factor: 5}, Weight: 0.4},
		}},
	}
}

// oneCPU is two models that take turns on one CPU thread set.
func oneCPU(count int) Inputs {
	p := &formats.Profile{Format: "inferplan.profile/v1"}
	measure(p, "a", "cpu-1", 1, []int{1, 2, 4}, 2, 3)
	measure(p, "b", "cpu-1", 1, []int{1, 2, 4}, 4, 4)
	in := Inputs{Profile: p, Cluster: &formats.Cluster{Format: "inferplan.cluster/v1", Pools: []formats.Pool{{Device: "cpu-1", Count: count}}}}
	in.Workload, _ = AssumedWorkload(p, document.SLO{Duration: 50 * time.Millisecond})
	return in
}

func mustSolve(t testing.TB, in Inputs, opt Options) *Result {
	t.Helper()
	res, err := Solve(context.Background(), in, opt, highs.Solver{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func planBytes(t testing.TB, p *formats.Plan) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := document.Write(&b, p); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A plan is a valid document that reads back as it was written, and its file
// is the same whatever the number of processors.
func TestPlanFile(t *testing.T) {
	for name, in := range map[string]Inputs{"two kinds": twoKinds(), "one CPU": oneCPU(2)} {
		t.Run(name, func(t *testing.T) {
			var opt Options
			opt.Set("gap", 0)
			first := planBytes(t, mustSolve(t, in, opt).Plan)
			if _, err := formats.DecodePlan(first, "plan.json"); err != nil {
				t.Errorf("the plan does not read back: %v\n%s", err, first)
			}
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			for _, n := range []int{1, 2} {
				runtime.GOMAXPROCS(n)
				if again := planBytes(t, mustSolve(t, in, opt).Plan); !bytes.Equal(first, again) {
					t.Errorf("another plan at GOMAXPROCS %d:\n%s\n%s", n, first, again)
				}
			}
		})
	}
}

// On time-shared devices the plan is the one of the linear program: here by hand.
func TestTimeShared(t *testing.T) {
	in := oneCPU(2)
	var opt Options
	res := mustSolve(t, in, opt)
	// A batch of 4 of a takes .95 of 12.5 ms, of b .95 of 20 ms: both within 30 ms (50
	// less the margin of 20), and one after the other within 50. Two devices, equal rates.
	want := 2 / (0.95*0.0125/4 + 0.95*0.020/4)
	if got := res.Plan.Objective; math.Abs(got.Value-want) > 1e-6*want || *got.Gap > 1e-6 || res.Status != "optimal" {
		t.Errorf("%+v %s, expected %v, proved", got, res.Status, want)
	}
	share := 0.0
	for _, m := range res.Plan.Deployment {
		for _, pl := range m.Pipelines {
			if len(pl.Stages) != 1 {
				t.Errorf("%d stages on one pool", len(pl.Stages))
			}
			s := pl.Stages[0]
			share += s.GPUs
			if s.Replicas != 2 || !slices.Equal(s.Placement, []formats.Placement{{FirstDevice: 0, PerDevice: 1, Replicas: 2}}) {
				t.Errorf("not on every device: %+v", s)
			}
		}
	}
	if math.Abs(share-2) > 1e-6 {
		t.Errorf("%v of 2 devices used", share)
	}
	if res.Plan.Pools[0].Sharing != formats.SharingTime || !slices.ContainsFunc(res.Plan.Assumptions, func(a string) bool { return strings.HasPrefix(a, "sharing: time on cpu-1") }) {
		t.Errorf("sharing was assumed without a word: %+v %q", res.Plan.Pools, res.Plan.Assumptions)
	}
}

// A batch may find the device busy with the longest other one: a tight SLO of
// one model shortens the batches of the other.
func TestTightSLOShortensOtherBatches(t *testing.T) {
	in := oneCPU(1)
	formats.ModelsOf(in.Workload)[0].SLO.Duration = 25 * time.Millisecond // a: 15 ms after the margin; 5 ms at batch 1
	formats.ModelsOf(in.Workload)[1].SLO.Duration = time.Second
	plan := mustSolve(t, in, Options{}).Plan
	longest := time.Duration(0)
	for _, m := range plan.Deployment {
		for _, pl := range m.Pipelines {
			longest = max(longest, pl.LatencyUS.D())
		}
	}
	for _, pl := range plan.Deployment[0].Pipelines {
		if wait := pl.LatencyUS.D() + longest; wait > 25*time.Millisecond {
			t.Errorf("a batch of a takes %v and may wait %v", pl.LatencyUS.D(), longest)
		}
	}
	if len(plan.Warnings) > 0 {
		t.Errorf("warnings %q", plan.Warnings)
	}
	// Where no choice keeps the rule, there is a plan with a warning.
	formats.ModelsOf(in.Workload)[0].SLO.Duration = 12 * time.Millisecond // 7.2 ms for 5 ms; b takes 8 at least
	plan = mustSolve(t, in, Options{}).Plan
	if len(plan.Warnings) != 1 || !strings.HasPrefix(plan.Warnings[0], "a: its requests may wait") {
		t.Errorf("warnings %q", plan.Warnings)
	}
}

// Rates beyond the objective: at the best minimum nobody is left with slack
// that costs nothing.
func TestWeightedSum(t *testing.T) {
	in := oneCPU(1)
	p := in.Profile
	measure(p, "a", "cpu-2", 1, []int{1}, 1, 1) // only a runs there
	in.Cluster.Pools = append(in.Cluster.Pools, formats.Pool{Device: "cpu-2", Count: 1})
	res := mustSolve(t, in, Options{})
	a, b := res.Plan.PromiseFor(0), res.Plan.PromiseFor(1)
	if math.Abs(res.Plan.Objective.Value-b.RPS) > 1e-6*b.RPS || a.RPS < 2*b.RPS {
		t.Errorf("objective %v, a %v, b %v: the device that only a can use stays idle", res.Plan.Objective.Value, a.RPS, b.RPS)
	}
}

func TestOptionsAndInputs(t *testing.T) {
	type world struct {
		in  Inputs
		opt Options
	}
	for _, c := range []struct {
		name   string
		change func(*world)
		want   []string // parts of the message
	}{
		{"another method", func(w *world) { w.opt.Method = "queue" }, []string{"w.yaml: models", "a workload for the method pool", "leave out --method queue"}},
		{"cost of no load", func(w *world) { w.opt.Set("objective", "cost") }, []string{"w.yaml: models[0].min_rps", "no rate", "--min-load"}},
		{"objective of a baseline", func(w *world) { w.opt = Options{Values: map[string]any{"objective": "gpus", "algorithm": "np"}} }, []string{"--objective", "throughput with --algorithm np"}},
		{"unknown algorithm", func(w *world) { w.opt.Set("algorithm", "x") }, []string{"--algorithm", `"x"`, "template or np or dart-r"}},
		{"margin", func(w *world) { w.opt.Set("margin", 1) }, []string{"--margin", "less than 1"}},
		{"margin NaN", func(w *world) { w.opt.Set("margin", math.NaN()) }, []string{"--margin"}},
		{"gap", func(w *world) { w.opt.Set("gap", -1) }, []string{"--gap"}},
		{"partitions", func(w *world) { w.opt.Set("max-partitions", 9) }, []string{"--max-partitions", "from 1 to 8"}},
		{"model missing", func(w *world) { formats.ModelsOf(w.in.Workload)[1].Model = "huge" }, []string{"w.yaml: models[1].model", `"huge"`, "p.json", "the profile has small, large"}},
		{"model twice", func(w *world) { formats.ModelsOf(w.in.Workload)[1].Model = "small" }, []string{"models[1].model", "a second time"}},
		{"no SLO", func(w *world) { formats.ModelsOf(w.in.Workload)[0].SLO = document.SLO{} }, []string{"models[0].slo", "--slo"}},
		{"5x without a whole", func(w *world) {
			for i := range w.in.Profile.Models[1].Measurements {
				w.in.Profile.Models[1].Measurements[i].WholeModel = nil
			}
		}, []string{"p.json: models[1].measurements", "whole model at batch 1", "the SLO of large is 5x"}},
		{"unknown device", func(w *world) { w.in.Cluster.Pools[1].Device = "X9" }, []string{"c.yaml: pools[1].device", `"X9"`, "the profile has H, L"}},
		{"device twice", func(w *world) { w.in.Cluster.Pools[1].Device = "H" }, []string{"pools[1].device", "a second time"}},
		{"no device", func(w *world) { w.in.Cluster.Pools[0].Count, w.in.Cluster.Pools[1].Count = 0, 0 }, []string{"c.yaml: pools", "no device"}},
		{"cascade", func(w *world) { w.in.Workload.Section = &formats.Cascade{} }, []string{"p.json: records", "plan profile --records"}},
		{"language models", func(w *world) { w.in.Workload.Section = &formats.LLM{Models: []string{"a"}} }, []string{"w.yaml: llm.models[0]", "the profile has no language models"}},
		{"no work", func(w *world) { w.in.Workload.Section = nil }, []string{"w.yaml: found nothing that is asked for"}},
		{"no model", func(w *world) { w.in.Workload.Section = formats.WorkloadModels{} }, []string{"w.yaml: models", "no model", "at least one"}},
		{"blocks missing", func(w *world) { w.in.Profile.Models[0].Measurements[0].Blocks = nil }, []string{"models[0].measurements[0].blocks", "3, one per block"}},
		{"measured twice", func(w *world) { m := &w.in.Profile.Models[0]; m.Measurements[1].Batch = 1 }, []string{"models[0].measurements[1]", "a second time"}},
		{"not measured here", func(w *world) {
			m := &w.in.Profile.Models[0]
			m.Measurements = slices.DeleteFunc(m.Measurements, func(x formats.Measurement) bool { return true })
		}, []string{"models[0].measurements", "small on a device of the cluster"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := world{twoKinds(), Options{}}
			w.in.Files = []formats.Input{{Role: "profile", Path: "p.json"}, {Role: "cluster", Path: "c.yaml"}, {Role: "workload", Path: "w.yaml"}}
			c.change(&w)
			_, err := Solve(context.Background(), w.in, w.opt, highs.Solver{}, nil)
			if err == nil || document.Findings(err) == nil {
				t.Fatalf("got %v, expected a finding about the documents", err)
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}

func TestInfeasibleErrorNamesCauseAndNearest(t *testing.T) {
	for _, c := range []struct {
		name       string
		change     func(*Inputs, *Options)
		constraint string
		model      string
		nearest    kind.NearestFeasible
	}{
		{"SLO", func(in *Inputs, _ *Options) {
			formats.ModelsOf(in.Workload)[0].SLO = document.SLO{Duration: 5 * time.Millisecond}
		},
			// The fastest: .95 of 4 ms on H; 6333 us less round(0.4 * 6333) us are as much.
			"slo", "small", kind.NearestFeasible{SLOUS: 6333}},
		{"memory", func(in *Inputs, o *Options) {
			o.Set("max-partitions", 1)
			for i := range in.Cluster.Pools {
				in.Cluster.Pools[i].Memory = 2500
			}
		}, "memory", "small", kind.NearestFeasible{MemoryBytes: 3000}},
		{"devices", func(in *Inputs, _ *Options) { in.Cluster.Pools = in.Cluster.Pools[:1]; in.Cluster.Pools[0].Count = 1 },
			"devices", "", kind.NearestFeasible{Devices: []kind.MissingCount{{Device: "H", Count: 1}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in, opt := twoKinds(), Options{}
			c.change(&in, &opt)
			_, err := Solve(context.Background(), in, opt, highs.Solver{}, nil)
			var inf *InfeasibleError
			if !errors.As(err, &inf) {
				t.Fatalf("got %v", err)
			}
			if inf.Constraint != c.constraint || inf.Model != c.model || inf.Nearest.String() != c.nearest.String() {
				t.Errorf("constraint %s, model %q, nearest %+v: %v", inf.Constraint, inf.Model, inf.Nearest, err)
			}
		})
	}
	t.Run("floors", func(t *testing.T) {
		in := oneCPU(1)
		formats.ModelsOf(in.Workload)[0].MinRPS = 200 // .95/320 s each at batch 4
		formats.ModelsOf(in.Workload)[1].MinRPS = 200 // .95/200 s each
		_, err := Solve(context.Background(), in, Options{}, highs.Solver{}, nil)
		var inf *InfeasibleError
		if !errors.As(err, &inf) {
			t.Fatalf("got %v", err)
		}
		want := 1 / (0.95*200/320 + 0.95*200/200)
		conflict := []string{"at least 200 requests/s of a", "at least 200 requests/s of b", "1 devices of kind cpu-1"}
		if inf.Constraint != "min_rps" || math.Abs(inf.Nearest.LoadFactor-want) > 1e-6 || !slices.Equal(inf.Conflict, conflict) {
			t.Errorf("factor %v, expected %v; conflict %q", inf.Nearest.LoadFactor, want, inf.Conflict)
		}
		formats.ModelsOf(in.Workload)[0].MinRPS *= want * 0.999
		formats.ModelsOf(in.Workload)[1].MinRPS *= want * 0.999
		mustSolve(t, in, Options{})
	})
}

// cancellingSolver ends its context once n solves were made.
type cancellingSolver struct {
	milp.Solver
	n      int
	cancel context.CancelFunc
}

func (c *cancellingSolver) Solve(ctx context.Context, m *milp.Model, o milp.Options) (*milp.Solution, error) {
	s, err := c.Solver.Solve(ctx, m, o)
	if c.n--; c.n == 0 {
		c.cancel()
	}
	return s, err
}

// A cancelled solve keeps the best plan so far and says so; before the
// relaxation, of which a first plan is made without another program, it is an
// error.
func TestCancelledSolveKeepsItsBestPlan(t *testing.T) {
	in, opt := twoKinds(), Options{}
	opt.Set("gap", 0)
	for _, n := range []int{0, 1, 2, 3} {
		ctx, cancel := context.WithCancel(context.Background())
		if n == 0 {
			cancel()
		}
		res, err := Solve(ctx, in, opt, &cancellingSolver{highs.Solver{}, n, cancel}, nil)
		cancel()
		switch {
		case n == 0 && !errors.Is(err, context.Canceled):
			t.Errorf("cancelled before a plan: %v, %v", res, err)
		case (n == 1 || n == 2) && (err != nil || res.StoppedBy != "interrupt"):
			t.Errorf("cancelled after the first plan: %+v, %v", res, err)
		case n == 3 && (err != nil || res.Status != "interrupted"):
			t.Errorf("cancelled after the second program: %+v, %v", res, err)
		}
	}
}

func TestTimeLimit(t *testing.T) {
	var opt Options
	opt.Set("time-limit", time.Nanosecond)
	if res, err := Solve(context.Background(), twoKinds(), opt, highs.Solver{}, nil); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the time limit of 1ns ended before there was a plan") {
		t.Errorf("no time at all: %v, %v", res, err)
	}
	// What more time would not change is not blamed on the limit.
	bad := twoKinds()
	formats.ModelsOf(bad.Workload)[0].SLO = document.SLO{}
	if _, err := Solve(context.Background(), bad, opt, highs.Solver{}, nil); err == nil || strings.Contains(err.Error(), "time limit") || !strings.Contains(err.Error(), "models[0].slo") {
		t.Errorf("no SLO and no time: %v", err)
	}
	formats.ModelsOf(bad.Workload)[0].SLO = document.SLO{Duration: time.Microsecond}
	var inf *InfeasibleError
	if _, err := Solve(context.Background(), bad, opt, highs.Solver{}, nil); !errors.As(err, &inf) || strings.Contains(err.Error(), "time limit") {
		t.Errorf("no pipeline in time and no time: %v", err)
	}
	opt.Set("time-limit", time.Hour)
	if res := mustSolve(t, twoKinds(), opt); res.StoppedBy == "time" || res.StoppedBy == "interrupt" {
		t.Errorf("an hour was not enough: %s", res.StoppedBy)
	}
}

func TestBatchBuilding(t *testing.T) {
	in, opt := twoKinds(), Options{}
	opt.Set("batch-build", 1.3)
	formats.ModelsOf(in.Workload)[0].BatchBuildRPS = 500
	plan := mustSolve(t, in, opt).Plan
	np := opt
	np.Set("algorithm", documents.AlgorithmNP)
	np.Set("batch-build", 0)
	rate := mustSolve(t, in, np).Plan.PromiseFor(1).RPS
	if !slices.ContainsFunc(plan.Assumptions, func(a string) bool {
		return strings.HasPrefix(a, "batch_build_rps") && strings.Contains(a, "for large")
	}) {
		t.Errorf("assumptions %q", plan.Assumptions)
	}
	for i, r := range []float64{500, rate} {
		for _, pl := range plan.Deployment[i].Pipelines {
			want := 1.3e6 * float64(pl.Batch-1) / r
			if got := float64(pl.BatchBuildUS) / 1000; math.Abs(got-want) > 0.001 {
				t.Errorf("%s, batch %d: %v us, expected %v", plan.Deployment[i].Model, pl.Batch, got, want)
			}
		}
	}
}

// What the plan says of a little more is what a plan with a little more has as
// its bound.
func TestLimitEqualsBoundOfLargerProblem(t *testing.T) {
	in, opt := twoKinds(), Options{}
	plan := mustSolve(t, in, opt).Plan
	if len(plan.Limits) == 0 {
		t.Fatal("nothing limits the plan")
	}
	for i, l := range plan.Limits {
		if i > 0 && l.Gain > plan.Limits[i-1].Gain || l.Gain <= 0 {
			t.Errorf("gain %v after %v", l.Gain, plan.Limits[0].Gain)
		}
		if l.Constraint == "device H" {
			more := twoKinds()
			more.Cluster.Pools[0].Count++
			opt.Set("gap", 0.9) // the relaxation is all that is asked for
			res := mustSolve(t, more, opt)
			if b := res.Phases[0].Bound; math.Abs(b-l.Value) > 1e-6*b {
				t.Errorf("one more H: %v, the limit says %v", b, l.Value)
			}
		}
	}
}

func TestStaleModelFile(t *testing.T) {
	in := twoKinds()
	in.ProfileDir = t.TempDir()
	if _, err := document.WriteBytes(filepath.Join(in.ProfileDir, "small.onnx"), []byte("another model")); err != nil {
		t.Fatal(err)
	}
	plan := mustSolve(t, in, Options{}).Plan
	if len(plan.Warnings) != 2 || !strings.HasPrefix(plan.Warnings[0], "stale profile: small.onnx") || !strings.HasPrefix(plan.Warnings[1], "estimated, not measured in one piece: blocks [") {
		t.Errorf("warnings %q", plan.Warnings)
	}
}

func TestCertifyStoresSustainedRate(t *testing.T) {
	plan := mustSolve(t, oneCPU(2), Options{}).Plan
	if err := MethodOf(plan.Kind).Certify(context.Background(), plan, kind.TestSettings{Runs: 2, Duration: 5 * time.Second}); err != nil {
		t.Fatal(err)
	}
	c := plan.Certificate
	if c == nil || len(c.Models) != 2 || c.LoadFactor <= 0 {
		t.Fatalf("%+v", c)
	}
	for i, m := range c.Models {
		if m.Attainment < 0.99 || m.AttainmentCI[0] > m.Attainment || m.AttainmentCI[1] < m.Attainment ||
			math.Abs(m.RPS-c.LoadFactor*plan.PromiseFor(i).RPS) > 1e-9*m.RPS || m.P99US <= 0 || m.P99US > plan.PromiseFor(i).SLOUS {
			t.Errorf("%+v", m)
		}
		if ci := m.AttainedRPSCI; ci == nil || ci[0] > m.AttainedRPS || ci[1] < m.AttainedRPS || ci[1] > m.RPS*(1+1e-9) || m.AttainedRPS < 0.99*m.RPS {
			t.Errorf("attained %v rps in %v of %v", m.AttainedRPS, ci, m.RPS)
		}
	}
	t.Logf("%+v", c)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	before := *plan
	if err := MethodOf(plan.Kind).Certify(ctx, plan, kind.TestSettings{}); !errors.Is(err, context.Canceled) || plan.Certificate != before.Certificate {
		t.Errorf("cancelled: %v", err)
	}
}
