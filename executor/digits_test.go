package executor

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/importer/samples"
	"inferplan/formats/report"
	"inferplan/formats/seeded"
	"inferplan/planner"
	"inferplan/policy"
	"inferplan/policy/policies"
	"inferplan/sim"
	"inferplan/solver/highs"
)

// familyEnv names a folder with models/digits-*.onnx, digits.csv.gz and a
// profile.json with their records (docs/benchmarks.md, digits). runsEnv says
// how many of the fifteen runs are made.
const (
	familyEnv = "INFERPLAN_DIGITS_FAMILY"
	runsEnv   = "INFERPLAN_DIGITS_RUNS"
)

// CascadeServe's figure 13 on the digits family: plans for five peak rates, on
// a steady, a spiky and a falling trace, served for real. The accuracy of the
// answers lies within the paired interval of what was planned, and the
// simulator, fed with the recorded service times, shows the p95 that was served.
func TestDigitsServedAsPlanned(t *testing.T) {
	dir := os.Getenv(familyEnv)
	if dir == "" {
		t.Skipf("set %s to a folder with the digits family and its profile; docs/benchmarks.md tells how to make it", familyEnv)
	}
	withORT(t)
	profile, err := formats.ReadProfile(filepath.Join(dir, "profile.json"))
	if err != nil {
		t.Fatal(err)
	}
	set, err := samples.ReadFile(filepath.Join(dir, "digits.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	most := 15
	if n, err := strconv.Atoi(os.Getenv(runsEnv)); err == nil {
		most = n
	}
	traces := [][]float64{{.5, .5, .5, .5, .5, .5}, {.2, .2, .9, .9, .2, .2}, {.9, .7, .5, .3, .2, .1}}
	near, runs := 0, 0
	for _, peak := range []float64{100, 200, 300, 400, 500} {
		plan := digitsPlan(t, profile, peak)
		for k, shape := range traces {
			if runs == most {
				break
			}
			runs++
			rng := seeded.New(uint64(runs), "digits/trace")
			var list []arrivals.Request
			at := 0.0
			for sec := 0; sec < len(shape); {
				if at += rng.ExpFloat64() / (shape[sec] * peak); at >= float64(sec+1) {
					sec++
					at = float64(sec)
					continue
				}
				list = append(list, arrivals.Request{At: time.Duration(at * 1e9)})
			}
			got := serveDigits(t, plan, dir, set, list)
			shown := simulateDigits(t, plan, list, got.service)
			off := shown.Seconds()/got.p95.Seconds() - 1
			if math.Abs(off) <= .1 {
				near++
			}
			t.Logf("peak %.0f, trace %d: %d requests, accuracy %+.4f against the plan (95 %%: ±%.4f); p95 served %v, simulated %v (%+.1f %%); %d switches",
				peak, k, len(list), got.diff, got.half, got.p95, shown, 100*off, got.switches)
			if got.lost > 0 || math.Abs(got.diff) > got.half {
				t.Errorf("peak %.0f, trace %d: %d lost, accuracy %+.4f against the plan, interval ±%.4f", peak, k, got.lost, got.diff, got.half)
			}
		}
	}
	t.Logf("p95 within 10 %% in %d of %d runs", near, runs)
	if runs == 15 && near < 13 {
		t.Errorf("p95 within 10 %% in %d of 15 runs, expected 13", near)
	}
}

func digitsPlan(t *testing.T, profile *formats.Profile, peak float64) *formats.Plan {
	t.Helper()
	w := &formats.Workload{Format: "inferplan.workload/v1", Cascade: &formats.Cascade{
		Family: []string{"digits-4", "digits-16", "digits-64", "digits-256", "digits-conv"}, Grid: 10,
		SLO: formats.CascadeSLO{Percentile: "p95"}, QPS: formats.CascadeQPS{Max: peak, Ranges: 4, Distribution: "uniform"}}}
	slo, err := formats.ParseSLO("100ms")
	if err != nil {
		t.Fatal(err)
	}
	w.Cascade.SLO.Latency = slo
	res, err := planner.Solve(context.Background(), planner.Inputs{Profile: profile, Workload: w,
		Cluster: &formats.Cluster{Format: "inferplan.cluster/v1", Pools: []formats.Pool{{Device: "cpu-1", Count: 1, Sharing: formats.SharingTime}}}},
		planner.Options{Method: planner.MethodGear, Seed: 1}, highs.Solver{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return res.Plan
}

type digitsRun struct {
	diff, half float64 // accuracy less planned, by request, with its interval
	p95        time.Duration
	lost       int
	switches   int64
	service    *Service
}

func serveDigits(t *testing.T, plan *formats.Plan, dir string, set *samples.Set, list []arrivals.Request) digitsRun {
	t.Helper()
	o := onnxOptions(filepath.Join(dir, "models"))
	o.RecordService = true
	x := open(t, plan, o)
	defer x.Close()
	var mu sync.Mutex
	var took []time.Duration
	var paired []float64
	var run digitsRun
	var wg sync.WaitGroup
	pick := seeded.New(1, "digits/samples")
	start := time.Now()
	for _, r := range list {
		s := pick.IntN(len(set.Labels))
		time.Sleep(time.Until(start.Add(r.At)))
		wg.Go(func() {
			req := sample(x, 1)
			for i, v := range set.Sample(s) {
				binary.LittleEndian.PutUint32(req.Inputs[0].Data[4*i:], math.Float32bits(v))
			}
			req.Received = time.Now()
			resp, err := x.Infer(context.Background(), req)
			end := time.Since(req.Received)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				run.lost++
				return
			}
			scores := floats(resp.Outputs[0].Data)
			d := -plan.Gear.Gears[resp.Params["gear"].(int64)].Accuracy
			if slices.Index(scores, slices.Max(scores)) == set.Labels[s] {
				d++
			}
			paired, took = append(paired, d), append(took, end)
			resp.Release()
		})
	}
	wg.Wait()
	sum, square := 0.0, 0.0
	for _, d := range paired {
		sum += d
		square += d * d
	}
	n := float64(len(paired))
	run.diff = sum / n
	run.half = 1.96 * math.Sqrt((square/n-run.diff*run.diff)/n)
	slices.Sort(took)
	run.p95 = report.Percentile(took, .95)
	run.switches, run.service = x.Report().Gears.Switches, x.Service()
	return run
}

func simulateDigits(t *testing.T, plan *formats.Plan, list []arrivals.Request, s *Service) time.Duration {
	t.Helper()
	tables, err := policy.Compile(plan)
	if err != nil {
		t.Fatal(err)
	}
	pol, err := policies.New(plan.Policy, tables)
	if err != nil {
		t.Fatal(err)
	}
	service, err := sim.Empirical(tables, sim.Samples{Runs: s.Runs}, false, 1)
	if err != nil {
		t.Fatal(err)
	}
	var took []time.Duration
	_, err = sim.Run(context.Background(), sim.Config{Tables: tables, Policy: pol, Source: arrivals.Slice(list), Service: service, Ingress: s.Ingress, Egress: s.Egress,
		Completed: func(arrived, answered time.Duration) { took = append(took, answered-arrived) }})
	if err != nil {
		t.Fatal(fmt.Errorf("simulating: %w", err))
	}
	slices.Sort(took)
	return report.Percentile(took, .95)
}
