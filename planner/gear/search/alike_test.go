package search

import (
	"context"
	"errors"
	"math"
	"math/bits"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"inferplan/planner/gear/bounds"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/placement"
	"inferplan/planner/gear/planspace"
	"inferplan/planner/lists"
	"inferplan/solver/pareto"
	"inferplan/testkit/balance"
)

// modelPlacement says which models identical devices hold. Loads and splits on it need no linear programs.
type modelPlacement struct {
	Configs []planspace.Config
	*balance.Machines
}

// newPlacement is the placement of sets of a family's models on counts of devices.
func newPlacement(models int, sets []uint32, counts []int) *modelPlacement {
	pl := &modelPlacement{}
	var groups []balance.Group
	for i, n := range counts {
		pl.Configs, groups = append(pl.Configs, planspace.Config{ModelSet: sets[i], Count: n}), append(groups, balance.Group{Takes: sets[i], Count: n})
	}
	pl.Machines = balance.NewMachines(models, groups)
	return pl
}

// placementOf is that of configurations of the only kind.
func placementOf(p *cascades.Problem, configs []planspace.Config) *modelPlacement {
	var sets []uint32
	var counts []int
	for _, c := range configs {
		sets, counts = append(sets, c.ModelSet), append(counts, c.Count)
	}
	return newPlacement(len(p.Models), sets, counts)
}

// minWork are the seconds that every model works per request of cascades where it is fastest: [cascade][model].
func minWork(p *cascades.Problem, list []cascades.Cascade) [][]float64 {
	least, out := cascades.MinSecondsPerSample(p), make([][]float64, len(list))
	for i := range list {
		out[i] = make([]float64, len(p.Models))
		for k, m := range list[i].Models {
			out[i][m] = least[m] * float64(list[i].ReachCounts[k]) / float64(p.PlanningSamples.N)
		}
	}
	return out
}

// memoryOf is the memory that a set of models takes on a kind.
func memoryOf(p *cascades.Problem, kind int, set uint32) int64 {
	total := int64(0)
	for ; set > 0; set &= set - 1 {
		total += p.Models[bits.TrailingZeros32(set)].Variants[kind].Memory
	}
	return total
}

// configurationsOf are the maximal sets of models that fit on a device together.
func configurationsOf(p *cascades.Problem) (sets []uint32) {
	space := planspace.NewSpace(p, nil, nil)
	space.SetConfigs()
	for _, c := range space.Configs {
		sets = append(sets, c.ModelSet)
	}
	return sets
}

// usableOf are the models that run whole somewhere.
func usableOf(p *cascades.Problem) []bool {
	usable := make([]bool, len(p.Models))
	for m := range usable {
		usable[m] = planspace.NewSpace(p, nil, nil).RunsWhole(m)
	}
	return usable
}

// fleetOf is a fleet with some cascades of whole models.
func fleetOf(p *cascades.Problem, list []cascades.Cascade) *planspace.Space {
	space := planspace.NewSpace(p, programs, nil)
	space.SetCascades(list)
	space.SetConfigs()
	return space
}

