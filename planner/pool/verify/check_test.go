package verify_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/check"
	"inferplan/planner/kind"
	"inferplan/planner/pool/verify"
	"inferplan/planner/recompute"
	"inferplan/solver/highs"
	"inferplan/testkit/pooltest"
)

func solve(t testing.TB, in planner.Inputs) *formats.Plan {
	t.Helper()
	res, err := planner.Solve(context.Background(), in, planner.Options{}, highs.Solver{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return res.Plan
}

// copyOf copies a plan through its document.
func copyOf(t testing.TB, p *formats.Plan) *formats.Plan {
	t.Helper()
	var b bytes.Buffer
	if err := document.Write(&b, p); err != nil {
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
		in := pooltest.Documents()
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
					m.Blocks[b].WallUS = document.Micros(float64(m.Blocks[b].WallUS) * rapid.Float64Range(0.5, 2).Draw(t, "speed"))
				}
				drawPieces(t, m)
			}
			formats.ModelsOf(in.Workload)[i].SLO = document.SLO{Duration: time.Duration(rapid.IntRange(20, 90).Draw(t, "slo")) * time.Millisecond}
		}
		opt := planner.Options{Values: map[string]any{
			"margin":         rapid.SampledFrom([]float64{0, 0.1, 0.4}).Draw(t, "margin"),
			"max-partitions": rapid.IntRange(1, 3).Draw(t, "partitions"),
			"gpu-rounding":   rapid.SampledFrom([]string{"slot", "fractional"}).Draw(t, "rounding"),
			"gap":            0.3, // any plan will do
			"batch-build":    rapid.SampledFrom([]float64{0, 1.3}).Draw(t, "build"),
			"uneven-nic":     rapid.Bool().Draw(t, "uneven NIC"),
		}}
		res, err := planner.Solve(context.Background(), in, opt, highs.Solver{}, nil)
		var inf *planner.InfeasibleError
		if errors.As(err, &inf) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		solved++
		for _, f := range check.Recompute(res.Plan, in.Profile, in.Cluster, in.Workload) {
			t.Error(f)
		}
		labelled(t, res.Plan, in.Profile)
		today := &kind.CheckInput{Plan: res.Plan, Promised: res.Plan, Profile: in.Profile, Cluster: in.Cluster, Workload: in.Workload}
		figures, note, err := verify.Figures(context.Background(), today)
		if err != nil || note != "" {
			t.Fatalf("%q, %v", note, err)
		}
		for _, f := range figures {
			if f.Metric == "rps" && f.Unit == "rps" && math.Abs(f.New-f.Old) > 1e-6*f.New {
				t.Errorf("%s carries %v, planned %v", f.Subject, f.New, f.Old)
			}
		}
	})
	t.Logf("%d plans", solved)
	if solved == 0 {
		t.Error("no world had a plan")
	}
}

// labelled checks that the stages with estimated times are those that the documents
// show to be.
func labelled(t interface {
	Helper()
	Errorf(string, ...any)
}, p *formats.Plan, profile *formats.Profile) {
	t.Helper()
	for _, d := range p.Deployment {
		at := slices.IndexFunc(profile.Models, func(m formats.ProfileModel) bool { return m.Model == d.Model })
		for _, pl := range d.Pipelines {
			for _, s := range pl.Stages {
				want := false
				for b := 1; b <= pl.Batch; b++ {
					want = want || estimated(recompute.MeasurementFor(&profile.Models[at], s.Device, s.Share, b), s.Blocks[0], s.Blocks[1])
				}
				if s.Estimated != want {
					t.Errorf("blocks %v of %s on %s at batch %d: estimated is %v, the profile says %v", s.Blocks, d.Model, s.Device, pl.Batch, s.Estimated, want)
				}
			}
		}
	}
	said := slices.ContainsFunc(p.Warnings, func(w string) bool { return strings.Contains(w, "--ranges used") })
	some := slices.ContainsFunc(p.Deployment, func(d formats.Deployed) bool {
		return slices.ContainsFunc(d.Pipelines, func(pl formats.Pipeline) bool {
			return slices.ContainsFunc(pl.Stages, func(s formats.Stage) bool { return s.Estimated })
		})
	})
	if said != some {
		t.Errorf("estimated stages %v, the warnings are %q", some, p.Warnings)
	}
}

