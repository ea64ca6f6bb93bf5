package search

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/cputime"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/planspace"
)

// mixedKinds turns a problem on identical devices into one on two kinds: some devices
// as they are, others whose times are factors (by model) of them.
func mixedKinds(p *cascades.Problem, first, second int, factors []float64) *cascades.Problem {
	q := *p
	q.Kinds = []cascades.Kind{{Name: "a", Devices: first, Memory: p.Kinds[0].Memory, Price: 1}, {Name: "b", Devices: second, Memory: p.Kinds[0].Memory, Price: 1}}
	q.Models = slices.Clone(p.Models)
	for m := range q.Models {
		own := q.Models[m].FastestTimes
		other, memory := make([]time.Duration, len(own)), q.Models[m].Variants[0].Memory
		for b, t := range own {
			other[b] = time.Duration(factors[m] * float64(t))
		}
		q.Models[m] = cascades.NewModel(q.Models[m].Name, cascades.Variant{MedianTimes: own, Memory: memory}, cascades.Variant{MedianTimes: other, Memory: memory})
	}
	return &q
}

// Two kinds that are the same are planned as one kind: the same bound, and an
// accuracy that is no lower by more than a few steps.
func TestMixedOfOneKind(t *testing.T) {
	for _, c := range []struct {
		f             *family
		first, second int
	}{{&bert5, 1, 2}, {&llama4, 2, 4}} {
		if c.f == &bert5 && !long {
			continue
		}
		p := c.f.problem(t, c.first+c.second, 10)
		one := c.f.planOnce(t, c.first+c.second)
		start := cputime.Used()
		two, err := Solve(context.Background(), mixedKinds(p, c.first, c.second, []float64{1, 1, 1, 1, 1}), solver(t), Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("one kind %.4f of %.4f; two %.4f of %.4f, %d simulations, %v of CPU, %+v, one more device %.4f", one.Accuracy, one.Bound, two.Accuracy, two.Bound, two.RunCount, cputime.Used()-start, two.Configs, two.OneMoreBounds)
		if math.Abs(one.Bound-two.Bound) > 1e-6 || two.Accuracy < one.Accuracy-.002 || two.Accuracy > two.Bound {
			t.Errorf("one kind %.4f of %.5f; two %.4f of %.5f", one.Accuracy, one.Bound, two.Accuracy, two.Bound)
		}
	}
}

// On unrelated speeds models go where they are fast: more is reached than with
// either kind's devices alone, and than by ignoring which is which.
func TestMixedUsesSpeeds(t *testing.T) {
	p := bert5.problem(t, 2, 10)
	factors := []float64{3, 2, 1.5, 1, .6} // the other kind is slow at small models and fast at the largest
	two, err := Solve(context.Background(), mixedKinds(p, 1, 1, factors), solver(t), Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	same := bert5.planOnce(t, 2)
	t.Logf("%.4f of %.4f, on two of the first kind %.4f of %.4f", two.Accuracy, two.Bound, same.Accuracy, same.Bound)
	if two.Accuracy <= same.Accuracy || two.Bound-two.Accuracy > .002 {
		t.Errorf("%.4f of %.4f, on two of the first kind %.4f", two.Accuracy, two.Bound, same.Accuracy)
	}
}

// Whatever the kinds: memory and utilisation are respected, fractions are the
// records', the accuracy is within the bound.
func TestMixedProperties(t *testing.T) {
	s := solver(t)
	held := 0
	rapid.Check(t, func(t *rapid.T) {
		if held > 25 {
			return
		}
		p := drawProblem(t)
		factors := make([]float64, len(p.Models))
		for m := range factors {
			factors[m] = rapid.Float64Range(.3, 4).Draw(t, "factor")
		}
		q := mixedKinds(p, p.Kinds[0].Devices, rapid.IntRange(1, 2).Draw(t, "others"), factors)
		q.Kinds[1].Memory = rapid.Int64Range(1, 12).Draw(t, "other memory")
		plan, err := Solve(context.Background(), q, s, Options{Seed: 1})
		if inf, ok := errors.AsType[*cascades.InfeasibleError](err); ok {
			if inf.Reason() == "" {
				t.Fatal("infeasible without a reason")
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		held++
		used := make([]int, len(q.Kinds))
		for _, c := range plan.Configs {
			used[c.Kind] += c.Count
			total := int64(0)
			for m := range q.Models {
				if c.ModelSet&(1<<m) != 0 {
					total += q.Models[m].Variants[c.Kind].Memory
				}
			}
			if total > q.Kinds[c.Kind].Memory {
				t.Fatalf("models %b take %d of %d bytes", c.ModelSet, total, q.Kinds[c.Kind].Memory)
			}
		}
		space := planspace.NewSpace(q, nil, nil)
		for k := range used {
			if used[k] > q.Kinds[k].Devices {
				t.Fatalf("%d of %d devices of kind %d", used[k], q.Kinds[k].Devices, k)
			}
		}
		for r := range plan.Gears {
			g := &plan.Gears[r]
			reach, correct := q.PlanningSamples.Replay(g.Cascade.Models, g.Cascade.Levels)
			if int32(correct) != g.Cascade.CorrectCount {
				t.Fatalf("range %d: %d right, the records say %d", r, g.Cascade.CorrectCount, correct)
			}
			loads := [2][]float64{make([]float64, used[0]), make([]float64, used[1])}
			for k, m := range g.Cascade.Models {
				if int32(reach[k]) != g.Cascade.ReachCounts[k] {
					t.Fatalf("range %d: %+v, the records say %v", r, g.Cascade, reach)
				}
				i := 0
				for kind := range loads {
					for _, d := range plan.Replicas(int(m), kind) {
						loads[kind][d] += g.Shares[m][i] * q.RangeEdges[r] * float64(reach[k]) / float64(q.PlanningSamples.N) * space.SecondsPerSample[kind][m]
						i++
					}
				}
				if i != len(g.Shares[m]) {
					t.Fatalf("range %d: %d shares of model %d, %d replicas", r, len(g.Shares[m]), m, i)
				}
			}
			if got := max(slices.Max(append(loads[0], 0)), slices.Max(append(loads[1], 0))); got > 1+1e-6 || math.Abs(got-g.BusiestLoad) > 1e-6 {
				t.Fatalf("range %d: busiest device %v, said to be %v", r, got, g.BusiestLoad)
			}
			if g.Accuracy > g.Bound+1e-9 || !g.Trial.Passed {
				t.Fatalf("range %d: accuracy %v, bound %v, trial %+v", r, g.Accuracy, g.Bound, g.Trial)
			}
		}
	})
	if held < 8 {
		t.Errorf("only %d instances had a plan", held)
	}
}
