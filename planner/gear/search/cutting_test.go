package search

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/trials"
	"inferplan/planner/stages"
)

// stagedInstance draws a problem of two kinds of devices, whose models of four blocks may
// run in stages. Blocks are faster on one kind or on the other; in most, memory is short.
func stagedInstance(seed uint64) *cascades.Problem {
	rng := rand.New(rand.NewPCG(seed, 77))
	p := randomInstance(seed * 1000)
	for k := seed*1000 + 1; len(p.Kinds) > 1; k++ {
		p = randomInstance(k)
	}
	factors := make([]float64, 4)
	for i := range factors {
		factors[i] = []float64{.3, .5, 1, 2, 4}[rng.IntN(5)]
	}
	counts, memory := []int{1 + rng.IntN(4), 1 + rng.IntN(4)}, []int64{0, 0}
	if rng.IntN(3) > 0 {
		total := int64(0)
		for m := range p.Models {
			p.Models[m].Variants[0].Memory *= 4
			total += p.Models[m].Variants[0].Memory
		}
		for k := range memory {
			memory[k] = p.Models[len(p.Models)-1].Variants[0].Memory/2 + rng.Int64N(total)
		}
	}
	q := inBlocks(p, counts, []int{1 + rng.IntN(2), 1}, memory, []float64{0, 1, 10}[rng.IntN(3)], []float64{.2, .3, .3, .2}, factors)
	q.Blocks.MaxPartitions = 2 + rng.IntN(2)
	q.SLO = time.Duration(float64(q.SLO) * (.7 + rng.Float64()))
	q.OverRequests = rng.IntN(4) == 0
	for i := range q.RangeEdges {
		q.RangeEdges[i] *= .5 + 1.5*float64(counts[0]+counts[1])/4
	}
	return q
}

// cuttingOnly is a problem of which only one member may run in stages.
func cuttingOnly(p *cascades.Problem, member int) *cascades.Problem {
	q, b := *p, *p.Blocks
	b.Models = slices.Clone(b.Models)
	for m := range b.Models {
		if m != member {
			b.Models[m] = stages.Model{Name: b.Models[m].Name, ShareCosts: make([][]stages.ShareCosts, len(p.Kinds)), Weights: make([]int64, 1)}
		}
	}
	q.Blocks = &b
	return &q
}

// Where fewer members may run in stages, no plan is considerably better: what is possible
// there is possible here. The relaxation makes use of many chains at once, of which a plan
// in whole devices may be better off with one. Two instances of four without INFERPLAN_LONG.
func TestFewerMembersInStagesAreNoBetter(t *testing.T) {
	s, ctx := solver(t), context.Background()
	seeds := []uint64{90, 117}
	if long {
		seeds = append(seeds, 63, 127)
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p, all := stagedInstance(seed), -1.0
			if plan, err := Solve(ctx, p, s, Options{Seed: 1}); err == nil {
				all = plan.Accuracy
			} else if !cascades.IsInfeasible(err) {
				t.Fatal(err)
			}
			for m := range p.Models {
				plan, err := Solve(ctx, cuttingOnly(p, m), s, Options{Seed: 1})
				if err != nil && !cascades.IsInfeasible(err) {
					t.Fatal(err)
				}
				if err == nil && plan.Accuracy > all+2*trials.NextPlacementGain {
					t.Errorf("%s alone in stages: accuracy %v, where all members may %v (below 0: none)", p.Models[m].Name, plan.Accuracy, all)
				}
			}
		})
	}
}