// drawPieces draws what a measurement holds of blocks in one piece.
func drawPieces(t *rapid.T, m *formats.Measurement) {
	n := len(m.Blocks)
	took := func(first, last int) formats.Latency {
		sum := document.Micros(0)
		for _, b := range m.Blocks[first:last] {
			sum += b.WallUS
		}
		return formats.Latency{WallUS: document.Micros(float64(sum) * rapid.Float64Range(0.6, 1.1).Draw(t, "of the blocks"))}
	}
	if m.Batch > 1 && rapid.Bool().Draw(t, "no whole") {
		m.WholeModel = nil
	} else if whole := took(0, n); rapid.Bool().Draw(t, "whole") {
		m.WholeModel = &whole
	}
	for i := range n {
		for j := i + 2; j <= n && j-i < n; j++ {
			if rapid.IntRange(0, 2).Draw(t, "measured") == 0 {
				m.Ranges = append(m.Ranges, formats.RangeLatency{Blocks: [2]int{i, j}, Latency: took(i, j)})
			}
		}
	}
}

// Each thing that can go wrong is found and named.
func TestFindings(t *testing.T) {
	made := solve(t, pooltest.Documents())
	for _, c := range []struct {
		name       string
		change     func(*planner.Inputs, *formats.Plan)
		severity   kind.FindingSeverity
		constraint string
	}{
		{"pool removed", func(in *planner.Inputs, _ *formats.Plan) { in.Cluster.Pools = in.Cluster.Pools[1:] }, kind.Error, "pool"},
		{"devices removed", func(in *planner.Inputs, _ *formats.Plan) { in.Cluster.Pools[0].Count = 1 }, kind.Error, "devices"},
		{"device not there", func(in *planner.Inputs, _ *formats.Plan) { in.Cluster.Pools[0].Count = 1 }, kind.Error, "placement"},
		{"new pool", func(in *planner.Inputs, _ *formats.Plan) {
			in.Cluster.Pools = append(in.Cluster.Pools, formats.Pool{Device: "X"})
		}, kind.Warning, "pool"},
		{"model gone from the workload", func(in *planner.Inputs, _ *formats.Plan) { in.Workload.Section = formats.ModelsOf(in.Workload)[:1] }, kind.Error, "model"},
		{"model gone from the profile", func(in *planner.Inputs, _ *formats.Plan) { in.Profile.Models = in.Profile.Models[:1] }, kind.Error, "model"},
		{"model new in the workload", func(in *planner.Inputs, _ *formats.Plan) {
			in.Workload.Section = append(formats.ModelsOf(in.Workload), formats.WorkloadModel{Model: "new"})
		}, kind.Error, "model"},
		{"other model file", func(in *planner.Inputs, _ *formats.Plan) {
			in.Profile.Models[0].Source.SHA256 = strings.Repeat("6", 64)
		}, kind.Error, "source"},
		{"other blocks", func(in *planner.Inputs, _ *formats.Plan) {
			in.Profile.Models[0].Blocks = in.Profile.Models[0].Blocks[:3]
		}, kind.Error, "blocks"},
		{"SLO tightened", func(in *planner.Inputs, _ *formats.Plan) {
			formats.ModelsOf(in.Workload)[1].SLO = document.SLO{Duration: 8 * time.Millisecond}
		}, kind.Error, "slo"},
		{"SLO changed", func(in *planner.Inputs, _ *formats.Plan) {
			formats.ModelsOf(in.Workload)[1].SLO = document.SLO{Duration: 61 * time.Millisecond}
		}, kind.Warning, "slo"},
		{"weight changed", func(in *planner.Inputs, _ *formats.Plan) { formats.ModelsOf(in.Workload)[1].Weight = 9 }, kind.Warning, "weight"},
		{"floor", func(in *planner.Inputs, _ *formats.Plan) { formats.ModelsOf(in.Workload)[1].MinRPS = 1e6 }, kind.Error, "min_rps"},
		{"slower", func(in *planner.Inputs, _ *formats.Plan) { pooltest.Slower(in.Profile, 0, -1, 1.2) }, kind.Warning, "latency"},
		{"much slower", func(in *planner.Inputs, _ *formats.Plan) { pooltest.Slower(in.Profile, 0, -1, 20) }, kind.Error, "slo"},
		{"not measured any more", func(in *planner.Inputs, _ *formats.Plan) {
			for i := range in.Profile.Models {
				in.Profile.Models[i].Measurements = slices.DeleteFunc(in.Profile.Models[i].Measurements, func(m formats.Measurement) bool { return m.Device == "H" })
			}
		}, kind.Error, "measurement"},
		{"less memory", func(in *planner.Inputs, _ *formats.Plan) { in.Cluster.Pools[0].Memory = 1 << 20 }, kind.Error, "memory"},
		{"shares gone", func(in *planner.Inputs, p *formats.Plan) { p.Deployment[0].Pipelines[0].Stages[0].Share = 7 }, kind.Error, "share"},
		{"rate that the pipelines do not have", func(_ *planner.Inputs, p *formats.Plan) { formats.PoolOf(p).Models[0].RPS *= 1.1 }, kind.Error, "rps"},
		{"value above its bound", func(_ *planner.Inputs, p *formats.Plan) { *p.Objective.Bound = p.Objective.Value / 2 }, kind.Error, "objective"},
		{"oversubscribed", func(_ *planner.Inputs, p *formats.Plan) {
			for i := range p.Deployment {
				for _, pl := range p.Deployment[i].Pipelines {
					for j := range pl.Stages {
						for k := range pl.Stages[j].Placement {
							pl.Stages[j].Placement[k].FirstDevice = 0
						}
					}
				}
			}
		}, kind.Error, "placement"},
		{"another margin than the options'", func(_ *planner.Inputs, p *formats.Plan) { formats.PoolOf(p).Models[1].MarginUS /= 2 }, kind.Error, "margin"},
		{"no margin", func(_ *planner.Inputs, p *formats.Plan) { formats.PoolOf(p).Models[0].MarginUS = 0 }, kind.Error, "margin"},
		{"understated cut", func(_ *planner.Inputs, p *formats.Plan) { firstCut(p).Bytes /= 2 }, kind.Error, "cut"},
		{"cut of nothing", func(_ *planner.Inputs, p *formats.Plan) { firstCut(p).Bytes = 0 }, kind.Error, "cut"},
		{"overstated cut", func(_ *planner.Inputs, p *formats.Plan) { firstCut(p).Bytes *= 2 }, kind.Warning, "cut"},
		{"gap in the blocks", func(_ *planner.Inputs, p *formats.Plan) { p.Deployment[0].Pipelines[0].Stages[0].Blocks[0] = 1 }, kind.Error, "blocks"},
		{"another kind", func(_ *planner.Inputs, p *formats.Plan) { p.Kind = "other" }, kind.Error, "kind"},
		{"turns no more", func(in *planner.Inputs, _ *formats.Plan) { in.Cluster.Pools[2].Sharing = formats.SharingExclusive }, kind.Error, "sharing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := pooltest.Documents()
			plan := copyOf(t, made)
			if before := check.Recompute(plan, in.Profile, in.Cluster, in.Workload); len(before) > 0 {
				t.Fatalf("found before anything changed: %v", before)
			}
			c.change(&in, plan)
			found := check.Recompute(plan, in.Profile, in.Cluster, in.Workload)
			i := slices.IndexFunc(found, func(f kind.Finding) bool { return f.Severity == c.severity && f.Constraint == c.constraint })
			if i < 0 {
				t.Fatalf("no %s about %s in %v", c.severity, c.constraint, found)
			}
			if f := found[i]; f.Message == "" || f.Path == "" || strings.Contains(f.String(), "\n") {
				t.Errorf("%+v", f)
			}
		})
	}
}

