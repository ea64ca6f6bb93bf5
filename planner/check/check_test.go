package check

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/formats"
	"inferplan/planner"
	"inferplan/solver/highs"
)

func ms(v float64) formats.Micros { return formats.Micros(math.Round(v * 1e6)) }

// world makes documents: two models on two kinds with a network, and one CPU
// pool that only the second model uses.
func documents() planner.Inputs {
	p := &formats.Profile{Format: "inferplan.profile/v1"}
	add := func(model string, blocks []float64, speeds map[string]float64) {
		m := formats.ProfileModel{Model: model, Source: &formats.ModelSource{Path: model, SHA256: strings.Repeat("5", 64)}}
		for b := range blocks {
			blk := formats.Block{Name: fmt.Sprint(model, "/", b), WeightBytes: 1 << 20}
			if b+1 < len(blocks) {
				blk.Cut = []formats.TensorInfo{{Name: fmt.Sprint("t", b), DType: "FP32", Shape: []int64{-1, 9}}}
				blk.CutBytesFP32, blk.CutBytesFP16 = 300_000, 150_000
				blk.FP16 = &formats.FP16Check{Top1Agreement: 1, Samples: 100}
			}
			m.Blocks = append(m.Blocks, blk)
		}
		for _, device := range []string{"H", "L", "cpu-1"} {
			speed := speeds[device]
			for v := 1; v <= 2 && speed > 0; v++ {
				if v == 2 && device != "H" {
					break
				}
				for _, batch := range []int{1, 2, 4} {
					me := formats.Measurement{Device: device, Share: v, Batch: batch, MemoryBytes: 20 << 20}
					for _, t := range blocks {
						me.Blocks = append(me.Blocks, formats.Latency{WallUS: ms(t * speed * float64(v) * float64(batch+1) / 2)})
					}
					me.Whole = &formats.Latency{WallUS: ms(10 * speed)}
					m.Measurements = append(m.Measurements, me)
				}
			}
		}
		p.Models = append(p.Models, m)
	}
	add("resnet", []float64{1, 2, 1, 3}, map[string]float64{"H": 1, "L": 4})
	add("ocr", []float64{2, 2}, map[string]float64{"H": 1, "L": 3, "cpu-1": 4})
	return planner.Inputs{
		Profile: p,
		Cluster: &formats.Cluster{Format: "inferplan.cluster/v1", Pools: []formats.Pool{
			{Device: "H", Count: 2, MaxShares: 2, PerNode: 1, NICGbps: 10, Memory: 64 << 20, USDPerHour: 2},
			{Device: "L", Count: 4, MaxShares: 1, PerNode: 2, NICGbps: 6, Memory: 64 << 20, USDPerHour: 0.5},
			{Device: "cpu-1", Count: 2, Sharing: formats.SharingTime},
		}},
		Workload: &formats.Workload{Format: "inferplan.workload/v1", Models: []formats.WorkloadModel{
			{Model: "resnet", SLO: formats.SLO{Times: 5}, Weight: 0.6, Percentile: "p99"},
			{Model: "ocr", SLO: formats.SLO{Duration: 60 * time.Millisecond}, Weight: 0.4, Percentile: "p99"},
		}},
	}
}

