package search

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/placement"
	"inferplan/planner/gear/planspace"
	"inferplan/planner/gear/ranges"
	"inferplan/planner/gear/trials"
	"inferplan/planner/lists"
)

// bestSingle is the most accurate cascade for all ranges on any placement that keeps
// the SLO as plans have to; -1: there is none.
func bestSingle(t interface{ Fatal(...any) }, p *cascades.Problem, places []ranges.SingleLayout) float64 {
	best := &trials.Plan{Accuracy: -1}
	for _, l := range places {
		for _, s := range slices.Backward(l.Cascades) {
			one := &trials.Plan{Problem: p, Configs: l.Layout.Configs}
			if float64(s.Cascade.CorrectCount)/float64(p.PlanningSamples.N) <= best.Accuracy {
				break
			}
			ok, err := ranges.UseInAllRanges(context.Background(), one, trials.NewSimulator(p, l.Layout.Configs, nil, 1), &s, trials.StreamCount(p))
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				best = one
			}
		}
	}
	return best.Accuracy
}

// bestLayout is the placement that the fluid model allows most.
func bestLayout(t interface{ Fatal(...any) }, space *planspace.Space) *placement.Layout {
	top, _, err := placement.RankPlacements(context.Background(), space, 1)
	if err != nil {
		t.Fatal(err)
	}
	return top[0].Layout
}

// stairsOn are the cascades that a layout has the time for at a rate.
func stairsOn(t interface{ Fatal(...any) }, l *placement.Layout, rate float64) []placement.LoadedCascade {
	stairs, err := l.FeasibleFront(context.Background(), rate, -1)
	if err != nil {
		t.Fatal(err)
	}
	return stairs
}

// bestOn is the most accurate single cascade on the placement that the fluid model allows most.
func bestOn(t interface{ Fatal(...any) }, p *cascades.Problem, list []cascades.Cascade) float64 {
	l := bestLayout(t, fleetOf(p, list))
	return bestSingle(t, p, []ranges.SingleLayout{{Layout: l, Cascades: stairsOn(t, l, ranges.SteadyRate(p))}})
}

