package search

import (
	"context"
	"errors"
	"math"
	"math/bits"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/planspace"
)

// drawProblem makes a small problem: two to four models, few samples.
func drawProblem(t *rapid.T) *cascades.Problem {
	m := rapid.IntRange(2, 4).Draw(t, "models")
	p := &cascades.Problem{Grid: rapid.IntRange(2, 4).Draw(t, "grid"), Kinds: []cascades.Kind{{Name: "device", Devices: rapid.IntRange(1, 3).Draw(t, "devices"), Price: 1}},
		SLO: 200 * time.Millisecond, Percentile: .95, RangeEdges: cascades.EqualRanges(rapid.Float64Range(50, 1500).Draw(t, "peak"), 2), RangeWeights: cascades.ZipfWeights(2)}
	n := rapid.IntRange(20, 60).Draw(t, "samples")
	p.PlanningSamples, p.HeldOutSamples = &cascades.Samples{N: n}, &cascades.Samples{Levels: make([][]uint8, m), Correct: make([][]bool, m)}
	total := int64(0)
	for k := range m {
		base, slope := rapid.IntRange(1, 10).Draw(t, "base"), rapid.IntRange(1, 4*(k+1)).Draw(t, "slope")
		model := cascades.Variant{Memory: rapid.Int64Range(1, 10).Draw(t, "memory")}
		for b := 1; b <= 8; b++ {
			model.MedianTimes = append(model.MedianTimes, time.Duration(base*1000+slope*250*b)*time.Microsecond)
		}
		total += model.Memory
		p.Models = append(p.Models, cascades.NewModel(string(rune('a'+k)), model))
		levels, correct := make([]uint8, n), make([]bool, n)
		for i := range n {
			levels[i] = uint8(rapid.IntRange(0, p.Grid-1).Draw(t, "level"))
			correct[i] = rapid.IntRange(0, 9).Draw(t, "luck") < 4+k+int(levels[i])
		}
		p.PlanningSamples.Levels, p.PlanningSamples.Correct = append(p.PlanningSamples.Levels, levels), append(p.PlanningSamples.Correct, correct)
		p.Thresholds = append(p.Thresholds, make([]float64, p.Grid-1))
	}
	p.Kinds[0].Memory = rapid.Int64Range(min(6, total), total+1).Draw(t, "device memory")
	return p
}

// Every cascade's reach and right answers are those of a replay of the samples,
// and no cascade of the definition is missing.
func TestEnumerateAgainstReplay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		usable := make([]bool, len(p.Models))
		for m := range usable {
			usable[m] = true
		}
		list := cascades.Enumerate(p.PlanningSamples, p.Grid, usable)
		seen := map[string]bool{}
		for _, c := range list {
			seen[string(c.Models)+"/"+string(c.Levels)] = true
			reach, correct := p.PlanningSamples.Replay(c.Models, c.Levels)
			for k := range reach {
				if int32(reach[k]) != c.ReachCounts[k] {
					t.Fatalf("%v %v: reach %v, replayed %v", c.Models, c.Levels, c.ReachCounts, reach)
				}
			}
			if int32(correct) != c.CorrectCount {
				t.Fatalf("%v %v: %d right, replayed %d", c.Models, c.Levels, c.CorrectCount, correct)
			}
		}
		if len(seen) != len(list) {
			t.Fatalf("%d cascades, %d different", len(list), len(seen))
		}
		for set := 1; set < 1<<len(p.Models); set++ {
			var models []uint8
			for m := range p.Models {
				if set&(1<<m) != 0 {
					models = append(models, uint8(m))
				}
			}
			levels := make([]uint8, len(models)-1)
			for i := range levels {
				levels[i] = 1
			}
			for done := false; !done; {
				reach, _ := p.PlanningSamples.Replay(models, levels)
				idle := false
				for k := 1; k < len(reach); k++ {
					idle = idle || reach[k] == 0 || reach[k] == reach[k-1]
				}
				if !idle && !seen[string(models)+"/"+string(levels)] {
					t.Fatalf("%v %v is missing", models, levels)
				}
				done = true
				for i := range levels {
					if levels[i]++; levels[i] < uint8(p.Grid) {
						done = false
						break
					}
					levels[i] = 1
				}
			}
		}
	})
}

