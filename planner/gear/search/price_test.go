package search

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"inferplan/planner/gear/bounds"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/placement"
	"inferplan/planner/gear/planspace"
	"inferplan/planner/gear/trials"
)

// The search begins at the least price of all numbers of devices at which the relaxation
// reaches the target, whatever the kinds, memory, stages and network. The bound of a price
// is above that only where no placement on the cheaper ones has the time for the target.
// What the relaxation's prices say of other numbers of devices is never below what it
// comes to there.
func TestLeastPriceMatchesEnumeration(t *testing.T) {
	s, whole := solver(t), t
	reached, served := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		if reached >= 12 {
			return
		}
		var p *cascades.Problem
		if rapid.Bool().Draw(t, "in stages") {
			p = withPrices(drawStaged(t), 1, rapid.SampledFrom([]float64{.3, 1, 2.5}).Draw(t, "price"))
		} else {
			p = drawMixed(t)
		}
		ctx := context.Background()
		o := Options{Seed: 1}
		search := &planSearch{problem: p, options: &o, solver: s, cache: cascades.CascadeCache{}, history: trials.NewHistory(1)}
		if w, err := search.planInputsFor(context.Background(), p); err != nil || len(w.withStages.Cascades) > 60 || len(w.withStages.Chains) > 30 {
			return
		}
		newShop := func() *deviceSearch {
			c := &deviceSearch{search: search, cuts: map[string]*bounds.DeviceCut{}, seeds: make([][]int, len(p.RangeEdges))}
			for k := range p.Kinds {
				c.prices, c.available = append(c.prices, p.Kinds[k].Price), append(c.available, p.Kinds[k].Devices)
			}
			return c
		}
		c := newShop()
		full, err := c.cutAt(ctx, c.available)
		if err != nil {
			t.Fatal(err)
		}
		if !full.ServesAllRanges {
			return
		}
		served++
		p.TargetAccuracy = rapid.Float64Range(.7, 1.02).Draw(t, "of what all devices reach") * full.Value
		if p.TargetAccuracy > 1 {
			return
		}
		all := newShop()
		best := math.Inf(1)
		var enough [][]int
		n := make([]int, 2)
		for n[0] = 0; n[0] <= c.available[0]; n[0]++ {
			for n[1] = 0; n[1] <= c.available[1]; n[1]++ {
				at, err := all.cutAt(ctx, slices.Clone(n))
				if err != nil {
					t.Fatal(err)
				}
				if all.reachesTarget(at) {
					best, enough = min(best, c.priceOf(n)), append(enough, slices.Clone(n))
				}
			}
		}
		checkTangents(t, all)
		got, first := math.Inf(1), newShop()
		if n, err := first.nextCounts(ctx); err != nil {
			t.Fatal(err)
		} else if n != nil {
			got = first.priceOf(n)
		}
		if got != best && math.Abs(got-best) > 1e-9 {
			t.Fatalf("least price %v, by enumeration %v", got, best)
		}
		if math.IsInf(best, 1) {
			if _, err := Solve(ctx, p, s, o); !isInfeasibleErr(err) {
				t.Fatalf("no numbers of devices reach %v, but %v", p.TargetAccuracy, err)
			}
			return
		}
		reached++
		plan, err := Solve(ctx, p, s, o)
		if isInfeasibleErr(err) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range enough {
			if c.priceOf(n) >= plan.ValueBound*(1-1e-9) {
				continue
			}
			if w, err := search.planInputsFor(context.Background(), c.search.problem.WithDevices(n)); err != nil {
				t.Fatal(err)
			} else if len(w.chains) > 0 {
				if most, err := placement.BoundSingleCascades(ctx, w.withStages); err != nil || most == 0 || !p.MissesTarget(most) {
					t.Fatalf("price at least %v, but on %v one cascade per range has the time for %v of %v asked for, %v", plan.ValueBound, n, most, p.TargetAccuracy, err)
				}
				continue
			}
			if _, most := bestOfAll(whole, c.search.problem.WithDevices(n), s, math.Inf(1)); !p.MissesTarget(most) {
				t.Fatalf("price at least %v, but on %v devices have the time for %v of %v asked for", plan.ValueBound, n, most, p.TargetAccuracy)
			}
		}
		if plan.Value < best*(1-1e-9) || plan.Value < plan.ValueBound*(1-1e-9) || plan.Accuracy < p.TargetAccuracy-1e-9 || plan.Bound < p.TargetAccuracy-1e-6 {
			t.Fatalf("price %v of at least %v, by enumeration %v; accuracy %v of %v, asked for %v", plan.Value, plan.ValueBound, best, plan.Accuracy, plan.Bound, p.TargetAccuracy)
		}
	})
	t.Logf("%d problems, %d with a target in reach", served, reached)
	if reached < 4 {
		t.Errorf("only %d instances had a price", reached)
	}
}

// checkTangents holds what the prices at each choice of devices say of the others against
// what the relaxation comes to there.
func checkTangents(t *rapid.T, c *deviceSearch) {
	for _, a := range c.cutOrder {
		for _, b := range c.cutOrder {
			worth := 0.0
			for k := range a.Devices {
				worth += a.GainPerDevice[k] * float64(b.Devices[k])
			}
			if c.reachesTarget(b) && worth < a.RequiredGain-1e-6 {
				t.Fatalf("%v reaches the target, but is worth %v of %v by the prices on %v", b.Devices, worth, a.RequiredGain, a.Devices)
			}
		}
	}
}

func isInfeasibleErr(err error) bool {
	_, none := errors.AsType[*cascades.InfeasibleError](err)
	return none
}

// Devices that nothing stands on are left out, and the others numbered anew, those
// that chains go over too.
func TestIdleDevicesAreRemoved(t *testing.T) {
	p := &cascades.Problem{Models: make([]cascades.Model, 2), Kinds: []cascades.Kind{{Devices: 4}, {Devices: 3}}}
	chain := &planspace.Chain{Model: 1, Stages: []planspace.Stage{{Kind: 0}, {Kind: 1}}}
	plan := &trials.Plan{Problem: p,
		Configs: []planspace.Config{{Kind: 0, ModelSet: 0b100, Count: 2}, {Kind: 0, ModelSet: 0b01, Count: 1}, {Kind: 0, ModelSet: 0, Count: 1}, {Kind: 1, ModelSet: 0b1000, Count: 2}, {Kind: 1, ModelSet: 0b11, Count: 1}},
		Chains:  []planspace.PlacedChain{{Chain: chain, Devices: [][]int{{1}, {0}}}}}
	used := plan.RemoveIdleDevices()
	if !slices.Equal(used, []int{2, 2}) || !slices.Equal(plan.Configs, []planspace.Config{{Kind: 0, ModelSet: 0b100, Count: 1}, {Kind: 0, ModelSet: 0b01, Count: 1}, {Kind: 1, ModelSet: 0b1000, Count: 1}, {Kind: 1, ModelSet: 0b11, Count: 1}}) {
		t.Errorf("%v devices as %v", used, plan.Configs)
	}
	if d := plan.Chains[0].Devices; d[0][0] != 0 || d[1][0] != 0 || !slices.Equal(plan.Replicas(0, 1), []int{1}) {
		t.Errorf("chain on %v, model on %v", d, plan.Replicas(0, 1))
	}
}
