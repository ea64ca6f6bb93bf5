package sim

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/policy/conform"
	dropping "inferplan/policy/drop"
	"inferplan/policy/policies"
	"inferplan/testkit/policytest"
)

// flowConfig is a run of a plan of one application under Poisson arrivals.
func flowConfig(t interface{ Fatal(...any) }, plan *formats.Plan, rate float64, length time.Duration, seed uint64) Config {
	if err := plan.Validate(); err != nil {
		t.Fatal(err)
	}
	tab, err := policies.Compile(plan)
	if err != nil {
		t.Fatal(err)
	}
	pol, err := policies.New(plan.Policy, tab)
	if err != nil {
		t.Fatal(err)
	}
	var sources []arrivals.Source
	for m := range tab.Models {
		src, err := arrivals.Process(nil, seeded.New(seed+uint64(m), "arrivals"), int32(m), rate, length)
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, src)
	}
	src := arrivals.Merge(sources...)
	return Config{Tables: tab, Policy: pol, Source: src, Control: policies.NewControl(tab), Duration: length, Verify: true, Seed: seed, PolicyName: plan.Policy.Name}
}

// lateService has the policy hear of runs some time after their end.
type lateService struct {
	Service
	rng *rand.Rand
}

func (s *lateService) ReportDelay() time.Duration {
	return time.Duration(s.rng.IntN(3)) * 5 * time.Millisecond
}

// What a run ends comes when the policy hears of it. Its device has nothing to do
// meanwhile, unless more waits there.
func TestLateNews(t *testing.T) {
	const ms = time.Millisecond
	plan := policytest.FlowPlan(time.Second, "pard",
		policytest.FlowStage{Name: "a", Infer: []time.Duration{10 * ms}, Workers: 1},
		policytest.FlowStage{Name: "b", After: []string{"a"}, Infer: []time.Duration{10 * ms}, Workers: 1})
	cfg := flowConfig(t, plan, 1, time.Second, 1)
	cfg.Source, cfg.Egress = arrivals.Slice([]arrivals.Request{{ArrivedAt: 0}, {ArrivedAt: 100 * ms}, {ArrivedAt: 101 * ms}}), ms
	cfg.Service, _ = RecordedService(cfg.Tables, Samples{Runs: [][][]time.Duration{{{10 * ms}}, {{20 * ms}}}, ReportDelays: [][][]time.Duration{{{2 * ms}}, {{3 * ms}}}}, false, 1)
	var took []time.Duration
	cfg.OnCompleted = func(arrived, answered time.Duration) { took = append(took, answered-arrived) }
	res, err := Run(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	// The third request waits in module b until the policy hears of the second, at 135 ms.
	if want := []time.Duration{36 * ms, 36 * ms, 58 * ms}; !slices.Equal(took, want) {
		t.Errorf("requests took %v, expected %v", took, want)
	}
	if r := res.Flow.Modules[1].RunTime; r != 60*ms {
		t.Errorf("module b ran %v, expected 60ms", r)
	}
}

// Over random graphs with branches, under every policy, with workers that come,
// go and are lost: every request ends as exactly one of good, late and dropped,
// no more of them are good than the bound says, and nothing is invalid that was
// not run. The log of the run replays to the same bytes.
func TestFlowsEndOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := seeded.New(rapid.Uint64().Draw(t, "seed"), "flows")
		plan := policytest.DrawFlow(rng, 5, rapid.SampledFrom(dropping.Names()).Draw(t, "policy"), rng.IntN(2) == 0)
		if plan.Policy.Params = policytest.DrawDropping(rng); plan.Policy.Name == "pard" {
			delete(plan.Policy.Params, "paths") // it refuses them
		}
		if formats.FlowOf(plan).Scaling == nil && rng.IntN(2) == 0 {
			policytest.TakeTurns(plan, 1+rng.IntN(2))
		}
		cfg := flowConfig(t, plan, 30+float64(rng.IntN(400)), 2*time.Second, rng.Uint64())
		for range rng.IntN(3) {
			d, at := int32(rng.IntN(len(cfg.Tables.Devices))), time.Duration(rng.IntN(1500))*time.Millisecond
			cfg.Faults = append(cfg.Faults, Fault{At: at, Device: d}, Fault{At: at + 300*time.Millisecond, Device: d, ComesBack: true})
		}
		if rng.IntN(2) == 0 {
			cfg.Service = &lateService{Service: ExactService(cfg.Tables), rng: rng}
		}
		var log bytes.Buffer
		rec := conform.NewRecorder(cfg.Policy, &log)
		cfg.Policy = rec
		res, err := Run(context.Background(), cfg)
		if err != nil {
			t.Fatal(plan.Policy.Name, ": ", err)
		}
		f, m := res.Flow, &res.Report.Counts
		if f.Requests != f.Good+f.Late+f.Dropped || m.Requests != f.Requests || m.Dropped != f.Dropped || m.Late != f.Late {
			t.Fatalf("%d requests, %d good, %d late, %d dropped; report %d, %d, %d", f.Requests, f.Good, f.Late, f.Dropped, m.Requests, m.Late, m.Dropped)
		}
		if len(cfg.Faults) == 0 && f.Bound >= 0 && f.Good > f.Bound {
			t.Fatalf("%s: %d good, the bound is %d", plan.Policy.Name, f.Good, f.Bound)
		}
		drops := int64(0)
		for i := range f.Modules {
			mod := &f.Modules[i]
			if drops += mod.Dropped; mod.InvalidTime > mod.RunTime || mod.InvalidTime < 0 {
				t.Fatalf("module %d ran %v, %v of it invalid", i, mod.RunTime, mod.InvalidTime)
			}
		}
		if drops != f.Dropped {
			t.Fatalf("%d drops by module, %d in all", drops, f.Dropped)
		}
		if err := rec.Close(); err != nil {
			t.Fatal(err)
		}
		fresh, _ := policies.New(plan.Policy, cfg.Tables)
		if _, err := conform.Replay(&log, fresh); err != nil {
			t.Fatal("told the same again: ", err)
		}
	})
}

