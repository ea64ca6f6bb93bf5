package fleet

import (
	"context"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"inferplan/policy/vqueue"
	"inferplan/testkit/bundletest"
)

// open reads the traces, or skips.
func open(t *testing.T) *Data {
	t.Helper()
	d, err := Open(filepath.Dir(bundletest.Dir(t)))
	if err != nil {
		t.Skipf("the data has no traces of language models: %v", err)
	}
	return d
}

// TestRequests: a seed has one list, in order of arrival, with the shares that the
// workload asks for.
func TestRequests(t *testing.T) {
	d := open(t)
	big := Workloads[0].WithTail(0.5)
	big.Shares, big.Burst, big.ShareGPT = []float64{0.6, 0.2, 0.2}, 4, true
	for _, w := range append(slices.Clone(Workloads), big) {
		list, err := w.requests(d, 1000, 5000, 3)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := w.requests(d, 1000, 5000, 3); !reflect.DeepEqual(list, again) {
			t.Errorf("%s: the same seed has another list", w.Name)
		}
		tail, first := 0.0, 0.0
		for i, r := range list {
			if i > 0 && r.ArrivedAt < list[i-1].ArrivedAt || r.PromptTokens < 1 || r.OutputTokens < 1 || int(r.Model) >= len(w.Models)*len(Classes) {
				t.Fatalf("%s: request %d: %+v", w.Name, i, r)
			}
			if int(r.Model)/len(Classes) >= 2 {
				tail += 1 / float64(len(list))
			}
			if int(r.Model)%len(Classes) == 0 {
				first += 1 / float64(len(list))
			}
		}
		wanted := 0.0
		for _, p := range w.popularity()[min(2, len(w.Models)):len(w.Models)] {
			wanted += p
		}
		if math.Abs(tail-wanted) > 0.03 || math.Abs(first-w.shares()[0]) > 0.03 {
			t.Errorf("%s: %.3f are for tail models, %.3f of the first class, want %.3f and %.3f", w.Name, tail, first, wanted, w.shares()[0])
		}
		compress(list, 8)
		if rate := float64(len(list)) / list[len(list)-1].ArrivedAt.Seconds(); math.Abs(rate-8) > 0.01 {
			t.Errorf("%s: %.3f requests a second, want 8", w.Name, rate)
		}
	}
	if _, err := Workloads[0].requests(d, 5000, 1000, 1); err == nil {
		t.Error("rows that go backwards")
	}
}

// TestTables: every kind has its estimators, and instances run what fits them.
func TestTables(t *testing.T) {
	d := open(t)
	e, err := d.calibrate(&Workloads[0])
	if err != nil {
		t.Fatal(err)
	}
	w := Workloads[0]
	w.Models, w.Popularity = []int{0, 1, 6}, []float64{0.5, 0.3, 0.2}
	c := Case{Workload: &w, Policy: Named("QLM"), RPS: 3, Instances: 5, A10: 2, Big: 1}
	tab, err := c.tables(e)
	if err != nil {
		t.Fatal(err)
	}
	if want := []int32{2, 2, 1}; !slices.Equal(tab.KindCounts, want) {
		t.Errorf("kinds %v, want %v", tab.KindCounts, want)
	}
	// Mistral-7B on all but the four cards, Vicuna-13B on A100s alone, Llama-2-70B on the
	// four.
	if only, want := vqueue.TablesOf(tab).AllowedDevices, [][]int32{{0, 1, 2, 3}, {0, 1}, {4}}; !reflect.DeepEqual(only, want) {
		t.Errorf("networks on devices %v, want %v", only, want)
	}
	for d := range tab.Devices {
		if r := tab.Resident[d][0]; !slices.Contains(vqueue.TablesOf(tab).AllowedDevices[r], int32(d)) {
			t.Errorf("device %d begins with network %d", d, r)
		}
	}
	slow, fast := e.plain[mistral][a10], e.plain[mistral][a100]
	if s, f := workOf(slow), workOf(fast); s < 1.5*f || e.plain[vicuna][a10] != nil {
		t.Errorf("a request takes %.3f s of an A10 and %.3f s of an A100", s, f)
	}
}

func workOf(r *vqueue.RCT) float64 { w, _ := r.Work(1); return w }

// TestMeasure: every policy and ablation answers all requests of a short run, a
// second run is the same, and QLM's order beats first come, first served where models change.
func TestMeasure(t *testing.T) {
	d := open(t)
	const requests = 120
	run := func(w *Workload, p *Policy) *Outcome {
		c := Case{Workload: w, Policy: p, RPS: 8, From: 2000, To: 2000 + requests, Instances: 3, Seed: 1}
		o, err := d.Measure(context.Background(), &c)
		if err != nil {
			t.Fatal(p.Name, err)
		}
		if o.Requests != requests || o.Throughput <= 0 || o.Throughput > 8.01 {
			t.Errorf("%s: %+v", p.Name, o)
		}
		o.CPU = 0 // which differs from run to run
		return o
	}
	got := map[string]*Outcome{}
	for i := range Policies {
		got[Policies[i].Name] = run(&Workloads[0], &Policies[i])
	}
	if q, f := got["QLM"].InTime, got["FCFS"].InTime; q <= f {
		t.Errorf("QLM answers %d of %d in time, first come, first served %d", q, requests, f)
	}
	if again := run(&Workloads[0], Named("QLM")); !reflect.DeepEqual(again, got["QLM"]) {
		t.Errorf("again: %+v, before %+v", again, got["QLM"])
	}
	for i := range Ablations[1:] {
		run(&Workloads[2], &Ablations[1+i])
	}
	scaled := run(&Workloads[1], Scaled(1, 5*time.Second))
	if scaled.Used < 1 || scaled.Used > 3 {
		t.Errorf("%.2f of three instances were on", scaled.Used)
	}
}

// TestOperations: which is faster, to swap a state or to compute it again, depends
// on the pair.
func TestOperations(t *testing.T) {
	for _, o := range Operations() {
		if o.Swap <= 0 || o.Recompute <= 0 || o.Warm >= o.Cold {
			t.Errorf("%+v", o)
		}
	}
}
