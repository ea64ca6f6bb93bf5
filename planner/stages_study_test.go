package planner

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/bench/gear/published"
	"inferplan/cputime"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/importer/blocks"
	"inferplan/formats/importer/records"
	"inferplan/solver/highs"
)

// recognition pairs four recognition DNNs, measured block by block on four kinds of
// GPUs (PPipe's bundle), with the answers of four services to the same faces
// (FrugalML, ExpW), by rising accuracy. The pairing is ours: what the DNNs themselves
// answer was never recorded.
func recognition(t testing.TB) *formats.Profile {
	names := []string{"googlenet", "repvgg-b3", "wide_resnet101_2", "efficientnet-b8"}
	dir := published.Dir()
	open := func(name string) *os.File {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Skipf("the study needs PPipe's bundle and FrugalML's answers (INFERPLAN_DATA): %v", err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	p, err := blocks.Read(open("ppipe/block_latency.csv"), "block_latency.csv", open("ppipe/cut_sizes.csv"), "cut_sizes.csv", names, "PPipe")
	if err != nil {
		t.Fatal(err)
	}
	services := []string{"CNN", "FacePP", "Google", "Microsoft"}
	rec, err := records.Read(open("cascade/frugalml_expw_60pct.csv.gz"), "expw", records.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for k, s := range services {
		at := slices.IndexFunc(rec.Models, func(m formats.ModelRecords) bool { return strings.Contains(m.Model, s) })
		if at < 0 {
			t.Fatalf("no service %s among %d", s, len(rec.Models))
		}
		rec.Models[at].Model = names[k]
	}
	p.Records = []formats.Records{*rec}
	return p
}

// capacity is the rate that a cluster holds of a whole model.
func capacity(p *formats.Profile, c *formats.Cluster, model string) float64 {
	at := slices.IndexFunc(p.Models, func(m formats.ProfileModel) bool { return m.Model == model })
	rate := 0.0
	for _, pool := range c.Pools {
		best := 0.0
		for _, ms := range p.Models[at].Measurements {
			if ms.Device == pool.Device && ms.Share <= 1 {
				took := time.Duration(0)
				for _, b := range ms.Blocks {
					took += b.WallUS.D()
				}
				best = max(best, float64(ms.Batch)/took.Seconds())
			}
		}
		rate += float64(pool.Count) * best
	}
	return rate
}

// What members in stages bring on clusters of new and old GPUs.
func TestStagesStudy(t *testing.T) {
	if os.Getenv("INFERPLAN_LONG") == "" {
		t.Skip("a study of minutes: INFERPLAN_LONG=1 runs it")
	}
	if err := highs.Available(); err != nil {
		t.Skipf("gears on several kinds of devices need HiGHS: %v", err)
	}
	profile := recognition(t)
	for _, c := range []struct {
		fresh, old string
		a, b       int
		gbps       float64
	}{{"L4", "P4", 4, 12, 6}, {"L4", "T4", 4, 12, 10}, {"V100", "P4", 4, 12, 6}, {"V100", "T4", 4, 12, 10}} {
		cluster := &formats.Cluster{Format: "inferplan.cluster/v1", Pools: []formats.Pool{
			{Device: c.fresh, Count: c.a, NICGbps: c.gbps}, {Device: c.old, Count: c.b, NICGbps: c.gbps}}}
		for _, slo := range []float64{3, 5, 10} {
			for _, times := range []float64{.5, 1, 2} {
				in := Inputs{Profile: profile, Cluster: cluster, Workload: &formats.Workload{Format: "inferplan.workload/v1", Section: &formats.Cascade{
					Family: []string{"googlenet", "repvgg-b3", "wide_resnet101_2", "efficientnet-b8"}, SLO: formats.CascadeSLO{Latency: document.SLO{Factor: slo}, Percentile: "p95"},
					QPS: formats.CascadeQPS{Max: math.Round(times * capacity(profile, cluster, "efficientnet-b8")), Ranges: 10, Distribution: "uniform"}}}}
				line := fmt.Sprintf("| %d %s + %d %s | %gx | %g |", c.a, c.fresh, c.b, c.old, slo, formats.CascadeOf(in.Workload).QPS.Max)
				for _, partitions := range []int{1, 2} {
					var opt Options
					opt.Set("max-partitions", partitions)
					start := cputime.Used()
					res, err := Solve(context.Background(), in, opt, highs.Solver{}, nil)
					if err != nil {
						line += fmt.Sprintf(" %v |", err)
						continue
					}
					p := res.Plan
					line += fmt.Sprintf(" %.4f / %.4f, %.4f | %.1f s | %s |", p.Objective.Value, *p.Objective.Bound, formats.GearOf(p).Gears[9].Accuracy, (cputime.Used() - start).Seconds(), strings.Join(stagesOf(p), "; "))
				}
				t.Log(line)
			}
		}
	}
}

// What the other goals come to on the same clusters, members in stages allowed.
func TestGoalsStudy(t *testing.T) {
	if os.Getenv("INFERPLAN_LONG") == "" {
		t.Skip("a study of minutes: INFERPLAN_LONG=1 runs it")
	}
	if err := highs.Available(); err != nil {
		t.Skipf("gears on several kinds of devices need HiGHS: %v", err)
	}
	profile := recognition(t)
	for _, c := range []struct {
		fresh, old string
		gbps       float64
	}{{"L4", "P4", 6}, {"V100", "T4", 10}} {
		cluster := &formats.Cluster{Format: "inferplan.cluster/v1", Pools: []formats.Pool{
			{Device: c.fresh, Count: 4, NICGbps: c.gbps, USDPerHour: 1}, {Device: c.old, Count: 12, NICGbps: c.gbps, USDPerHour: .4}}}
		for _, goal := range []struct {
			objective string
			slo       formats.CascadeSLO
		}{
			{"accuracy", formats.CascadeSLO{Latency: document.SLO{Factor: 5}}},
			{"accuracy", formats.CascadeSLO{Latency: document.SLO{Factor: 5}, Scope: formats.ScopeRequests}},
			{"latency", formats.CascadeSLO{Accuracy: .7}},
			{"gpus", formats.CascadeSLO{Latency: document.SLO{Factor: 5}, Accuracy: .7}},
			{"cost", formats.CascadeSLO{Latency: document.SLO{Factor: 5}, Accuracy: .7}},
			{"cost", formats.CascadeSLO{Latency: document.SLO{Factor: 5}, Accuracy: .7, Scope: formats.ScopeRequests}},
		} {
			goal.slo.Percentile = "p95"
			in := Inputs{Profile: profile, Cluster: cluster, Workload: &formats.Workload{Format: "inferplan.workload/v1", Section: &formats.Cascade{
				Family: []string{"googlenet", "repvgg-b3", "wide_resnet101_2", "efficientnet-b8"}, SLO: goal.slo,
				QPS: formats.CascadeQPS{Max: math.Round(capacity(profile, cluster, "efficientnet-b8")), Ranges: 10, Distribution: "uniform"}}}}
			var opt Options
			opt.Set("objective", goal.objective)
			start := cputime.Used()
			line := fmt.Sprintf("| 4 %s, 12 %s | %s %s |", c.fresh, c.old, goal.objective, goal.slo.Scope)
			res, err := Solve(context.Background(), in, opt, highs.Solver{}, nil)
			if err != nil {
				t.Errorf("%s %v", line, err)
				continue
			}
			o := res.Plan.Objective
			var used []string
			for _, p := range cluster.Pools {
				n := 0
				for i := range res.Plan.Deployment {
					for _, l := range res.Plan.Deployment[i].Pipelines {
						for _, s := range l.Stages {
							for _, at := range s.Placement {
								if s.Device == p.Device {
									n = max(n, at.FirstDevice+at.Replicas)
								}
							}
						}
					}
				}
				used = append(used, fmt.Sprintf("%d %s", n, p.Device))
			}
			t.Logf("%s %.5g / %.5g | %s | %.1f s | %s |", line, o.Value, *o.Bound, strings.Join(used, ", "), (cputime.Used() - start).Seconds(), strings.Join(stagesOf(res.Plan), "; "))
		}
	}
}
