package gear

import (
	"context"
	"errors"
	"math"
	"testing"

	"inferplan/solver/milp"
)

// host is how many devices of a kind hold a set of models; times are by model what batches
// of 1, 2, … take there.
type host struct {
	set   uint32
	count int
	kind  int
}

// eachHosting visits all ways to give devices sets of models that fit, maximal or not.
func eachHosting(p *Problem, visit func([]host)) {
	kinds := p.Kinds
	if !p.Mixed() {
		kinds = []Kind{{Devices: p.Devices, Memory: p.Memory}}
	}
	var fill func(kind int, so []host)
	fill = func(kind int, so []host) {
		if kind == len(kinds) {
			visit(so)
			return
		}
		var fits []uint32
		for set := range uint32(1) << len(p.Models) {
			if kinds[kind].Memory == 0 || p.MemoryOf(set) <= kinds[kind].Memory {
				fits = append(fits, set)
			}
		}
		counts := make([]int, len(fits))
		eachComposition(counts, 0, kinds[kind].Devices, func() {
			next := so[:len(so):len(so)]
			for i, n := range counts {
				if n > 0 {
					next = append(next, host{fits[i], n, kind})
				}
			}
			fill(kind+1, next)
		})
	}
	fill(0, nil)
}

// holds tells whether devices have the time for a cascade at a rate: any split of its
// samples over devices and over all batches that take no longer than the SLO.
func holds(t *testing.T, p *Problem, s milp.Solver, hosts []host, c *Cascade, rate float64) bool {
	m := milp.New("split")
	busiest := m.AddVar("", 0, milp.Inf, 1)
	time := make([][]milp.Term, len(hosts))
	for k, model := range c.Models {
		var split []milp.Term
		for h := range hosts {
			if hosts[h].set&(1<<model) == 0 {
				continue
			}
			for b, took := range p.timesOn(int(model), hosts[h].kind) {
				if took <= p.SLO {
					x := m.AddVar("", 0, milp.Inf, 0)
					split = append(split, milp.Term{Var: x, Coef: 1})
					time[h] = append(time[h], milp.Term{Var: x, Coef: rate * took.Seconds() / float64((b+1)*hosts[h].count)})
				}
			}
		}
		if len(split) == 0 {
			return false
		}
		m.AddEQ("", float64(c.Reach[k])/float64(p.Planned.N), split...)
	}
	for h := range hosts {
		m.AddLE("", 0, append(time[h], milp.Term{Var: busiest, Coef: -1})...)
	}
	sol, err := s.Solve(context.Background(), m, milp.Options{})
	if err != nil || sol.X == nil {
		t.Fatalf("%v %v", err, sol)
	}
	return sol.Value <= 1+1e-9
}

// The bound of one gear per range is what brute force finds with programs of its own: over
// all placements, of sets that are not maximal, too, all cascades over the thresholds, all
// splits and all batches within the SLO.
func TestGearBoundAgainstBruteForce(t *testing.T) {
	s, want, checked, kinds := solver(t), 12, 0, 0
	if long {
		want = 60
	}
	for seed := uint64(2001); checked < want; seed++ {
		p := instance(seed)
		if devices(p) > 3 || len(p.Models) > 3 {
			continue
		}
		out, err := Solve(context.Background(), p, s, Options{Seed: 1})
		if _, none := errors.AsType[*Infeasible](err); none {
			continue
		}
		if err != nil {
			t.Fatalf("instance %d: %v", seed, err)
		}
		checked++
		if p.Mixed() {
			kinds++
		}
		list, best := Enumerate(p.Planned, p.Grid, p.usable()), -1.0
		eachHosting(p, func(hosts []host) {
			total := 0.0
			for r, edge := range p.Edges {
				most := -1.0
				for i := range list {
					if a := accuracyOn(p, &list[i]); a > most && p.alone(&list[i]) <= p.SLO && holds(t, p, s, hosts, &list[i], edge) {
						most = a
					}
				}
				if most < 0 {
					return
				}
				total += p.Weights[r] * most
			}
			best = max(best, total)
		})
		if math.Abs(best-out.GearBound) > 1e-9 || out.GearBound > out.Bound+1e-7 || out.Accuracy > out.GearBound+1e-9 {
			t.Errorf("instance %d: accuracy %.6f, bound of one gear per range %.6f, by brute force %.6f, of any mixture %.6f", seed, out.Accuracy, out.GearBound, best, out.Bound)
		}
	}
	if kinds < checked/4 {
		t.Errorf("only %d of %d instances have several kinds", kinds, checked)
	}
}