// bruteForceAccuracy is the best weighted accuracy of the fluid model over every way to put
// models on devices, not only maximal sets, with Hall's condition by hand; -1
// where no placement holds all ranges.
func bruteForceAccuracy(p *cascades.Problem, list []cascades.Cascade, work [][]float64) float64 {
	var holds [][]uint32 // every multiset of subsets that fit
	var fits []uint32
	for set := uint32(0); set < 1<<len(p.Models); set++ {
		total := int64(0)
		for m := range p.Models {
			if set&(1<<m) != 0 {
				total += p.Models[m].Variants[0].Memory
			}
		}
		if total <= p.Kinds[0].Memory {
			fits = append(fits, set)
		}
	}
	var fill func(from int, devices []uint32)
	fill = func(from int, devices []uint32) {
		if len(devices) == p.Kinds[0].Devices {
			holds = append(holds, slices.Clone(devices))
			return
		}
		for i := from; i < len(fits); i++ {
			fill(i, append(devices, fits[i]))
		}
	}
	fill(0, nil)
	most := -1.0
	for _, devices := range holds {
		value, ok := 0.0, true
		for r, edge := range p.RangeEdges {
			best := -1.0
			for i := range list {
				fine := true
				for set := uint32(1); set < 1<<len(p.Models) && fine; set++ {
					w, n := 0.0, 0
					for m := range p.Models {
						if set&(1<<m) != 0 {
							w += work[i][m]
						}
					}
					for _, d := range devices {
						if d&set != 0 {
							n++
						}
					}
					fine = w*edge <= float64(n)
				}
				if fine {
					best = max(best, float64(list[i].CorrectCount)/float64(p.PlanningSamples.N))
				}
			}
			ok = ok && best >= 0
			value += p.RangeWeights[r] * best
		}
		if ok {
			most = max(most, value)
		}
	}
	return most
}

// On tiny instances: what the planner promises is feasible, no fluid plan of a
// brute-force planner exceeds the bound, and the chosen placements start at the
// brute-force optimum.
func TestAgainstBruteForce(t *testing.T) {
	s := solver(t)
	feasible := 0
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		list := planspace.WholeCascades(p)
		if len(list) == 0 {
			return
		}
		work := minWork(p, list)
		best := bruteForceAccuracy(p, list, work)
		chosen := placementOf(p, bestLayout(t, fleetOf(p, list)).Configs)
		fluid := 0.0
		for r, edge := range p.RangeEdges {
			at := -1.0
			for i := range list {
				if chosen.Load(work[i])*edge <= 1 {
					at = max(at, float64(list[i].CorrectCount)/float64(p.PlanningSamples.N))
				}
			}
			if at < 0 {
				fluid = -1
				break
			}
			fluid += p.RangeWeights[r] * at
		}
		if math.Abs(fluid-best) > 1e-9 {
			t.Fatalf("the chosen placement allows %v, brute force %v", fluid, best)
		}
		bounds, _, err := fleetOf(p, list).RangeBounds(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		oneRangeByLP(t, p, list, work, bounds, s)
		bound := 0.0
		for r := range bounds {
			bound += p.RangeWeights[r] * bounds[r]
		}
		if best >= 0 && !(bound >= best-1e-7) {
			t.Fatalf("bound %v below a plan with %v", bound, best)
		}
		if feasible > 25 { // simulations take time: a few are enough
			return
		}
		plan, err := Solve(context.Background(), p, s, Options{Seed: 1})
		if inf, ok := errors.AsType[*cascades.InfeasibleError](err); ok {
			if inf.Reason() == "" {
				t.Fatal("infeasible without a reason")
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		feasible++
		if best < 0 || plan.Accuracy > best+1e-9 {
			t.Fatalf("accuracy %v, the fluid model allows %v", plan.Accuracy, best)
		}
		for _, c := range plan.Configs {
			total := int64(0)
			for rest := c.ModelSet; rest > 0; rest &= rest - 1 {
				total += p.Models[bits.TrailingZeros32(rest)].Variants[0].Memory
			}
			if total > p.Kinds[0].Memory {
				t.Fatalf("models %b take %d of %d bytes", c.ModelSet, total, p.Kinds[0].Memory)
			}
		}
		for r := range plan.Gears {
			g := &plan.Gears[r]
			w := minWork(p, []cascades.Cascade{g.Cascade})[0]
			loads := make([]float64, p.Kinds[0].Devices)
			for m := range w {
				for k, d := range plan.Replicas(m, 0) {
					loads[d] += w[m] * p.RangeEdges[r] * g.Shares[m][k]
				}
			}
			if got := slices.Max(loads); got > 1+1e-6 || math.Abs(got-g.BusiestLoad) > 1e-6 {
				t.Fatalf("range %d: busiest device %v, said to be %v", r, got, g.BusiestLoad)
			}
			if !g.Trial.Passed || g.Trial.Latency > p.SLO {
				t.Fatalf("range %d: trial %+v", r, g.Trial)
			}
		}
	})
	if feasible < 10 {
		t.Errorf("only %d instances had a plan", feasible)
	}
}
