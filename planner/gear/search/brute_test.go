package search

import (
	"context"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/placement"
	"inferplan/planner/gear/planspace"
	"inferplan/planner/gear/trials"
)

// everyPlacement are all ways to give the devices sets of models that fit,
// maximal or not.
func everyPlacement(p *cascades.Problem) []*modelPlacement {
	var fits []uint32
	for set := uint32(1); set < 1<<len(p.Models); set++ {
		if p.Kinds[0].Memory == 0 || memoryOf(p, 0, set) <= p.Kinds[0].Memory {
			fits = append(fits, set)
		}
	}
	var out []*modelPlacement
	if len(fits) > 0 {
		planspace.EachComposition(p.Kinds[0].Devices, len(fits), func(counts []int) { out = append(out, newPlacement(len(p.Models), fits, counts)) })
	}
	return out
}

// largestLevelStep is the largest difference in accuracy between two cascades that differ in
// one threshold by one level.
func largestLevelStep(list []cascades.Cascade, samples int) float64 {
	most := int32(0)
	for i := range list {
		for k := range i {
			a, b := &list[i], &list[k]
			if !slices.Equal(a.Models, b.Models) {
				continue
			}
			differ := 0
			for l := range a.Levels {
				differ += max(int(a.Levels[l])-int(b.Levels[l]), int(b.Levels[l])-int(a.Levels[l]))
			}
			if differ == 1 {
				most = max(most, a.CorrectCount-b.CorrectCount, b.CorrectCount-a.CorrectCount)
			}
		}
	}
	return float64(most) / float64(samples)
}

// A planner that simulates every cascade in every range on every placement, with
// the trials that ours takes, beats ours by no more than a step of the grid.
func TestAgainstSimulatedBruteForce(t *testing.T) {
	held, equal := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		if held >= 12 { // every cascade is simulated: a few are enough
			return
		}
		p := drawProblem(t)
		if len(p.Models) > 3 || p.Kinds[0].Devices > 2 {
			return
		}
		ctx := context.Background()
		list := planspace.WholeCascades(p)
		if len(list) == 0 || len(list) > 40 {
			return
		}
		work := minWork(p, list)
		best := -1.0
		for _, pl := range everyPlacement(p) {
			b := trials.NewSimulator(p, pl.Configs, nil, 1)
			value, ok := 0.0, true
			for r, edge := range p.RangeEdges {
				most := -1.0
				for i := range list {
					accuracy := float64(list[i].CorrectCount) / float64(p.PlanningSamples.N)
					if accuracy <= most || pl.Load(work[i])*edge > 1 {
						continue
					}
					shares, _ := pl.Split(work[i])
					trial, err := b.TryCascade(ctx, &placement.LoadedCascade{Cascade: &list[i], Shares: shares, MaxLoad: 1 / edge}, edge)
					if err != nil {
						t.Fatal(err)
					}
					if trial.Passed {
						most = accuracy
					}
				}
				if most < 0 {
					ok = false
					break
				}
				value += p.RangeWeights[r] * most
			}
			if ok {
				best = max(best, value)
			}
		}
		plan, err := Solve(ctx, p, programs, Options{Seed: 1})
		if _, none := errors.AsType[*cascades.InfeasibleError](err); none {
			if best >= 0 {
				t.Fatalf("infeasible (%v), brute force has accuracy %v", err, best)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		held++
		if plan.Accuracy >= best-1e-12 {
			equal++
		}
		if most := largestLevelStep(list, p.PlanningSamples.N); best > plan.Accuracy+most+1e-12 {
			t.Fatalf("accuracy %v, brute force %v: more than a step of %v above", plan.Accuracy, best, most)
		}
	})
	t.Logf("%d instances, ours at least as accurate in %d", held, equal)
	if held < 5 {
		t.Errorf("only %d instances had a plan", held)
	}
}
