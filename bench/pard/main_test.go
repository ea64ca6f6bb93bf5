package main

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/policy/policies"
)

// toy is a pipeline of made-up profiles.
func toy(t *testing.T) *pipeline {
	t.Helper()
	p := &pipeline{name: "toy", slo: 200 * time.Millisecond, stages: chain("a", "b", "c")}
	for i := range p.stages {
		prof := &profile{batches: []int{1, 4, 16}, ms: []float64{5 + float64(i), 9, 30 - 3*float64(i)}}
		for b := 1; b <= 16; b++ {
			p.stages[i].ms = append(p.stages[i].ms, prof.at(b))
		}
	}
	if err := p.plan(.9); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProfile(t *testing.T) {
	p := &profile{batches: []int{4, 1, 16, 8}, ms: []float64{10, 5, 20, 9}}
	p.sort()
	for batch, want := range map[int]float64{1: 5, 2: 5 + 5./3, 4: 10, 6: 10, 8: 10, 12: 15, 16: 20} {
		if got := p.at(batch); math.Abs(got-want) > 1e-9 {
			t.Errorf("batch %d: %v ms, want %v", batch, got, want)
		}
	}
	if !math.IsNaN(p.at(17)) {
		t.Error("a batch beyond what was measured has a time")
	}
}

// The table of a plan says at every rate what the rule does.
func TestTableIsTheRule(t *testing.T) {
	p := toy(t)
	rule := notesRule(p, false)
	rule.workers = 20
	plan := p.deploy("feas", nil, rule, []int{1, 1, 1}, 2*p.capacity(20))
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
	rule := notesRule(p, true)
	rule.workers = 10
	j := &job{pipe: p, rates: rates, rule: rule}
	for _, name := range []string{"pard", "feas+token", "oc"} {
		a, err := j.measure(t.Context(), spec(name, "wiki"), 3)
		if err != nil {
			t.Fatal(err)
		}
		b, err := j.measure(t.Context(), spec(name, "wiki"), 3)
		if err != nil {
			t.Fatal(err)
		}
		drops := a.Late
		for _, n := range a.Drops {
			drops += n
		}
		if a.Good+drops != a.Requests || a.Good > a.Bound || a.Good != b.Good || a.Invalid != b.Invalid || a.Over == 0 {
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
	if s := spec("feas+token+lambda=.3", ""); s.Name != "feas" || s.Params["token"] != 1 || s.Params["lambda"] != .3 {
		t.Errorf("%+v", s)
	}
	if s := spec("clipper++", ""); s.Name != "clipper++" {
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
	b, err := open(dir)
	if err != nil {
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
			if _, f := tr.scaled(p.capacity(64)); math.Abs(f-want.scales[k]) > 1e-4 {
				t.Errorf("%s on %s: scale %.4f, want %.4f", p.name, tr.name, f, want.scales[k])
			}
		}
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-seeds", "0"}, {"more"}, {"-data", t.TempDir()}, {"-nothing"}} {
		if err := run(t.Context(), append(args, "-dir", t.TempDir())); err == nil {
			t.Errorf("%v: no error", args)
		} else if args[0] == "-data" && !strings.Contains(err.Error(), "INFERPLAN_DATA") {
			t.Errorf("%v: %v", args, err)
		}
	}
}
