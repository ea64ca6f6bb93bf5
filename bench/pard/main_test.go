package main

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/policy/policies"
)

// toy is a pipeline of made-up profiles.
func toy(t *testing.T) *pipeline {
	t.Helper()
	p := &pipeline{name: "toy", slo: 200 * time.Millisecond, stages: chain("a", "b", "c")}
	for i := range p.stages {
		p.stages[i].ms = interpolated(map[int]float64{1: 5 + float64(i), 4: 9, 16: 30 - 3*float64(i)})
	}
	if err := p.chooseBatches(.9); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestInterpolated(t *testing.T) {
	ms := interpolated(map[int]float64{4: 10, 1: 5, 16: 20, 8: 9})
	for batch, want := range map[int]float64{1: 5, 2: 5 + 5./3, 4: 10, 6: 10, 8: 10, 12: 15, 16: 20} {
		if got := ms[batch-1]; math.Abs(got-want) > 1e-9 {
			t.Errorf("batch %d: %v ms, want %v", batch, got, want)
		}
	}
	if len(ms) != 16 {
		t.Errorf("%d times, want none beyond the largest batch that was measured, 16", len(ms))
	}
}

// The table of a plan says at every rate what the rule does.
func TestTableIsTheRule(t *testing.T) {
	p := toy(t)
	rule := p.fixedScaling(false)
	rule.MaxWorkers = 20
	plan := p.deploy(formats.PolicySpec{Name: "feas"}, rule, []int{1, 1, 1}, 2*p.capacity(20))
	if err := plan.Validate(); err != nil {
		t.Fatal(err)
	}
	rng, rows := seeded.New(1, "rates"), p.table(2*p.capacity(20), rule)
	for range 1000 {
		rate := rng.Float64() * 1.9 * p.capacity(20)
		i := 0
		for i+1 < len(rows) && rows[i+1].AboveRPS < rate {
			i++
		}
		if want := p.want(rate, rule); !slices.Equal(rows[i].Replicas, want) {
			t.Fatalf("at %v: %v, want %v", rate, rows[i].Replicas, want)
		}
	}
	if _, err := policies.Compile(plan); err != nil {
		t.Error(err)
	}
}

// A run with workers that come and go gives an outcome that adds up, the same
// for the same seed.
func TestMeasure(t *testing.T) {
	p := toy(t)
	rates := make([]float64, 40)
	for i := range rates {
		rates[i] = p.capacity(10) * (.4 + .6*float64(i/20))
	}
	rule := p.fixedScaling(true)
	rule.MaxWorkers = 10
	j := &job{pipe: p, rates: rates, rule: rule}
	for _, name := range []string{"pard", "feas+token", "oc"} {
		a, err := j.measure(t.Context(), policySpec(name, "wiki"), 3)
		if err != nil {
			t.Fatal(err)
		}
		b, err := j.measure(t.Context(), policySpec(name, "wiki"), 3)
		if err != nil {
			t.Fatal(err)
		}
		drops := a.Late
		for _, n := range a.Drops {
			drops += n
		}
		if a.Good+drops != a.Requests || a.Good > a.Bound || a.Good != b.Good || a.Invalid != b.Invalid || a.OverBound == 0 {
			t.Errorf("%s: %+v, then %+v", name, a, b)
		}
	}
}

func TestPoisson(t *testing.T) {
	src, n := newPoisson([]float64{1000, 0, 3000}, 1), [3]int{}
	var last time.Duration
	for r := (arrivals.Request{}); src.Next(&r); last = r.ArrivedAt {
		if n[int(r.ArrivedAt/time.Second)]++; r.ArrivedAt < last {
			t.Fatal("arrivals go back")
		}
	}
	if n[1] != 0 || n[0] < 900 || n[0] > 1100 || n[2] < 2800 || n[2] > 3200 {
		t.Errorf("%v arrivals by second", n)
	}
}

func TestSpec(t *testing.T) {
	if s := policySpec("feas+token+lambda=.3", ""); s.Name != "feas" || s.Params["token"] != 1 || s.Params["lambda"] != .3 {
		t.Errorf("%+v", s)
	}
	if s := policySpec("clipper++", ""); s.Name != "clipper++" {
		t.Errorf("%+v", s)
	}
}

// The four pipelines have the batches, costs and scales of the reading.
func TestPipelinesOfTheData(t *testing.T) {
	dir := os.Getenv("INFERPLAN_DATA")
	if dir == "" {
		dir = "../../../shared/data"
	}
	if _, err := os.Stat(filepath.Join(dir, "traces")); err != nil {
		t.Skipf("no reference data: set INFERPLAN_DATA to the folder that holds traces/ (%v)", err)
	}
	b := &bench{}
	if err := b.read(dir); err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		batches []int
		cost    float64
		scales  []float64
	}{
		{[]int{8, 16, 32}, 11.76, []float64{2.9256, 23.3068, 11.5594}},
		{[]int{7, 16, 16, 16, 20}, 16.58, []float64{2.0740, 16.5230, 8.1948}},
		{[]int{8, 24, 32, 32, 32}, 14.89, []float64{2.3095, 18.3991, 9.1253}},
		{[]int{8, 16, 20, 24, 16}, 16.46, []float64{2.0892, 16.6442, 8.2550}},
	} {
		p, got := b.pipes[i], []int(nil)
		for k := range p.stages {
			got = append(got, p.stages[k].batch)
		}
		if !slices.Equal(got, want.batches) || math.Abs(p.cost()-want.cost) > .006 {
			t.Errorf("%s: batches %v, %.3f ms per request, want %+v", p.name, got, p.cost(), want)
		}
		for k, tr := range b.traces {
			if scale := tr.rates(p)[0] / tr.counts[0]; math.Abs(scale-want.scales[k]) > 1e-4 {
				t.Errorf("%s on %s: scale %.4f, want %.4f", p.name, tr.name, scale, want.scales[k])
			}
		}
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-seeds", "0"}, {"more"}, {"-data", t.TempDir()}, {"-nothing"}} {
		if err := newInstrument().Run(t.Context(), append(args, "-keep", t.TempDir()), io.Discard, io.Discard); err == nil {
			t.Errorf("%v: no error", args)
		} else if args[0] == "-data" && !strings.Contains(err.Error(), "INFERPLAN_DATA") {
			t.Errorf("%v: %v", args, err)
		}
	}
}
