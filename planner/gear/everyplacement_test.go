package gear

import (
	"context"
	"errors"
	"slices"
	"testing"

	"inferplan/solver/milp"
)

// eachDesign visits all placements of a problem's models.
func eachDesign(t *testing.T, p *Problem, s milp.Solver, visit func(*design)) {
	t.Helper()
	o := &Options{Seed: 1}
	if !p.Mixed() {
		list := p.inTime(Enumerate(p.Planned, p.Grid, p.usable()))
		x, sets := &exact{p, list, p.works(list), o}, placing{p}.configurations()
		if len(sets) > 0 {
			counts := make([]int, len(sets))
			eachComposition(counts, 0, p.Devices, func() {
				visit(x.design(&candidate{pl: NewPlacement(len(p.Models), sets, slices.Clone(counts))}))
			})
		}
		return
	}
	x := &mixed{p: p, solver: s}
	x.measure()
	if err := x.cascades(); err != nil {
		return
	}
	x.configurations()
	x.placements(func(placed []Config) { visit(x.lay(placed, nil).design(o, nil)) })
}

// passing is the accuracy of the most accurate cascade in a range that the devices have
// the time for, or that passes its trial, too; -1: there is none.
func passing(t *testing.T, d *design, r int, simulate bool) float64 {
	t.Helper()
	ctx, edge := context.Background(), d.p.Edges[r]
	order := upTo(len(d.list))
	slices.SortFunc(order, func(a, b int) int { return int(d.list[b].Correct - d.list[a].Correct) })
	for _, i := range order {
		if d.least(i)*edge > 1 {
			continue
		}
		s, err := d.at(ctx, i)
		if err != nil {
			t.Fatal(err)
		}
		if s.taken*edge > 1 {
			continue
		}
		passed := !simulate
		if simulate {
			trial, err := d.bench.try(ctx, s.cascade, 1, s.shares, edge)
			if err != nil {
				t.Fatal(err)
			}
			passed = trial.Passed
		}
		if passed {
			return accuracyOn(d.p, s.cascade)
		}
	}
	return -1
}

// bestOfAll are the weighted accuracy of the best plan over all placements, of those that
// could be above an accuracy, and what no plan exceeds: on the placement with the most
// time for accurate gears. -1: no placement serves all ranges.
func bestOfAll(t *testing.T, p *Problem, s milp.Solver, above float64) (best, bound float64) {
	t.Helper()
	best, bound = -1, -1
	eachDesign(t, p, s, func(d *design) {
		value := func(simulate bool) float64 {
			total := 0.0
			for r := range p.Edges {
				a := passing(t, d, r, simulate)
				if a < 0 {
					return -1
				}
				total += p.Weights[r] * a
			}
			return total
		}
		fluid := value(false)
		if bound = max(bound, fluid); fluid > max(above, best) {
			best = max(best, value(true))
		}
	})
	return best, bound
}

// Instances of one to three kinds: no placement has a plan that is noticeably better, the
// bound is above what no placement exceeds, and plans of few devices are mostly proven.
func TestInstancesAgainstEveryPlacement(t *testing.T) {
	const noticeable = .002
	s, ctx, n := solver(t), context.Background(), uint64(6)
	if long {
		n = 500
	}
	plans, gap, priced, proved, below := 0, 0.0, 0, 0, 0
	for seed := uint64(1001); seed <= 1000+n; seed++ {
		p := instance(seed)
		out, err := Solve(ctx, p, s, Options{Seed: 1})
		if _, none := errors.AsType[*Infeasible](err); none {
			if best, _ := bestOfAll(t, p, s, -1); best >= 0 {
				t.Errorf("instance %d: %v, a placement has a plan of accuracy %.4f", seed, err, best)
			}
			continue
		}
		if err != nil {
			t.Fatalf("instance %d: %v", seed, err)
		}
		best, bound := bestOfAll(t, p, s, out.Accuracy+noticeable)
		plans, gap = plans+1, gap+max(0, bound-out.Accuracy)
		if best > out.Accuracy+noticeable {
			below++
			t.Errorf("instance %d: accuracy %.4f, a placement has a plan of %.4f", seed, out.Accuracy, best)
		}
		if bound > out.Bound+1e-7 {
			t.Errorf("instance %d: bound %.5f, a placement has the time for %.5f", seed, out.Bound, bound)
		}
		q := clonedKinds(p)
		q.Target = out.Accuracy - .01
		cheap, err := Solve(ctx, q, s, Options{Seed: 1})
		if err != nil {
			t.Fatalf("instance %d: accuracy %.4f planned, for %.4f: %v", seed, out.Accuracy, q.Target, err)
		}
		if priced++; cheap.Proved {
			proved++
		}
	}
	t.Logf("%d plans of %d instances, %d below; %.4f below the best single gears of any placement, mean; least price proven in %d of %d", plans, n, below, gap/float64(max(1, plans)), proved, priced)
	if plans < int(n)/2 {
		t.Errorf("only %d instances had a plan", plans)
	}
}
