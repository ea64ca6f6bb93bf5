package gear

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
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
		var p *Problem
		if rapid.Bool().Draw(t, "in stages") {
			p = priced(drawStaged(t), 1, rapid.SampledFrom([]float64{.3, 1, 2.5}).Draw(t, "price"))
		} else {
			p = drawMixed(t)
		}
		ctx := context.Background()
		o := Options{Seed: 1}
		search := &search{p: p, o: &o, solver: s, known: newCatalogue()}
		if w, err := search.waysOf(context.Background(), p); err != nil || len(w.staged.list) > 60 || len(w.staged.chains) > 30 {
			return
		}
		newShop := func() *shop {
			c := &shop{search: search, tangents: map[string]*tangent{}, seeds: make([][]int, len(p.Edges))}
			for k := range p.Kinds {
				c.price, c.full = append(c.price, p.Kinds[k].Price), append(c.full, p.Kinds[k].Devices)
			}
			return c
		}
		c := newShop()
		full, err := c.at(ctx, c.full)
		if err != nil {
			t.Fatal(err)
		}
		if !full.served {
			return
		}
		served++
		p.Target = rapid.Float64Range(.7, 1.02).Draw(t, "of what all devices reach") * full.value
		if p.Target > 1 {
			return
		}
		all := newShop()
		best := math.Inf(1)
		var enough [][]int
		n := make([]int, 2)
		for n[0] = 0; n[0] <= c.full[0]; n[0]++ {
			for n[1] = 0; n[1] <= c.full[1]; n[1]++ {
				at, err := all.at(ctx, slices.Clone(n))
				if err != nil {
					t.Fatal(err)
				}
				if all.reached(at) {
					best, enough = min(best, c.sum(n)), append(enough, slices.Clone(n))
				}
			}
		}
		checkTangents(t, all)
		got, first := math.Inf(1), newShop()
		if n, err := first.next(ctx); err != nil {
			t.Fatal(err)
		} else if n != nil {
			got = first.sum(n)
		}
		if got != best && math.Abs(got-best) > 1e-9 {
			t.Fatalf("least price %v, by enumeration %v", got, best)
		}
		if math.IsInf(best, 1) {
			if _, err := Solve(ctx, p, s, o); !isInfeasible(err) {
				t.Fatalf("no numbers of devices reach %v, but %v", p.Target, err)
			}
			return
		}
		reached++
		out, err := Solve(ctx, p, s, o)
		if isInfeasible(err) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range enough {
			if c.sum(n) >= out.ValueBound*(1-1e-9) {
				continue
			}
			if w, err := search.waysOf(context.Background(), c.p.on(n)); err != nil {
				t.Fatal(err)
			} else if len(w.chains) > 0 {
				if most, err := singleGears(ctx, w.staged); err != nil || most == 0 || !p.misses(most) {
					t.Fatalf("price at least %v, but on %v one cascade per range has the time for %v of %v asked for, %v", out.ValueBound, n, most, p.Target, err)
				}
				continue
			}
			if _, most := bestOfAll(whole, c.p.on(n), s, math.Inf(1)); !p.misses(most) {
				t.Fatalf("price at least %v, but on %v devices have the time for %v of %v asked for", out.ValueBound, n, most, p.Target)
			}
		}
		if out.Value < best*(1-1e-9) || out.Value < out.ValueBound*(1-1e-9) || out.Accuracy < p.Target-1e-9 || out.Bound < p.Target-1e-6 {
			t.Fatalf("price %v of at least %v, by enumeration %v; accuracy %v of %v, asked for %v", out.Value, out.ValueBound, best, out.Accuracy, out.Bound, p.Target)
		}
	})
	t.Logf("%d problems, %d with a target in reach", served, reached)
	if reached < 4 {
		t.Errorf("only %d instances had a price", reached)
	}
}

// checkTangents holds what the prices at each choice of devices say of the others against
// what the relaxation comes to there.
func checkTangents(t *rapid.T, c *shop) {
	for _, a := range c.order {
		for _, b := range c.order {
			worth := 0.0
			for k := range a.at {
				worth += a.by[k] * float64(b.at[k])
			}
			if c.reached(b) && worth < a.least-1e-6 {
				t.Fatalf("%v reaches the target, but is worth %v of %v by the prices on %v", b.at, worth, a.least, a.at)
			}
		}
	}
}

func isInfeasible(err error) bool {
	_, none := errors.AsType[*Infeasible](err)
	return none
}

// Devices that nothing stands on are left out, and the others numbered anew, those
// that chains go over too.
func TestCompact(t *testing.T) {
	p := &Problem{Models: make([]Model, 2), Kinds: []Kind{{Devices: 4}, {Devices: 3}}}
	chain := &Chain{Model: 1, Stages: []Stage{{Kind: 0}, {Kind: 1}}}
	out := &Outcome{Problem: p,
		Configs: []Config{{0, 0b100, 2}, {0, 0b01, 1}, {0, 0, 1}, {1, 0b1000, 2}, {1, 0b11, 1}},
		Chains:  []PlacedChain{{Chain: chain, Devices: [][]int{{1}, {0}}}}}
	used := out.compact()
	if !slices.Equal(used, []int{2, 2}) || !slices.Equal(out.Configs, []Config{{0, 0b100, 1}, {0, 0b01, 1}, {1, 0b1000, 1}, {1, 0b11, 1}}) {
		t.Errorf("%v devices as %v", used, out.Configs)
	}
	if d := out.Chains[0].Devices; d[0][0] != 0 || d[1][0] != 0 || !slices.Equal(out.Replicas(0, 1), []int{1}) {
		t.Errorf("chain on %v, model on %v", d, out.Replicas(0, 1))
	}
}