// boundsOf are the bounds of a fleet, by range.
func boundsOf(t interface{ Fatal(...any) }, space *planspace.Space) []float64 {
	bounds, _, err := space.RangeBounds(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return bounds
}

// poolOf are the devices of a problem and some cascades as one kind.
func poolOf(t interface{ Fatal(...any) }, p *cascades.Problem, list []cascades.Cascade) *bounds.PooledDevices {
	space := fleetOf(p, list)
	for i := range list {
		space.MinLateShares = append(space.MinLateShares, cascades.MinLateShare(p, &list[i]))
	}
	pool, err := bounds.PoolDevices(context.Background(), p, space, space)
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// totalWorks are the seconds of work per request of cascades.
func totalWorks(p *cascades.Problem, list []cascades.Cascade) (out []float64) {
	for _, work := range minWork(p, list) {
		out = append(out, lists.Total(work))
	}
	return out
}

// envelopeOf is the largest mean accuracy of a mixture of cascades by its mean work.
func envelopeOf(p *cascades.Problem, list []cascades.Cascade) (e pareto.Envelope) {
	cost := totalWorks(p, list)
	for _, i := range cascades.ParetoFront(cost, list) {
		e.Add(cost[i], cascades.PlannedAccuracy(p, &list[i]))
	}
	return e
}

// freeBounds are what no plan exceeds on identical devices that never wait, by range: memory plays no part in it.
func freeBounds(p *cascades.Problem, list []cascades.Cascade) (out []float64) {
	e := envelopeOf(p, list)
	for _, edge := range p.RangeEdges {
		out = append(out, e.At(float64(p.Kinds[0].Devices)/edge))
	}
	return out
}

// differByPart tells whether numbers are further apart than a part of them, or one of them is none.
func differByPart(a, b, part float64) bool {
	return math.IsNaN(a) != math.IsNaN(b) || math.IsInf(a, 1) != math.IsInf(b, 1) || math.Abs(a-b) > part*max(1, math.Abs(a))
}

// On identical devices linear programs find the same as procedures that need none there: loads of
// cascades on any placement and what bounds all plans.
func TestIdenticalDevices(t *testing.T) {
	ctx := context.Background()
	loads, unplaced, unserved := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		space, err := planspace.WholeModelSpace(t.Context(), p, programs, nil)
		if err != nil {
			return
		}
		var placed [][]planspace.Config
		placement.EachPlacement(space, func(configs []planspace.Config) { placed = append(placed, configs) })
		work := minWork(p, space.Cascades)
		for range 4 {
			configs, i := rapid.SampledFrom(placed).Draw(t, "placement"), rapid.IntRange(0, len(space.Cascades)-1).Draw(t, "cascade")
			l := placement.NewLayout(space, configs, nil)
			got, err := l.BestSplit(ctx, i)
			if err != nil {
				t.Fatal(err)
			}
			if math.IsInf(got.MaxLoad, 1) {
				unplaced++
			}
			if want := placementOf(p, configs).Load(work[i]); differByPart(got.MaxLoad, want, 1e-9) {
				t.Fatalf("load %v on %v, expected %v", got.MaxLoad, configs, want)
			}
			if loads++; l.LoadLowerBound(i) > got.MaxLoad+1e-9 {
				t.Fatalf("load %v, bounded from below by %v", got.MaxLoad, l.LoadLowerBound(i))
			}
		}
		want, got := freeBounds(p, space.Cascades), boundsOf(t, space)
		for r := range want {
			if differByPart(want[r], got[r], 1e-6) {
				t.Fatalf("bounds %v, expected %v", got, want)
			}
		}
		if slices.ContainsFunc(want, math.IsNaN) {
			unserved++
		}
	})
	if t.Logf("%d loads, %d infinite; %d without a bound", loads, unplaced, unserved); loads < 100 || unplaced == 0 || unserved == 0 {
		t.Errorf("%d loads, %d infinite; %d without a bound: expected 100 and some", loads, unplaced, unserved)
	}
}

// A kind without devices changes neither plans nor bounds.
func TestKindWithoutDevices(t *testing.T) {
	ctx := context.Background()
	plans, seeds := 0, 60
	if long {
		seeds = 1000
	}
	for seed := 1; seed <= seeds; seed++ {
		p := rapid.Custom(drawProblem).Example(seed)
		one, err := Solve(ctx, p, programs, Options{Seed: 1})
		two, other := Solve(ctx, mixedKinds(p, p.Kinds[0].Devices, 0, slices.Repeat([]float64{1}, len(p.Models))), programs, Options{Seed: 1})
		_, none := errors.AsType[*cascades.InfeasibleError](err)
		if _, also := errors.AsType[*cascades.InfeasibleError](other); none && also {
			continue
		}
		if err != nil || other != nil {
			t.Errorf("problem %d: %v, with another kind %v", seed, err, other)
			continue
		}
		plans++
		if differByPart(two.Accuracy, one.Accuracy, 1e-9) || differByPart(two.SingleCascadeBound, one.SingleCascadeBound, 1e-9) || differByPart(two.Bound, one.Bound, 1e-6) {
			t.Errorf("problem %d: accuracy %v of %v and %v, with another kind %v of %v and %v", seed, one.Accuracy, one.SingleCascadeBound, one.Bound, two.Accuracy, two.SingleCascadeBound, two.Bound)
		}
	}
	if t.Logf("%d plans", plans); plans < seeds/4 {
		t.Errorf("only %d problems have a plan", plans)
	}
}
