package search

import (
	"context"
	"errors"
	"math"
	"testing"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/planspace"
	"inferplan/solver/milp"
)

// deviceSet is how many devices of a kind hold a set of models; times are by model what batches
// of 1, 2, … take there.
type deviceSet struct {
	set   uint32
	count int
	kind  int
}

// eachHosting visits all ways to give devices sets of models that fit, maximal or not.
func eachHosting(p *cascades.Problem, visit func([]deviceSet)) {
	kinds := p.Kinds
	var fill func(kind int, so []deviceSet)
	fill = func(kind int, so []deviceSet) {
		if kind == len(kinds) {
			visit(so)
			return
		}
		var fits []uint32
		for set := range uint32(1) << len(p.Models) {
			if kinds[kind].Memory == 0 || memoryOf(p, kind, set) <= kinds[kind].Memory {
				fits = append(fits, set)
			}
		}
		planspace.EachComposition(kinds[kind].Devices, len(fits), func(counts []int) {
			next := so[:len(so):len(so)]
			for i, n := range counts {
				if n > 0 {
					next = append(next, deviceSet{fits[i], n, kind})
				}
			}
			fill(kind+1, next)
		})
	}
	fill(0, nil)
}

// devicesHaveTime tells whether devices have the time for a cascade at a rate: any split of its
// samples over devices and over all batches that take no longer than the SLO.
func devicesHaveTime(t *testing.T, p *cascades.Problem, s milp.Solver, hosts []deviceSet, c *cascades.Cascade, rate float64) bool {
	m := milp.New("split")
	busiest := m.AddVar("", 0, milp.Inf, 1)
	time := make([][]milp.Term, len(hosts))
	for k, model := range c.Models {
		var split []milp.Term
		for h := range hosts {
			if hosts[h].set&(1<<model) == 0 {
				continue
			}
			for b, took := range p.Models[int(model)].Variants[hosts[h].kind].MedianTimes {
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
		m.AddEQ("", float64(c.ReachCounts[k])/float64(p.PlanningSamples.N), split...)
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
	s, want, checked, kinds, proved := solver(t), 12, 0, 0, 0
	if long {
		want = 60
	}
	for seed := uint64(2001); checked < want; seed++ {
		p := randomInstance(seed)
		if deviceTotal(p) > 3 || len(p.Models) > 3 {
			continue
		}
		plan, err := Solve(context.Background(), p, s, Options{Seed: 1})
		if _, none := errors.AsType[*cascades.InfeasibleError](err); none {
			continue
		}
		if err != nil {
			t.Fatalf("instance %d: %v", seed, err)
		}
		checked++
		if len(p.Kinds) > 1 {
			kinds++
		}
		list, best := cascades.Enumerate(p.PlanningSamples, p.Grid, usableOf(p)), -1.0
		eachHosting(p, func(hosts []deviceSet) {
			total := 0.0
			for r, edge := range p.RangeEdges {
				most := -1.0
				for i := range list {
					if a := cascades.PlannedAccuracy(p, &list[i]); a > most && len(p.CascadesInTime(list[i:i+1])) > 0 && devicesHaveTime(t, p, s, hosts, &list[i], edge) {
						most = a
					}
				}
				if most < 0 {
					return
				}
				total += p.RangeWeights[r] * most
			}
			best = max(best, total)
		})
		if math.Abs(best-plan.SingleCascadeBound) > 1e-9 || plan.SingleCascadeBound > plan.Bound+1e-7 || plan.Accuracy > plan.SingleCascadeBound+1e-9 {
			t.Errorf("instance %d: accuracy %.6f, bound of one gear per range %.6f, by brute force %.6f, of any mixture %.6f", seed, plan.Accuracy, plan.SingleCascadeBound, best, plan.Bound)
		}
		if math.Abs(plan.ValueBound-best) > 1e-7 || plan.IsProved != (plan.Accuracy >= plan.ValueBound-1e-9) {
			t.Errorf("instance %d: accuracy %.6f of %.6f, proven best: %v", seed, plan.Accuracy, plan.ValueBound, plan.IsProved)
		}
		if plan.IsProved {
			proved++
		}
	}
	if kinds < checked/4 || proved < checked/4 {
		t.Errorf("of %d instances only %d have several kinds, %d are proven best", checked, kinds, proved)
	}
}