// Where nothing crosses, a model may be cut, in no time.
func TestCutOfNothing(t *testing.T) {
	in := pooltest.Documents()
	for i := range in.Profile.Models {
		for b := range in.Profile.Models[i].Blocks {
			if blk := &in.Profile.Models[i].Blocks[b]; blk.CutBytesFP32.IsKnown() {
				blk.CutBytesFP32, blk.CutBytesFP16 = 0, formats.NoBytes
			}
		}
	}
	p := solve(t, in)
	for _, w := range p.Warnings {
		if strings.Contains(w, "no cut") {
			t.Error(w)
		}
	}
	if c := firstCut(p); c.DType != "FP16" || c.Bytes != 0 || len(c.TransferUS) == 0 || slices.Max(c.TransferUS) != 0 {
		t.Errorf("crossing %+v, expected one of no bytes and no time", c)
	}
	for _, f := range check.Recompute(p, in.Profile, in.Cluster, in.Workload) {
		t.Error(f)
	}
	firstCut(p).Bytes = 1
	if found := check.Recompute(p, in.Profile, in.Cluster, in.Workload); !slices.ContainsFunc(found, func(f kind.Finding) bool { return f.Constraint == "cut" && f.Severity == kind.Warning }) {
		t.Errorf("a cut of a byte where nothing crosses: %v", found)
	}
}

// firstCut is the first crossing of a plan.
func firstCut(p *formats.Plan) *formats.Cut {
	for i := range p.Deployment {
		for _, pl := range p.Deployment[i].Pipelines {
			if c := pl.Stages[0].Cut; c != nil {
				return c
			}
		}
	}
	return &formats.Cut{}
}

// estimated tells whether recompute.RangeTime is an estimate.
func estimated(ms *formats.Measurement, first, last int) bool {
	if last-first < 2 || ms.WholeModel == nil && len(ms.Ranges) == 0 || ms.WholeModel != nil && last-first == len(ms.Blocks) {
		return false
	}
	for _, r := range ms.Ranges {
		if r.Blocks == [2]int{first, last} {
			return false
		}
	}
	return true
}
