package search

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/placement"
	"inferplan/planner/gear/trials"
	"inferplan/planner/lists"
	"inferplan/solver/milp"
)

// Of plans by several seeds: the instances, the first of them, seeds of each, and the fresh runs of
// a gear, of which so many past the SLO say that it breaks the promise.
const (
	seededInstances = 60
	firstSeeded     = 5001
	seedsOfEach     = 4
	freshOfGear     = 40
	freshBroken     = 3
)

// plansBySeed returns the plans of an instance by several seeds; none where there is no plan.
func plansBySeed(t *testing.T, p *cascades.Problem, s milp.Solver, seeds int) (plans []*trials.Plan) {
	t.Helper()
	for seed := range seeds {
		plan, err := Solve(t.Context(), p, s, Options{Seed: uint64(seed + 1)})
		if _, none := errors.AsType[*cascades.InfeasibleError](err); none {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, plan)
	}
	return plans
}

// gearsMissingSLO returns how many gears of a plan miss the SLO in too many fresh runs.
func gearsMissingSLO(t *testing.T, plan *trials.Plan, from uint64) (n int) {
	t.Helper()
	for r := range plan.Gears {
		past := 0
		for k := range freshOfGear {
			trial, err := plan.RetryGear(t.Context(), nil, r, from+uint64(100*r+k))
			if err != nil {
				t.Fatal(err)
			}
			if trial.Latency > plan.Problem.SLO {
				past++
			}
		}
		if past >= freshBroken {
			n++
		}
	}
	return n
}

// Plans of drawn instances hardly depend on the streams of their trials: of one in twenty they are
// noticeably apart. Of their gears no more break the promise in fresh runs than the confidence says.
func TestSeedsAgree(t *testing.T) {
	if !long {
		t.Skip("minutes; INFERPLAN_LONG=1 runs it")
	}
	s := solver(t)
	apart, gears, bad, most, least := 0, 0, 0, 0.0, []float64{}
	for n := range seededInstances {
		p := randomInstance(uint64(firstSeeded + n))
		plans := plansBySeed(t, p, s, seedsOfEach)
		if plans == nil {
			continue
		}
		low, high := math.Inf(1), 0.0
		for k, plan := range plans {
			low, high = min(low, plan.Accuracy), max(high, plan.Accuracy)
			if k < 2 {
				wrong := gearsMissingSLO(t, plan, uint64(1_000_000*(n+1)+10_000*k))
				gears, bad = gears+len(plan.Gears), bad+wrong
				if wrong > 0 {
					t.Logf("instance %d, seed %d: %d gears break the promise", firstSeeded+n, k+1, wrong)
				}
			}
		}
		if least = append(least, high-low); high-low > noticeable {
			apart++
			t.Logf("instance %d: seeds %.4f apart", firstSeeded+n, high-low)
		}
		most = max(most, high-low)
	}
	slices.Sort(least)
	t.Logf("%d instances with plans by %d seeds: %d more than %v apart, most %.4f, mean %.5f; %d of %d gears break the promise (%.3f)", len(least), seedsOfEach, apart, noticeable, most, lists.Total(least)/float64(len(least)), bad, gears, float64(bad)/float64(gears))
	if 20*apart > len(least) || float64(bad) > (1-trials.TrialConfidence)*float64(gears) {
		t.Errorf("%d instances of %d apart, %d of %d gears break the promise", apart, len(least), bad, gears)
	}
}

// drawnSplit returns a split drawn at random that leaves every device time at a rate: as far
// from the one of least load as that allows; nil: none does.
func drawnSplit(d *trials.Placement, rng *rand.Rand, i int, base *placement.LoadedCascade, rate float64) *placement.LoadedCascade {
	drawn := make([][]float64, len(base.Shares))
	for m := range drawn {
		total := 0.0
		for range base.Shares[m] {
			x := math.Exp(1.5 * rng.NormFloat64())
			if rng.IntN(3) == 0 {
				x = 0
			}
			drawn[m], total = append(drawn[m], x), total+x
		}
		for k := range drawn[m] {
			drawn[m][k] /= max(total, 1e-12)
		}
		if total == 0 {
			drawn[m] = base.Shares[m]
		}
	}
	for part := 1.; part > .1; part /= 2 {
		shares := make([][]float64, len(drawn))
		for m := range shares {
			for k := range drawn[m] {
				shares[m] = append(shares[m], part*drawn[m][k]+(1-part)*base.Shares[m][k])
			}
		}
		_, each, _ := groupWork(d.Layout, i, shares)
		most := 0.0
		for _, w := range each {
			most = max(most, w)
		}
		if most*rate < .98 {
			return &placement.LoadedCascade{Cascade: base.Cascade, DeviceLoad: most, MaxLoad: most, Shares: shares}
		}
	}
	return nil
}

// Of the brute force that draws splits: as many for each cascade.
const splitsDrawn = 6

