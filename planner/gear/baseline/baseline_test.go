package baseline

import (
	"context"
	"math"
	"testing"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/planner/gear"
)

func even(r Rates) func() arrivals.Source { return func() arrivals.Source { return r.Even() } }

func TestRates(t *testing.T) {
	r := Rates{2, 0, 4}
	got, err := arrivals.Collect(r.Even(), 0)
	if err != nil || len(got) != 6 {
		t.Fatalf("%d arrivals, %v, expected 6", len(got), err)
	}
	for i, want := range []float64{.25, .75, 2.125, 2.375, 2.625, 2.875} {
		if math.Abs(got[i].At.Seconds()-want) > 1e-9 {
			t.Errorf("arrival %d at %v, expected %v s", i, got[i].At, want)
		}
	}
	if r.Peak() != 4 || r.Total() != 6 || r.Duration() != 3*time.Second {
		t.Errorf("peak %v, total %v, duration %v", r.Peak(), r.Total(), r.Duration())
	}
	long := make(Rates, 1000)
	for i := range long {
		long[i] = float64(10 * (i % 2))
	}
	some, _ := arrivals.Collect(long.Poisson(seeded.New(1, "test")), 0)
	if n := float64(len(some)); math.Abs(n-5000) > 4*math.Sqrt(5000) {
		t.Errorf("%v arrivals, expected about 5000", n)
	}
	for _, a := range some {
		if int(a.At.Seconds())%2 == 0 {
			t.Fatalf("an arrival at %v, in a second without any", a.At)
		}
	}
}

// burst is a workload small enough for every run of the tests: bert5 through a
// minute that rises to its peak and falls.
func burst(t testing.TB) *family {
	f := synthetic("burst", []string{"tiny", "mini", "small", "medium", "base"}, []float64{1.5, 2, 2, 3.5, 5}, []float64{.010, .05, .18, .36, 1.40},
		128, []float64{.832, .859, .897, .896, .935}, []int64{60, 90, 170, 220, 520}, 2, 20240607)
	f.memory, f.slo = 32000, 400*time.Millisecond
	for i := range 60 {
		f.rates = append(f.rates, 400+3000*math.Exp(-math.Pow(float64(i-30)/6, 2)))
	}
	return f
}

// Everything that is compared runs, and the order is the one that theory gives:
// a cascade with gears is at least as accurate as each ablation, these as what
// has neither.
func TestOrder(t *testing.T) {
	f := burst(t)
	ctx := context.Background()
	p := f.problem(t, 1, f.slo)
	out, err := gear.Solve(ctx, p, nil, gear.Options{Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	ours, err := Execute(ctx, out.Tables(p), f.rates.Even(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	correct, requests := 0, 0
	for _, w := range ours.Windows {
		correct, requests = correct+w.Correct, requests+w.Requests
	}
	if requests != ours.Requests || math.Abs(float64(correct)/float64(requests)-ours.Accuracy) > 1e-12 || ours.P95 > f.slo {
		t.Errorf("windows hold %d of %d right, the run %d requests at %.4f with p95 %v", correct, requests, ours.Requests, ours.Accuracy, ours.P95)
	}
	_, fixed, err := NoSwitching(ctx, p, even(f.rates), f.slo)
	if err != nil || fixed == nil {
		t.Fatalf("no switching: %v", err)
	}
	s := Singles(p)
	planned, err := gear.Solve(ctx, s, nil, gear.Options{Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := Execute(ctx, planned.Tables(s), f.rates.Even(), 0)
	if err != nil {
		t.Fatal(err)
	}
	_, switching, err := BestModelSwitching(ctx, p, even(f.rates), f.slo)
	if err != nil || switching == nil {
		t.Fatalf("MS+: %v", err)
	}
	dynba := 0.0
	for m := range p.Models {
		r, err := Execute(ctx, DynBa(p, m), f.rates.Even(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if r.P95 <= f.slo {
			dynba = max(dynba, r.Accuracy)
		}
	}
	t.Logf("planner %.4f, no switching %.4f, no cascade %.4f, MS+ %.4f, DynBa %.4f", ours.Accuracy, fixed.Accuracy, plain.Accuracy, switching.Accuracy, dynba)
	if !(ours.Accuracy > fixed.Accuracy && fixed.Accuracy > dynba && ours.Accuracy > plain.Accuracy && switching.Accuracy > dynba) {
		t.Errorf("planner %.4f, no switching %.4f, no cascade %.4f, MS+ %.4f, DynBa %.4f", ours.Accuracy, fixed.Accuracy, plain.Accuracy, switching.Accuracy, dynba)
	}
}

// A vote of two is its better member's; an autoscaler pays for what the rates
// need, and slow loading shows in the tail.
func TestCocktail(t *testing.T) {
	f := burst(t)
	p := f.problem(t, 1, f.slo)
	if two, one := Vote(p, 1<<0|1<<4), Vote(p, 1<<4); two != one || math.Abs(one-.935) > 1e-9 {
		t.Errorf("tiny and base vote %.4f, base alone %.4f", two, one)
	}
	if three := Vote(p, 1<<1|1<<2|1<<3); three <= .897 {
		t.Errorf("three models vote %.4f, no better than the best of them", three)
	}
	quick := Autoscaler{Period: 10 * time.Second, Load: time.Second, Eta: .8}
	ctx := context.Background()
	e, err := Cocktail(ctx, p, f.rates, even(f.rates), []Autoscaler{quick}, .9, 1, f.slo)
	if err != nil || e == nil {
		t.Fatalf("%v, %v", e, err)
	}
	if e.P95 > f.slo || e.Accuracy < .9 || !(e.Mean >= 1 && e.Mean < 7) {
		t.Errorf("%+v", e)
	}
	slow := quick
	slow.Load = 9 * time.Second
	if s, err := Cocktail(ctx, p, f.rates, even(f.rates), []Autoscaler{slow}, .9, 1, f.slo); err != nil || s != nil && s.P95 <= e.P95 {
		t.Errorf("loading in 9 s: %+v, %v, in 1 s: p95 %v", s, err, e.P95)
	}
	if none, err := Cocktail(ctx, p, f.rates, even(f.rates), []Autoscaler{quick}, .99, 1, f.slo); err != nil || none != nil {
		t.Errorf("an accuracy that no set has: %+v, %v", none, err)
	}
}
