package search

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/cputime"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/placement"
	"inferplan/planner/gear/planspace"
	"inferplan/planner/gear/trials"
)

// withPrices is a problem whose devices cost something, by kind.
func withPrices(p *cascades.Problem, prices ...float64) *cascades.Problem {
	for k := range p.Kinds {
		p.Kinds[k].Price = prices[k]
	}
	return p
}

// Two kinds that are the same, at the same price, are planned as one kind, whatever the
// goal: the same bound, and the same value but for a few steps of the grid, or of the
// search for a latency.
func TestGoalsOnTheSameKinds(t *testing.T) {
	if testing.Short() || !long {
		t.Skip("long: INFERPLAN_LONG=1")
	}
	s := solver(t)
	ctx := context.Background()
	families, grid := []*family{&llama4}, 5
	if long {
		families, grid = []*family{&llama4, &bert5}, 10
	}
	for _, f := range families {
		first, second, target := 2, 4, .635
		if f == &bert5 {
			first, second, target = 1, 2, .932
		}
		one := f.problem(t, first+second, grid)
		for _, goal := range []struct {
			name string
			set  func(*cascades.Problem)
			near float64 // of the value
		}{
			{"accuracy", func(*cascades.Problem) {}, 3e-4},
			{"accuracy of all requests", func(p *cascades.Problem) { p.OverRequests = true }, 3e-4},
			{"devices", func(p *cascades.Problem) { p.TargetAccuracy = target }, 1e-9},
			{"devices, all requests", func(p *cascades.Problem) { p.TargetAccuracy, p.OverRequests = target, true }, 1e-9},
			{"latency", func(p *cascades.Problem) { p.TargetAccuracy, p.SLO = target, 0 }, .1},
		} {
			p := *one
			if goal.set(&p); p.SLO == 0 && !long {
				continue // a search of seconds; the test below has small ones
			}
			start := cputime.Used()
			alone, err := Solve(ctx, &p, s, Options{Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			between := cputime.Used()
			two, err := Solve(ctx, withPrices(mixedKinds(&p, first, second, []float64{1, 1, 1, 1, 1}), 1, 1), s, Options{Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: one kind %.5f of %.5f in %v of CPU, two %.5f of %.5f in %v, %d simulations", goal.name, alone.Value, alone.ValueBound, between-start, two.Value, two.ValueBound, cputime.Used()-between, two.RunCount)
			worse := alone.Value - two.Value
			if p.TargetAccuracy > 0 {
				worse = -worse
			}
			if worse > goal.near*alone.Value || math.Abs(two.ValueBound-alone.ValueBound) > 1e-6*alone.ValueBound || two.Goal != alone.Goal || two.Accuracy < p.TargetAccuracy {
				t.Errorf("%s: one kind %v of %v, two %v of %v with accuracy %v", goal.name, alone.Value, alone.ValueBound, two.Value, two.ValueBound, two.Accuracy)
			}
		}
	}
}

// drawMixed is a small problem on two kinds whose speeds are unrelated.
func drawMixed(t *rapid.T) *cascades.Problem {
	p := drawProblem(t)
	factors := make([]float64, len(p.Models))
	for m := range factors {
		factors[m] = rapid.Float64Range(.3, 4).Draw(t, "factor")
	}
	return withPrices(mixedKinds(p, min(2, p.Kinds[0].Devices), rapid.IntRange(1, 2).Draw(t, "others"), factors), 1, rapid.SampledFrom([]float64{.3, 1, 2.5}).Draw(t, "price"))
}

// simulatedCascades are the accuracies, tails and lateness of every cascade in every range on a
// placement, by simulation; what its devices have no time for, or is not stable, is left
// out.
type simulatedCascades struct {
	cascade int
	trial   trials.Trial
}

func tryAll(t *rapid.T, space *planspace.Space, l *placement.Layout, late float64) [][]simulatedCascades {
	p := space.Problem
	b := trials.NewSimulator(p, l.Configs, l.Chains, 1)
	out := make([][]simulatedCascades, len(p.RangeEdges))
	for r, edge := range p.RangeEdges {
		for i := range space.Cascades {
			s, err := l.BestSplit(context.Background(), i)
			if err != nil {
				t.Fatal(err)
			}
			if s.MaxLoad*edge > 1 {
				continue
			}
			trial, err := b.TryWithLateShare(context.Background(), &placement.LoadedCascade{Cascade: &space.Cascades[i], Shares: l.ReplicaShares(s), MaxLoad: s.MaxLoad}, edge, late)
			if err != nil {
				t.Fatal(err)
			}
			if trial.Stable {
				out[r] = append(out[r], simulatedCascades{i, trial})
			}
		}
	}
	return out
}

// A planner that simulates every cascade in every range on every placement on every
// number of devices finds nothing below the bounds, and no less than ours but for what a
// step of the grid, and of the latency, makes.
func TestGoalsAgainstSimulatedBruteForce(t *testing.T) {
	s := solver(t)
	held, equal, enough := map[string]int{}, map[string]int{}, 3 // everything is simulated
	if long {
		enough = 1000
	}
	rapid.Check(t, func(t *rapid.T) {
		if held[cascades.FewestDevices] >= enough && held[cascades.LeastLatency] >= enough && held[cascades.MostAccurate] >= enough {
			return
		}
		p := drawMixed(t)
		if len(p.Models) > 3 {
			return
		}
		goal := rapid.SampledFrom([]string{cascades.FewestDevices, cascades.LeastLatency, cascades.MostAccurate}).Draw(t, "goal")
		space := planspace.NewSpace(p, s, nil)
		if err := space.ListCascades(context.Background()); err != nil || len(space.Cascades) > 12 || held[goal] >= enough {
			return
		}
		most := int32(0)
		for i := range space.Cascades {
			most = max(most, space.Cascades[i].CorrectCount)
		}
		grid := largestLevelStep(cascades.Enumerate(p.PlanningSamples, p.Grid, slices.Repeat([]bool{true}, len(p.Models))), p.PlanningSamples.N)
		if grid == 0 {
			return // every other cascade is more than a step away
		}
		target := float64(most)/float64(p.PlanningSamples.N) - rapid.Float64Range(0, .2).Draw(t, "below")
		switch goal {
		case cascades.FewestDevices:
			p.TargetAccuracy = target
		case cascades.LeastLatency:
			p.TargetAccuracy = target
		default:
			p.OverRequests = true
		}
		best, surely := goalByBruteForce(t, space, goal, grid)
		if goal == cascades.LeastLatency {
			p.SLO = 0
		}
		plan, err := Solve(context.Background(), p, s, Options{Seed: 1})
		if inf, ok := errors.AsType[*cascades.InfeasibleError](err); ok {
			if inf.Reason() == "" || !math.IsInf(surely, 1) {
				t.Fatalf("%s: infeasible (%v), brute force has %v", goal, err, surely)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		held[goal]++
		value, bound := plan.Value, plan.ValueBound
		if goal == cascades.MostAccurate {
			value, bound = -value, -bound
		}
		if value <= best+1e-9 {
			equal[goal]++
		}
		if best < bound-1e-6*math.Abs(bound) {
			t.Fatalf("%s: brute force %v is beyond the bound %v", goal, best, bound)
		}
		if goal == cascades.LeastLatency {
			surely *= 1.25 // the search comes only near
		}
		if value > surely+1e-9 {
			t.Fatalf("%s: %v, brute force %v and with a step to spare %v; nothing is below %v", goal, value, best, surely, bound)
		}
	})
	if held[cascades.FewestDevices] < 2 || held[cascades.LeastLatency] < 2 || held[cascades.MostAccurate] < 2 {
		t.Errorf("only %v instances had a plan", held)
	}
	t.Logf("plans %v, as good as brute force or better %v", held, equal)
}

// goalByBruteForce is the best value of a goal on any placement and, where devices are to
// be few, on any number of them: by simulation, and with a step of the grid to spare. An
// accuracy is negative.
func goalByBruteForce(t *rapid.T, space *planspace.Space, goal string, grid float64) (best, surely float64) {
	p := space.Problem
	best, surely = math.Inf(1), math.Inf(1)
	take := func(v, spare float64) { best, surely = min(best, v), min(surely, spare) }
	counts := make([]int, 2)
	for counts[0] = 0; counts[0] <= p.Kinds[0].Devices; counts[0]++ {
		for counts[1] = 0; counts[1] <= p.Kinds[1].Devices; counts[1]++ {
			if goal != cascades.FewestDevices && (counts[0] < p.Kinds[0].Devices || counts[1] < p.Kinds[1].Devices) || counts[0]+counts[1] == 0 {
				continue
			}
			q := *p
			q.Kinds = slices.Clone(p.Kinds)
			price := 0.0
			for k := range counts {
				q.Kinds[k].Devices = counts[k]
				price += float64(counts[k]) * q.Kinds[k].Price
			}
			y := space.ForProblem(&q)
			y.Problem.SLO = p.SLO
			y.SetConfigs()
			placement.EachPlacement(y, func(configs []planspace.Config) {
				takeValues(t, y, placement.NewLayout(y, configs, nil), goal, grid, price, take)
			})
		}
	}
	return best, surely
}

// takeValues takes the values that a goal can have on a layout of some price, and those
// that it can have with a step of the grid to spare.
func takeValues(t *rapid.T, space *planspace.Space, l *placement.Layout, goal string, grid, price float64, take func(v, spare float64)) {
	p, none := space.Problem, math.Inf(1)
	late := 1.0
	if goal == cascades.FewestDevices { // as ours: a run ends where more are late than may be
		late = 1 - p.Percentile
	}
	all := tryAll(t, space, l, late)
	reached := func(a, v float64) {
		if a >= p.TargetAccuracy {
			take(v, none)
		}
		if a >= p.TargetAccuracy+grid {
			take(none, v)
		}
	}
	switch goal {
	case cascades.FewestDevices:
		reached(accuracyWithin(space, all, p.SLO), price)
	case cascades.LeastLatency:
		for _, list := range all {
			for _, one := range list {
				reached(accuracyWithin(space, all, one.trial.Latency), one.trial.Latency.Seconds()*1e3)
			}
		}
	default:
		if a := accuracyLate(space, all); a >= 0 {
			take(-a, grid-a)
		}
	}
}

// accuracyWithin is the weighted accuracy of the most accurate cascades that keep a
// latency, negative where a range has none.
func accuracyWithin(space *planspace.Space, all [][]simulatedCascades, within time.Duration) float64 {
	total := 0.0
	for r, list := range all {
		most := math.Inf(-1)
		for _, one := range list {
			if one.trial.Latency >= 0 && one.trial.Latency <= within {
				most = max(most, float64(space.Cascades[one.cascade].CorrectCount)/float64(space.Problem.PlanningSamples.N))
			}
		}
		total += space.Problem.RangeWeights[r] * most
	}
	return total
}

// accuracyLate is the most weighted accuracy with no more late requests over all ranges
// than the percentile allows.
func accuracyLate(space *planspace.Space, all [][]simulatedCascades) float64 {
	best := -1.0
	var pick func(r int, accuracy, late float64)
	pick = func(r int, accuracy, late float64) {
		if late > 1-space.Problem.Percentile {
			return
		}
		if r == len(all) {
			best = max(best, accuracy)
			return
		}
		for _, one := range all[r] {
			w := space.Problem.RangeWeights[r]
			pick(r+1, accuracy+w*float64(space.Cascades[one.cascade].CorrectCount)/float64(space.Problem.PlanningSamples.N), late+w*one.trial.LateShare)
		}
	}
	pick(0, 0, 0)
	return best
}

// On measured rates a plan over two kinds is run as a whole, and keeps the SLO there.
func TestMixedOnMeasuredRates(t *testing.T) {
	p := llama4.problem(t, 6, 5)
	for _, rate := range []float64{15, 30, 55, 58, 12} {
		for range 40 { // seconds
			p.MeasuredRates = append(p.MeasuredRates, rate)
		}
	}
	p.RangeWeights, p.OverRequests = cascades.MeasuredWeights(p.MeasuredRates, 60, 10), true
	q := mixedKinds(p, 2, 4, []float64{1.5, 1, 1, .8})
	plan, err := Solve(context.Background(), q, solver(t), Options{Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	late := 0.0
	for r := range plan.Gears {
		late += q.RangeWeights[r] * plan.Gears[r].LateShare
	}
	t.Logf("accuracy %.4f of %.4f, %v at the percentile, %.4f late by the ranges", plan.Accuracy, plan.Bound, plan.TailLatency, late)
	if plan.TailLatency == 0 || plan.TailLatency > p.SLO || late > 1-p.Percentile || plan.Accuracy > plan.Bound {
		t.Errorf("%v at the percentile of all requests, expected up to %v; %.4f late, accuracy %v of %v", plan.TailLatency, p.SLO, late, plan.Accuracy, plan.Bound)
	}
}