// Where rates hover, gears lose what switching costs: one cascade for all of them is
// then the plan. Peak over mean is 1.6; with INFERPLAN_LONG also 1.7.
func TestNoSwitchingIsAPlan(t *testing.T) {
	spreads := []float64{.2}
	if long {
		spreads = append(spreads, .23)
	}
	for _, spread := range spreads {
		p := llama4.problem(t, 6, 10)
		rng := rand.New(rand.NewPCG(1, 7))
		for range 1200 {
			p.MeasuredRates = append(p.MeasuredRates, max(0, 35.3*(1+spread*rng.NormFloat64())))
		}
		peak := slices.Max(p.MeasuredRates)
		p.RangeEdges, p.OverRequests = cascades.EqualRanges(peak, 10), true
		p.RangeWeights = cascades.ServedWeights(p.MeasuredRates, peak, 10, 7)
		plan, err := Solve(context.Background(), p, programs, Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		list := planspace.WholeCascades(p)
		best := bestOn(t, p, list)
		t.Logf("peak over mean %.2f: accuracy %.4f of %.4f, the best single cascade %.4f", peak*1200/lists.Total(p.MeasuredRates), plan.Accuracy, plan.Bound, best)
		if plan.Accuracy < best-trials.MinAccuracyGain || best < .64 || plan.Bound < plan.Accuracy || plan.TailLatency > p.SLO {
			t.Errorf("spread %v: accuracy %.4f of %.4f at %v, the best single cascade %.4f", spread, plan.Accuracy, plan.Bound, plan.TailLatency, best)
		}
		onFreshStreams(t, plan, 2)
	}
}

// Over ranges, one cascade for all rates beats the plan on typical rates only where it
// does not hold every range: at the highest edge it is late, or latency grows. Over
// requests the plan is no less accurate than it.
func TestNoSwitchingOverRanges(t *testing.T) {
	p := llama4.problem(t, 6, 10)
	rng := rand.New(rand.NewPCG(1, 7))
	for range 600 {
		p.MeasuredRates = append(p.MeasuredRates, max(0, 35.3*(1+.2*rng.NormFloat64())))
	}
	peak := slices.Max(p.MeasuredRates)
	p.RangeEdges = cascades.EqualRanges(peak, 10)
	p.RangeWeights = cascades.ServedWeights(p.MeasuredRates, peak, 10, 7)
	plan, err := Solve(context.Background(), p, programs, Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	one, err := ranges.SingleCascadeAccuracy(context.Background(), plan, 1)
	if err != nil || one <= plan.Accuracy {
		t.Fatalf("one cascade %.4f over requests, the plan %.4f over ranges: the case shows nothing (%v)", one, plan.Accuracy, err)
	}
	list, b := planspace.WholeCascades(p), trials.NewSimulator(p, plan.Configs, nil, 1)
	for _, s := range stairsOn(t, placement.NewLayout(fleetOf(p, list), plan.Configs, nil), ranges.SteadyRate(p)) {
		if accuracy := float64(s.Cascade.CorrectCount) / float64(p.PlanningSamples.N); accuracy <= plan.Accuracy+trials.MinAccuracyGain {
			continue
		}
		if ok, err := ranges.UseInAllRanges(context.Background(), (&trials.Plan{Problem: p, Configs: plan.Configs}), b, &s, 1); ok || err != nil {
			t.Errorf("a cascade with %d right holds every range, the plan has %.4f (%v)", s.Cascade.CorrectCount, plan.Accuracy, err)
		}
	}
	q := *p
	q.OverRequests = true
	together, err := Solve(context.Background(), &q, programs, Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("peak over mean %.2f: over ranges %.4f, one cascade over requests %.4f, the plan over requests %.4f", peak*600/lists.Total(p.MeasuredRates), plan.Accuracy, one, together.Accuracy)
	if together.Accuracy < one-trials.MinAccuracyGain {
		t.Errorf("over requests the plan has %.4f, one cascade %.4f", together.Accuracy, one)
	}
}

// On any small problem, whatever its SLO is over, no single cascade beats the plan.
func TestNoSingleCascadeBeatsThePlan(t *testing.T) {
	held := map[string]int{}
	for seed := 1; (held["ranges"] < 10 || held["requests"] < 10 || held["measured"] < 10) && seed < 400; seed++ {
		rapid.Custom(func(t *rapid.T) int {
			p, over := drawProblem(t), []string{"ranges", "requests", "measured"}[seed%3]
			if len(p.Models) > 3 || p.Kinds[0].Devices > 2 || held[over] >= 10 {
				return 0
			}
			if p.OverRequests = over != "ranges"; over == "measured" {
				peak := p.RangeEdges[len(p.RangeEdges)-1]
				for range 20 {
					p.MeasuredRates = append(p.MeasuredRates, peak*rapid.Float64Range(.3, 1).Draw(t, "rate"))
				}
				p.RangeWeights = cascades.ServedWeights(p.MeasuredRates, peak, 2, 1)
			}
			list := planspace.WholeCascades(p)
			if len(list) == 0 {
				return 0
			}
			plan, err := Solve(context.Background(), p, programs, Options{Seed: 1})
			if _, none := errors.AsType[*cascades.InfeasibleError](err); err != nil && !none {
				t.Fatal(err)
			}
			if err == nil {
				held[over]++
			}
			places, errPlaces := ranges.LayoutsFor(context.Background(), fleetOf(p, list), nil)
			if errPlaces != nil {
				t.Fatal(errPlaces)
			}
			best := bestSingle(t, p, places)
			if best >= 0 && (err != nil || plan.Accuracy < best-trials.MinAccuracyGain || plan.Bound < best-1e-9) {
				t.Fatalf("over %s: %+v, %v, one cascade has %v", over, plan, err, best)
			}
			return 0
		}).Example(seed)
	}
	t.Logf("plans %v", held)
	if held["ranges"] < 5 || held["requests"] < 5 || held["measured"] < 5 {
		t.Errorf("only %v instances had a plan", held)
	}
}

// Batches as long as the SLO let one cascade carry more than the plan's batches of half
// of it: it is tried with both, and beats these gears.
func TestNoSwitchingInLongBatches(t *testing.T) {
	p := llama4.problem(t, 6, 10)
	rng := rand.New(rand.NewPCG(1, 7))
	for range 20 { // minutes
		rate := 32 + 12*rng.Float64()
		for range 60 {
			p.MeasuredRates = append(p.MeasuredRates, rate)
		}
	}
	p.MeasuredRates[600] = 60
	p.RangeEdges, p.OverRequests = cascades.EqualRanges(60, 10), true
	p.RangeWeights = cascades.ServedWeights(p.MeasuredRates, 60, 10, 7)
	plan, err := Solve(context.Background(), p, programs, Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	list := planspace.WholeCascades(p)
	best, half := -1.0, -1.0
	for i, limited := range cascades.WithBatchLimits(p) {
		accuracy := bestOn(t, limited, list)
		if best = max(best, accuracy); i == 1 {
			half = accuracy
		}
	}
	t.Logf("accuracy %.4f, the best single cascade %.4f, in batches of half the SLO %.4f", plan.Accuracy, best, half)
	if best <= half+trials.MinAccuracyGain {
		t.Error("the case shows nothing: batches of half the SLO do as well")
	}
	if shown := max(plan.MeasuredAccuracy, plan.Accuracy); shown < best-trials.MinAccuracyGain {
		t.Errorf("accuracy %.4f, the best single cascade %.4f", shown, best)
	}
}

// More requests than are run for the choices of ranges are still run for one cascade.
func TestNoSwitchingOfManyRequests(t *testing.T) {
	if !long {
		t.Skip("long: INFERPLAN_LONG=1")
	}
	p := bert5.problem(t, 2, 10)
	rng := rand.New(rand.NewPCG(1, 7))
	for range 90 {
		p.MeasuredRates = append(p.MeasuredRates, 5500*(1+.1*rng.NormFloat64()))
	}
	p.MeasuredRates[0] = 7600
	p.RangeEdges, p.ScopeUnspecified = cascades.EqualRanges(7600, 10), true
	p.RangeWeights = cascades.ServedWeights(p.MeasuredRates, 7600, 10, 7)
	plan, err := Solve(context.Background(), p, programs, Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	q := *p
	q.ScopeUnspecified = false
	ranges, err := Solve(context.Background(), &q, programs, Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.0f requests: accuracy %.4f, ranges alone %.4f, at %v", lists.Total(p.MeasuredRates), plan.Accuracy, ranges.Accuracy, plan.TailLatency)
	if !p.HasManyRequests() || plan.Accuracy <= ranges.Accuracy+trials.MinAccuracyGain || plan.TailLatency == 0 || plan.TailLatency > p.SLO {
		t.Errorf("accuracy %.4f at %v, ranges alone %.4f: expected one cascade, run on the whole of the rates", plan.Accuracy, plan.TailLatency, ranges.Accuracy)
	}
}