// passingSplit is passing where splits are drawn, too, and counted: a drawn split has to pass two trials, by
// different seeds.
func passingSplit(t *testing.T, d *trials.Placement, rng *rand.Rand, r int, drawn *int) float64 {
	t.Helper()
	edge, last := d.Layout.Space.Problem.RangeEdges[r], r == len(d.Layout.Space.Problem.RangeEdges)-1
	other := trials.NewSimulator(d.Layout.Space.Problem, d.Layout.Configs, d.Layout.Chains, 77)
	return mostAccurate(t, d, r, func(i int, s *placement.LoadedCascade) bool {
		trial, err := d.TrySplits(t.Context(), i, s, edge)
		if err != nil {
			t.Fatal(err)
		}
		for k := 0; !trial.Passed && !last && k < splitsDrawn; k++ {
			split := drawnSplit(d, rng, i, s, edge)
			if split == nil {
				continue
			}
			*drawn++
			for _, b := range []*trials.Simulator{d.Simulator, other} {
				if trial, err = b.TryCascade(t.Context(), split, edge); err != nil {
					t.Fatal(err)
				}
				if !trial.Passed {
					break
				}
			}
		}
		return trial.Passed
	})
}

// No placement with splits that are drawn has a plan that is noticeably better.
func TestNoDrawnSplitIsBetter(t *testing.T) {
	seeds, first := 3, uint64(firstSeeded+30) // of the first instances, those where splits are drawn
	if long {
		seeds, first = seededInstances, firstSeeded
	}
	if text := os.Getenv("INFERPLAN_FIRST_INSTANCE"); text != "" {
		var err error
		if first, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	s, below, plans, drawn, worst := solver(t), 0, 0, 0, 0.0
	for n := range seeds {
		p := randomInstance(first + uint64(n))
		list := plansBySeed(t, p, s, 1)
		if list == nil {
			continue
		}
		plans++
		plan, best := list[0], -1.0
		eachDesign(t, p, s, func(d *trials.Placement) {
			fluid := 0.0
			for r := range p.RangeEdges {
				a := bestPassingAccuracy(t, d, r, false)
				if a < 0 {
					return
				}
				fluid += p.RangeWeights[r] * a
			}
			if fluid <= max(best, plan.Accuracy+noticeable) {
				return
			}
			rng, total := rand.New(rand.NewPCG(first+uint64(n), 5)), 0.0
			for r := range p.RangeEdges {
				a := passingSplit(t, d, rng, r, &drawn)
				if a < 0 {
					return
				}
				total += p.RangeWeights[r] * a
			}
			best = max(best, total)
		})
		if best > plan.Accuracy+noticeable {
			below++
			t.Errorf("instance %d: accuracy %.4f, with splits drawn %.4f", first+uint64(n), plan.Accuracy, best)
		}
		worst = max(worst, best-plan.Accuracy)
	}
	if plans == 0 || drawn == 0 {
		t.Errorf("%d plans and %d splits were compared", plans, drawn)
	}
	t.Logf("%d plans, %d below a brute force that draws splits (%d tried) by more than %v, at most %.4f", plans, below, drawn, noticeable, worst)
}

// Least prices of drawn instances, against their bound of any plan and against what trials leave.
func TestLeastPrices(t *testing.T) {
	if !long {
		t.Skip("a minute; INFERPLAN_LONG=1 runs it")
	}
	s := solver(t)
	var bounds, tried []float64
	for n := range seededInstances {
		p := randomInstance(uint64(firstSeeded + n))
		list := plansBySeed(t, p, s, 1)
		if list == nil {
			continue
		}
		q := clonedKinds(p)
		q.TargetAccuracy = list[0].Accuracy - .01
		plan, err := Solve(t.Context(), q, s, Options{Seed: 1})
		if err != nil {
			t.Fatalf("instance %d: %v", firstSeeded+n, err)
		}
		bounds = append(bounds, plan.Value/plan.ValueBound)
		if plan.TrialBound > 0 {
			tried = append(tried, plan.Value/plan.TrialBound)
		}
	}
	if len(bounds) == 0 || len(tried) == 0 {
		t.Fatalf("%d prices have a bound, %d what trials leave", len(bounds), len(tried))
	}
	slices.Sort(bounds)
	slices.Sort(tried)
	mean := lists.Total(bounds) / float64(len(bounds))
	t.Logf("least prices of %d instances over their bound: mean %.3f, median %.3f, most %.3f; over what trials leave, where that is known (%d): mean %.3f, most %.3f",
		len(bounds), mean, bounds[len(bounds)/2], bounds[len(bounds)-1], len(tried), lists.Total(tried)/float64(len(tried)), tried[len(tried)-1])
	if by := lists.Total(tried) / float64(len(tried)); by > 1.1 {
		t.Errorf("least prices are %.3f times what trials leave", by)
	}
}