func solve(t testing.TB, in planner.Inputs) *formats.Plan {
	t.Helper()
	res, err := planner.Solve(context.Background(), in, planner.DefaultOptions(), highs.Solver{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return res.Plan
}

// copyOf copies a plan through its document.
func copyOf(t testing.TB, p *formats.Plan) *formats.Plan {
	t.Helper()
	var b bytes.Buffer
	if err := formats.Write(&b, p); err != nil {
		t.Fatal(err)
	}
	out, err := formats.DecodePlan(b.Bytes(), "plan.json")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What the planner writes, the independent arithmetic here accepts: on random
// worlds, with nothing to find.
func TestPlansHold(t *testing.T) {
	solved := 0
	rapid.Check(t, func(t *rapid.T) {
		in := documents()
		for k := range in.Cluster.Pools {
			pool := &in.Cluster.Pools[k]
			pool.Count = rapid.IntRange(1, 9).Draw(t, "count")
			if pool.Sharing == "" {
				pool.PerNode = rapid.IntRange(1, 3).Draw(t, "per node")
				pool.NICGbps = rapid.SampledFrom([]float64{0, 0.5, 10}).Draw(t, "gbps")
				pool.NICEfficiency = rapid.SampledFrom([]float64{0, 0.8}).Draw(t, "efficiency")
			}
		}
		for i := range in.Profile.Models {
			for j := range in.Profile.Models[i].Measurements {
				m := &in.Profile.Models[i].Measurements[j]
				for b := range m.Blocks {
					m.Blocks[b].WallUS = formats.Micros(float64(m.Blocks[b].WallUS) * rapid.Float64Range(0.5, 2).Draw(t, "speed"))
				}
			}
			in.Workload.Models[i].SLO = formats.SLO{Duration: time.Duration(rapid.IntRange(20, 90).Draw(t, "slo")) * time.Millisecond}
		}
		opt := planner.DefaultOptions()
		opt.Margin = rapid.SampledFrom([]float64{0, 0.1, 0.4}).Draw(t, "margin")
		opt.MaxPartitions = rapid.IntRange(1, 3).Draw(t, "partitions")
		opt.GPURounding = rapid.SampledFrom([]string{"slot", "fractional"}).Draw(t, "rounding")
		opt.Gap = 0.1 // any plan will do
		opt.BatchBuild = rapid.SampledFrom([]float64{0, 1.3}).Draw(t, "build")
		opt.UnevenNIC = rapid.Bool().Draw(t, "uneven NIC")
		res, err := planner.Solve(context.Background(), in, opt, highs.Solver{}, nil)
		var inf *planner.InfeasibleError
		if errors.As(err, &inf) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		solved++
		for _, f := range Recompute(res.Plan, in.Profile, in.Cluster, in.Workload) {
			t.Error(f)
		}
		for i, m := range (&world{res.Plan, in.Profile, in.Cluster, in.Workload}).hold().rps {
			if math.Abs(m-res.Plan.Models[i].RPS) > 1e-6*m {
				t.Errorf("%s carries %v, planned %v", res.Plan.Models[i].Model, m, res.Plan.Models[i].RPS)
			}
		}
	})
	t.Logf("%d plans", solved)
	if solved == 0 {
		t.Error("no world had a plan")
	}
}

// Each thing that can go wrong is found and named.
func TestFindings(t *testing.T) {
	made := solve(t, documents())
	for _, c := range []struct {
		name       string
		change     func(*planner.Inputs, *formats.Plan)
		severity   Severity
		constraint string
	}{
		{"pool removed", func(in *planner.Inputs, _ *formats.Plan) { in.Cluster.Pools = in.Cluster.Pools[1:] }, Error, "pool"},
		{"devices removed", func(in *planner.Inputs, _ *formats.Plan) { in.Cluster.Pools[0].Count = 1 }, Error, "devices"},
		{"device not there", func(in *planner.Inputs, _ *formats.Plan) { in.Cluster.Pools[0].Count = 1 }, Error, "placement"},
		{"new pool", func(in *planner.Inputs, _ *formats.Plan) {
			in.Cluster.Pools = append(in.Cluster.Pools, formats.Pool{Device: "X"})
		}, Warning, "pool"},
		{"model gone from the workload", func(in *planner.Inputs, _ *formats.Plan) { in.Workload.Models = in.Workload.Models[:1] }, Error, "model"},
		{"model gone from the profile", func(in *planner.Inputs, _ *formats.Plan) { in.Profile.Models = in.Profile.Models[:1] }, Error, "model"},
		{"model new in the workload", func(in *planner.Inputs, _ *formats.Plan) {
			in.Workload.Models = append(in.Workload.Models, formats.WorkloadModel{Model: "new"})
		}, Error, "model"},
		{"other model file", func(in *planner.Inputs, _ *formats.Plan) {
			in.Profile.Models[0].Source.SHA256 = strings.Repeat("6", 64)
		}, Error, "source"},
		{"other blocks", func(in *planner.Inputs, _ *formats.Plan) {
			in.Profile.Models[0].Blocks = in.Profile.Models[0].Blocks[:3]
		}, Error, "blocks"},
		{"SLO tightened", func(in *planner.Inputs, _ *formats.Plan) {
			in.Workload.Models[1].SLO = formats.SLO{Duration: 8 * time.Millisecond}
		}, Error, "slo"},
		{"SLO changed", func(in *planner.Inputs, _ *formats.Plan) {
			in.Workload.Models[1].SLO = formats.SLO{Duration: 61 * time.Millisecond}
		}, Warning, "slo"},
		{"weight changed", func(in *planner.Inputs, _ *formats.Plan) { in.Workload.Models[1].Weight = 9 }, Warning, "weight"},
		{"floor", func(in *planner.Inputs, _ *formats.Plan) { in.Workload.Models[1].MinRPS = 1e6 }, Error, "min_rps"},
		{"slower", func(in *planner.Inputs, _ *formats.Plan) { slower(in.Profile, 0, -1, 1.2) }, Warning, "latency"},
		{"much slower", func(in *planner.Inputs, _ *formats.Plan) { slower(in.Profile, 0, -1, 20) }, Error, "slo"},
		{"not measured any more", func(in *planner.Inputs, _ *formats.Plan) {
			for i := range in.Profile.Models {
				in.Profile.Models[i].Measurements = slices.DeleteFunc(in.Profile.Models[i].Measurements, func(m formats.Measurement) bool { return m.Device == "H" })
			}
		}, Error, "measurement"},
		{"less memory", func(in *planner.Inputs, _ *formats.Plan) { in.Cluster.Pools[0].Memory = 1 << 20 }, Error, "memory"},
		{"shares gone", func(in *planner.Inputs, p *formats.Plan) { p.Models[0].Pipelines[0].Stages[0].Share = 7 }, Error, "share"},
		{"rate that the pipelines do not have", func(_ *planner.Inputs, p *formats.Plan) { p.Models[0].RPS *= 1.1 }, Error, "rps"},
		{"value above its bound", func(_ *planner.Inputs, p *formats.Plan) { *p.Objective.Bound = p.Objective.Value / 2 }, Error, "objective"},
		{"oversubscribed", func(_ *planner.Inputs, p *formats.Plan) {
			for i := range p.Models {
				for _, pl := range p.Models[i].Pipelines {
					for j := range pl.Stages {
						for k := range pl.Stages[j].Placement {
							pl.Stages[j].Placement[k].First = 0
						}
					}
				}
			}
		}, Error, "placement"},
		{"gap in the blocks", func(_ *planner.Inputs, p *formats.Plan) { p.Models[0].Pipelines[0].Stages[0].Blocks[0] = 1 }, Error, "blocks"},
		{"another kind", func(_ *planner.Inputs, p *formats.Plan) { p.Kind = formats.PlanQueue }, Error, "kind"},
		{"turns no more", func(in *planner.Inputs, _ *formats.Plan) { in.Cluster.Pools[2].Sharing = formats.SharingExclusive }, Error, "sharing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := documents()
			plan := copyOf(t, made)
			if before := Recompute(plan, in.Profile, in.Cluster, in.Workload); len(before) > 0 {
				t.Fatalf("found before anything changed: %v", before)
			}
			c.change(&in, plan)
			found := Recompute(plan, in.Profile, in.Cluster, in.Workload)
			i := slices.IndexFunc(found, func(f Finding) bool { return f.Severity == c.severity && f.Constraint == c.constraint })
			if i < 0 {
				t.Fatalf("no %s about %s in %v", c.severity, c.constraint, found)
			}
			if f := found[i]; f.Message == "" || f.Where == "" || strings.Contains(f.String(), "\n") {
				t.Errorf("%+v", f)
			}
		})
	}
}

// slower multiplies the time of a block (-1: all) of a model everywhere.
func slower(p *formats.Profile, model, block int, factor float64) {
	for j := range p.Models[model].Measurements {
		m := &p.Models[model].Measurements[j]
		for b := range m.Blocks {
			if block < 0 || b == block {
				m.Blocks[b].WallUS = formats.Micros(math.Round(float64(m.Blocks[b].WallUS) * factor))
			}
		}
	}
}

func gate(t *testing.T, in GateInput) *Result {
	t.Helper()
	in.Solver = highs.Solver{}
	r, err := Gate(context.Background(), in)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
	if !strings.HasPrefix(r.Text()[0], r.Verdict+": ") {
		t.Errorf("%q", r.Text())
	}
	return r
}

func TestGate(t *testing.T) {
	today := documents()
	plan := copyOf(t, solve(t, today))
	says := func(r *Result, parts ...string) {
		t.Helper()
		text := strings.Join(r.Text(), "\n")
		for _, p := range parts {
			if !strings.Contains(text, p) {
				t.Errorf("%q is not in\n%s", p, text)
			}
		}
	}

	r := gate(t, GateInput{Plan: plan, Today: today})
	if r.Verdict != Pass || len(r.Findings) > 0 || len(r.Blocks) > 0 || len(r.Metrics) < 6 {
		t.Errorf("an unchanged world: %s", strings.Join(r.Text(), "\n"))
	}

	for block := range 4 {
		worse := documents()
		slower(worse.Profile, 0, block, 1.05)
		r = gate(t, GateInput{Plan: plan, Today: worse})
		if r.Verdict != Fail || len(r.Blocks) == 0 || slices.ContainsFunc(r.Blocks, func(b BlockChange) bool { return b.Block != block || b.Model != "resnet" }) {
			t.Errorf("block %d: %s", block, strings.Join(r.Text(), "\n"))
		}
		says(r, fmt.Sprintf("block %d (resnet/%d) of resnet", block, block), "+5.0 %")
	}

	// With the old profile at hand, a plan without block times names it too.
	worse := documents()
	slower(worse.Profile, 1, 1, 1.05)
	bare := copyOf(t, plan)
	for i := range bare.Models {
		for j := range bare.Models[i].Pipelines {
			for k := range bare.Models[i].Pipelines[j].Stages {
				bare.Models[i].Pipelines[j].Stages[k].BlockUS = nil
			}
		}
	}
	r = gate(t, GateInput{Plan: bare, Today: worse, OldProfile: today.Profile})
	says(r, "fail: ", "block 1 (ocr/1) of ocr")

	// Tolerances are the caller's.
	wide, err := ParseTolerances("rps=10%, p99=10%,cost=1%,block=10%")
	if err != nil {
		t.Fatal(err)
	}
	if r = gate(t, GateInput{Plan: plan, Today: worse, Tolerances: wide}); r.Verdict != Pass {
		t.Errorf("within tolerance: %s", strings.Join(r.Text(), "\n"))
	}

	faster := documents()
	slower(faster.Profile, 0, -1, 0.9)
	if r = gate(t, GateInput{Plan: plan, Today: faster}); r.Verdict != Pass {
		t.Errorf("a faster world: %s", strings.Join(r.Text(), "\n"))
	}

	removed := documents()
	removed.Cluster.Pools = removed.Cluster.Pools[1:]
	r = gate(t, GateInput{Plan: plan, Today: removed})
	says(r, "fail: ", "error: pool: the cluster has no H any more")

	tight := documents()
	tight.Workload.Models[0].SLO = formats.SLO{Duration: time.Millisecond}
	r = gate(t, GateInput{Plan: plan, Today: tight})
	says(r, "fail: ", "error: slo: ", "error: infeasible: ")

	dear := documents()
	dear.Cluster.Pools[0].USDPerHour *= 1.5
	r = gate(t, GateInput{Plan: plan, Today: dear})
	says(r, "fail: ", "regression: cost of devices used")

	// A plan in place of a better one.
	poor := documents()
	poor.Cluster.Pools[0].Count = 1
	poorPlan := copyOf(t, solve(t, poor))
	r = gate(t, GateInput{Plan: poorPlan, Against: plan, Today: today})
	says(r, "fail: ", "regression: rps of resnet")

	// Documents that the plan was made without come from the plan.
	r = gate(t, GateInput{Plan: plan, Today: planner.Inputs{Profile: today.Profile}})
	if r.Verdict != Pass {
		t.Errorf("without cluster and workload: %s", strings.Join(r.Text(), "\n"))
	}

	if r, err := Gate(context.Background(), GateInput{Plan: plan, Today: today}); err != nil || r.Verdict != Pass || len(r.Notes) != 1 {
		t.Errorf("without a solver: %+v, %v", r, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Gate(ctx, GateInput{Plan: plan, Today: today, Solver: highs.Solver{}}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestParseTolerances(t *testing.T) {
	got, err := ParseTolerances("rps=1%,p99=0.02")
	if err != nil || len(got) != 2 || got["rps"] != 0.01 || got["p99"] != 0.02 {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"rps", "rp=1%", "rps=x", "rps=-1%", "rps=1%,rps=2%", "rps=NaN"} {
		if _, err := ParseTolerances(bad); formats.Findings(err) == nil {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// No document that decodes may make the check panic.
func FuzzRecompute(f *testing.F) {
	in := documents()
	var b bytes.Buffer
	plan := solve(f, in)
	if err := formats.Write(&b, plan); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(`{"format":"inferplan.plan/v1","kind":"pool"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := formats.DecodePlan(data, "plan.json")
		if err != nil {
			return
		}
		Recompute(p, in.Profile, in.Cluster, in.Workload)
		if _, err := Gate(t.Context(), GateInput{Plan: p, Today: in}); err != nil {
			return
		}
	})
}

// A check that is interrupted while it plans again has no verdict: what the
// solver holds at that moment says nothing about what is reachable.
func TestGateInterrupted(t *testing.T) {
	today := documents()
	plan := copyOf(t, solve(t, today))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r, err := Gate(ctx, GateInput{Plan: plan, Today: today, Solver: highs.Solver{}})
	if r != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("found %v, %v, expected no verdict and context.Canceled", r, err)
	}
}