// The greedy accepts as many requests as the best subset, over random instances
// small enough to try all subsets.
func TestBoundIsOptimal(t *testing.T) {
	rng := seeded.New(4, "bound")
	for n := range 400 {
		modules := 1 + rng.IntN(3)
		f := drawFluid(rng, modules)
		at, last := make([]time.Duration, 9), time.Duration(0)
		for i := range at {
			last += time.Duration(rng.IntN(120)) * time.Millisecond
			at[i] = last
		}
		slo := f.timeAfter[0] + time.Duration(50+rng.IntN(250))*time.Millisecond
		got, best := 0, 0
		for _, a := range at {
			if f.acceptIfInTime(a, slo) {
				got++
			}
		}
		for set := range 1 << len(at) {
			g, ok, size := *f, true, 0
			g.freeAt, g.nextFreeAt = make([]time.Duration, modules), make([]time.Duration, modules)
			for i, a := range at {
				if set>>i&1 == 1 {
					ok = ok && g.acceptIfInTime(a, slo)
					size++
				}
			}
			if ok {
				best = max(best, size)
			}
		}
		if got != best {
			t.Fatalf("instance %d: the greedy accepts %d, the best subset has %d", n, got, best)
		}
	}
}

// drawFluid draws modules in a row whose capacity changes by the second.
func drawFluid(rng *rand.Rand, modules int) *fluidRelaxation {
	f := &fluidRelaxation{rate: make([][]float64, modules), timeBefore: make([]time.Duration, modules), timeAfter: make([]time.Duration, modules), freeAt: make([]time.Duration, modules), nextFreeAt: make([]time.Duration, modules)}
	one := make([]time.Duration, modules)
	for m := range modules {
		one[m] = time.Duration(5+rng.IntN(30)) * time.Millisecond
		for range 3 {
			f.rate[m] = append(f.rate[m], 3+float64(rng.IntN(20)))
		}
		for k := range m {
			f.timeBefore[m] += one[k]
		}
	}
	for m := range modules {
		for k := m + 1; k < modules; k++ {
			f.timeAfter[m] += one[k]
		}
	}
	return f
}

