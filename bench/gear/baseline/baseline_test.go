package baseline

import (
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"inferplan/bench/gear/published"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/search"
	"inferplan/solver/highs"
)

// burst is a workload small enough for every run of the tests: bert5 through a
// minute that rises to its peak and falls.
func burst() *published.Family {
	f := published.BERT5()
	f.Name = "burst"
	for i := range 60 {
		f.Rates = append(f.Rates, 400+3000*math.Exp(-math.Pow(float64(i-30)/6, 2)))
	}
	return f
}

func problem(t testing.TB, f *published.Family, devices int) *cascades.Problem {
	p, err := Problem(f, devices, 10, f.SLO)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func even(f *published.Family) func() arrivals.Source {
	return func() arrivals.Source { return f.Rates.Even() }
}

// Everything that is compared runs, and the order is the one that theory gives:
// a cascade with gears is at least as accurate as each ablation, these as what
// has neither.
func TestOrder(t *testing.T) {
	f := burst()
	ctx := context.Background()
	p := problem(t, f, 1)
	out, err := search.Solve(ctx, p, highs.Solver{}, search.Options{Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	ours, err := Execute(ctx, out.Tables(), f.Rates.Even(), Watch{Windows: Sliding{10 * time.Second, 10 * time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	expected, requests := 0.0, 0
	for _, w := range ours.Windows {
		expected, requests = expected+w.Expected*float64(w.Requests), requests+w.Requests
	}
	expected /= float64(requests)
	if requests != ours.Requests || math.Abs(expected-ours.Expected) > 1e-9 || math.Abs(expected-ours.Accuracy) > .005 || ours.P95 > f.SLO {
		t.Errorf("windows hold %d requests, %.6f expected; the run %d requests, %.6f expected, at %.6f with p95 %v", requests, expected, ours.Requests, ours.Expected, ours.Accuracy, ours.P95)
	}
	fixed, err := NoSwitching(p, f.SLO, On(ctx, even(f)))
	if err != nil || fixed == nil {
		t.Fatalf("no switching: %v", err)
	}
	s := Singles(p)
	planned, err := search.Solve(ctx, s, highs.Solver{}, search.Options{Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := Execute(ctx, planned.Tables(), f.Rates.Even(), Watch{})
	if err != nil {
		t.Fatal(err)
	}
	switching, err := BestModelSwitching(p, f.SLO, On(ctx, even(f)))
	if err != nil || switching == nil {
		t.Fatalf("MS+: %v", err)
	}
	dynba, err := BestSingle(p, f.SLO, 0, On(ctx, even(f)))
	if err != nil || dynba == nil {
		t.Fatalf("DynBa: %v", err)
	}
	list := []float64{ours.Accuracy, fixed.Run.Accuracy, plain.Accuracy, switching.Run.Accuracy, dynba.Run.Accuracy}
	t.Logf("planner, no switching, no cascade, MS+, DynBa: %.4f", list)
	if !(list[0] > list[1] && list[1] > list[4] && list[0] > list[2] && list[3] > list[4]) {
		t.Errorf("planner, no switching, no cascade, MS+, DynBa: %.4f", list)
	}
}

// A vote of two is its better member's; an autoscaler pays for what the rates
// need, and slow loading shows in the tail.
func TestCocktail(t *testing.T) {
	f := burst()
	p := problem(t, f, 1)
	if two, one := Vote(p, 1<<0|1<<4), Vote(p, 1<<4); two != one || math.Abs(one-.935) > 1e-9 {
		t.Errorf("tiny and base vote %.4f, base alone %.4f", two, one)
	}
	if three := Vote(p, 1<<1|1<<2|1<<3); three <= .897 {
		t.Errorf("three models vote %.4f, no better than the best of them", three)
	}
	quick := Autoscaler{Period: 10 * time.Second, Load: time.Second, Eta: .8}
	ctx := context.Background()
	tenSeconds := Sliding{10 * time.Second, time.Second}
	e, err := Cocktail(ctx, p, f.Rates, even(f), []Autoscaler{quick}, .9, 1, f.SLO, tenSeconds)
	if err != nil || e == nil {
		t.Fatalf("%v, %v", e, err)
	}
	if e.P95 > f.SLO || e.Accuracy < .9 || !(e.Mean >= 1 && e.Mean < 7) {
		t.Errorf("%+v", e)
	}
	if calm, busy := slices.Min(e.counts[0]), slices.Max(e.counts[0]); calm < 1 || float64(busy) <= e.Mean || float64(calm) >= e.Mean {
		t.Errorf("periods with %d to %d devices, mean %.2f", calm, busy, e.Mean)
	}
	windows := e.Windows
	if len(windows) != 51 || math.Abs(windows[30].Expected-e.Accuracy) > 1e-9 || windows[25].Requests <= windows[0].Requests {
		t.Errorf("windows %+v", windows)
	}
	slow := quick
	slow.Load = 9 * time.Second
	if s, err := Cocktail(ctx, p, f.Rates, even(f), []Autoscaler{slow}, .9, 1, f.SLO, Sliding{}); err != nil || s != nil && s.P95 <= e.P95 {
		t.Errorf("loading in 9 s: %+v, %v, in 1 s: p95 %v", s, err, e.P95)
	}
	if none, err := Cocktail(ctx, p, f.Rates, even(f), []Autoscaler{quick}, .99, 1, f.SLO, Sliding{}); err != nil || none != nil {
		t.Errorf("an accuracy that no set has: %+v, %v", none, err)
	}
}

// In a space that is small enough to try every plan ours is not far from the
// best one of the same latency, and random plans are not better than every plan.
func TestSpace(t *testing.T) {
	f := burst().Only("tiny", "small", "base")
	f.Grid = 2
	s, err := NewSpace(f, 2, 3, f.Rates.Around(8, 3, 700))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Cascades) != 7 || s.Size() != 343 {
		t.Fatalf("%d cascades, %d plans, expected 7 and 343", len(s.Cascades), s.Size())
	}
	ctx := context.Background()
	all, err := s.Exhaustive(ctx, 2)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.Try(ctx, []int{6, 0, 1}) // plan 6 + 0*7 + 1*49
	if err != nil || all[55] != again {
		t.Errorf("plan 55: %v and %v, %v", all[55], again, err)
	}
	n := 0
	some, err := s.Random(ctx, seeded.New(1, "test"), func() bool { n++; return n > 20 })
	if err != nil || len(some) != 20 {
		t.Fatalf("%d random plans, %v", len(some), err)
	}
	plan, ok, err := s.Planned(ctx, f.SLO, false, 1)
	if err != nil || !ok {
		t.Fatalf("no plan: %v", err)
	}
	ours, err := s.Show(ctx, plan)
	if err != nil {
		t.Fatal(err)
	}
	front := ParetoFront(all)
	best, random := Best(front, f.SLO), Best(some, f.SLO)
	t.Logf("ours %.4f in %v, best %.4f, random %.4f", ours.Accuracy, ours.P95, best, random)
	if ours.P95 > f.SLO || ours.Accuracy > best || random > best || ours.Accuracy < best-.01 || Best(front, f.SLO) != Best(all, f.SLO) {
		t.Errorf("ours %.4f in %v, best %.4f, random %.4f", ours.Accuracy, ours.P95, best, random)
	}
	if _, ok, err := s.Planned(ctx, time.Millisecond, true, 1); ok || err != nil {
		t.Errorf("a plan within a millisecond: %v, %v", ok, err)
	}
}

// A run that gives up says so.
func TestGiveUp(t *testing.T) {
	f := burst()
	p := problem(t, f, 1)
	if r, err := Execute(context.Background(), DynBa(p, 4), f.Rates.Even(), Watch{GiveUp: 10}); !errors.Is(err, ErrLate) || r != nil {
		t.Errorf("the largest model on one device: %v, %v", r, err)
	}
}

// An SLO on accuracy is kept on rates that hover at the edge of two ranges,
// where the switch rule stays with the faster gear; a plan for the histogram of
// the rates misses it there (INFERPLAN_LONG).
func TestAccuracySLOAtAnEdge(t *testing.T) {
	const target = .92
	f := published.BERT5()
	for i := range 60 { // at the edges at 1140 and 1520
		f.Rates = append(f.Rates, []float64{1100, 1160, 1500, 1540}[i%2+i/30*2])
	}
	f.Rates[30] = 3800
	p, err := Problem(f, 1, 10, 0)
	if err != nil {
		t.Fatal(err)
	}
	p.TargetAccuracy = target
	ctx := context.Background()
	show := func() (planned, even, poisson float64) {
		out, err := search.Solve(ctx, p, highs.Solver{}, search.Options{Seed: 7})
		if err != nil {
			t.Fatal(err)
		}
		a, err := Execute(ctx, out.Tables(), f.Rates.Even(), Watch{})
		if err != nil {
			t.Fatal(err)
		}
		b, err := Execute(ctx, out.Tables(), f.Rates.Poisson(seeded.New(1, "edge")), Watch{})
		if err != nil {
			t.Fatal(err)
		}
		return out.Accuracy, a.Accuracy, b.Accuracy
	}
	planned, even, poisson := show()
	t.Logf("planned %.4f, even %.4f, Poisson %.4f", planned, even, poisson)
	if even < target || poisson < target || math.Abs(poisson-planned) > .001 {
		t.Errorf("planned at %.4f, seen %.4f and %.4f, expected %v", planned, even, poisson, target)
	}
	if os.Getenv("INFERPLAN_LONG") == "" {
		return // a second plan
	}
	p.RangeWeights = p.RateShares
	planned, even, poisson = show()
	t.Logf("by rate: planned %.4f, even %.4f, Poisson %.4f", planned, even, poisson)
	if planned < target || poisson > target-.001 {
		t.Errorf("by the rates alone planned at %.4f, seen %.4f: this workload does not tell the weights apart", planned, poisson)
	}
}