// Batches form as PARD's workers do: what comes while one runs waits for its end
// together. An idle worker starts the first of what comes at once, alone.
func TestFlowTimes(t *testing.T) {
	ms := time.Millisecond
	plan := policytest.FlowPlan(100*ms, "pard",
		policytest.FlowStage{Name: "a", Infer: []time.Duration{10 * ms, 12 * ms}, Workers: 1},
		policytest.FlowStage{Name: "b", After: []string{"a"}, Infer: []time.Duration{5 * ms, 6 * ms}, Workers: 1})
	cfg := flowConfig(t, plan, 1, time.Second, 1)
	cfg.Source = arrivals.Slice([]arrivals.Request{{ArrivedAt: 0}, {ArrivedAt: 3 * ms}, {ArrivedAt: 4 * ms}})
	var ends []time.Duration
	cfg.OnCompleted = func(_, answered time.Duration) { ends = append(ends, answered) }
	res, err := Run(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if want := []time.Duration{15 * ms, 27 * ms, 32 * ms}; !slices.Equal(ends, want) {
		t.Errorf("answers at %v, want %v", ends, want)
	}
	if a := &res.Flow.Modules[0]; a.RunTime != 22*ms || a.InvalidTime != 0 || !slices.Equal(a.BatchesBySize, []int64{0, 1, 1}) {
		t.Errorf("module a %+v", a)
	}
}

// Branches are drawn with their probabilities, the same for every policy.
func TestBranchesAreDrawn(t *testing.T) {
	ms := time.Millisecond
	var first string
	for _, name := range []string{"pard", "feas"} {
		plan := policytest.FlowPlan(time.Second, name,
			policytest.FlowStage{Name: "a", Infer: []time.Duration{ms, ms, ms}, Workers: 2, Branches: []formats.Branch{{Targets: []string{"b"}, Probability: .3}, {Targets: []string{"c"}, Probability: .7}}},
			policytest.FlowStage{Name: "b", After: []string{"a"}, Infer: []time.Duration{ms}, Workers: 2},
			policytest.FlowStage{Name: "c", After: []string{"a"}, Infer: []time.Duration{ms}, Workers: 2})
		res, err := Run(context.Background(), flowConfig(t, plan, 300, 10*time.Second, 1))
		if err != nil {
			t.Fatal(err)
		}
		m := res.Flow.Modules
		if share := float64(m[1].Requests) / float64(m[0].Requests); m[1].Requests+m[2].Requests != m[0].Requests || share < .27 || share > .33 {
			t.Errorf("%d of %d went to b, %d to c", m[1].Requests, m[0].Requests, m[2].Requests)
		}
		if said := fmt.Sprint(m[1].Requests); first == "" {
			first = said
		} else if said != first {
			t.Errorf("%s under one policy, %s under another", first, said)
		}
	}
}

// Under overload a plan of long batches keeps most of what its devices carry.
func TestGoodputUnderOverload(t *testing.T) {
	const ms = time.Millisecond
	long := make([]time.Duration, 8)
	for i := range long {
		long[i] = 35*ms + time.Duration(i)*117*ms/7
	}
	for _, c := range []struct {
		name     string
		plan     *formats.Plan
		capacity float64 // requests per second
		least    float64 // goodput as a share of the capacity
	}{
		// Batches of 152 ms leave little of 217 ms to wait. Under overload all waits for batches are long, and as estimates they
		// would make every request look late at the entry. Then no request would come to the devices behind, which would be
		// idle for good.
		{"the entry stays open", policytest.FlowPlan(217*ms, "feas",
			policytest.FlowStage{Name: "entry", Infer: []time.Duration{5 * ms, 7 * ms, 9 * ms, 11 * ms}, Workers: 4},
			policytest.FlowStage{Name: "long", After: []string{"entry"}, Infer: long, Workers: 16},
			policytest.FlowStage{Name: "end", After: []string{"long"}, Infer: []time.Duration{3 * ms, 5 * ms, 7 * ms, 9 * ms}, Workers: 4}), 16 * 8 / .152, .85},
		// A request that is in time only if it is lucky behind the entry takes 49 ms from another one there.
		{"requests that need luck are dropped", policytest.FlowPlan(69*ms, "feas",
			policytest.FlowStage{Name: "entry", Infer: []time.Duration{49 * ms}, Workers: 22},
			policytest.FlowStage{Name: "end", After: []string{"entry"}, Infer: []time.Duration{5 * ms, 6 * ms, 8 * ms, 9 * ms}, Workers: 1}), 4 / .009, .8},
	} {
		for _, load := range []float64{1.05, 1.2, 2} {
			res, err := Run(t.Context(), flowConfig(t, c.plan, load*c.capacity, 20*time.Second, 1))
			if err != nil {
				t.Fatal(err)
			}
			goodput := float64(res.Report.Models[0].Completed-res.Report.Models[0].Late) / 20 / c.capacity
			t.Logf("%s, load %g: goodput %.3f of what the devices carry", c.name, load, goodput)
			if goodput < c.least {
				t.Errorf("%s, load %g: goodput %.3f of what the devices carry, expected at least %g", c.name, load, goodput, c.least)
			}
		}
	}
}
