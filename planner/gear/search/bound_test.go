package search

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/placement"
	"inferplan/planner/gear/planspace"
	"inferplan/planner/gear/trials"
	"inferplan/solver/knapsack"
	"inferplan/solver/milp"
	"inferplan/solver/pareto"
)

// oneRangeByLP holds the bounds against the linear program that they are the
// solution of: fractions of devices for every set of models that fits into
// memory, any split of the work, any mixture of cascades.
func oneRangeByLP(t interface{ Fatalf(string, ...any) }, p *cascades.Problem, list []cascades.Cascade, work [][]float64, bounds []float64, solver milp.Solver) {
	accuracy := make([]float64, len(list))
	for i := range list {
		accuracy[i] = float64(list[i].CorrectCount) / float64(p.PlanningSamples.N)
	}
	for r, edge := range p.RangeEdges {
		correct := make([]int32, len(list))
		for i := range list {
			correct[i] = list[i].CorrectCount
		}
		undominated, err := pareto.UndominatedPoints(context.Background(), work, correct)
		if err != nil {
			t.Fatalf("%v", err)
		}
		want, err := relaxation(context.Background(), p, undominated, accuracy, work, configurationsOf(p), edge, solver)
		if err != nil {
			t.Fatalf("range %d: %v", r, err)
		}
		if math.Abs(want-bounds[r]) > 1e-6 || math.IsNaN(want) != math.IsNaN(bounds[r]) {
			t.Fatalf("range %d: bound %v, by linear programming %v", r, bounds[r], want)
		}
	}
}

func TestBoundOfPublishedFamilies(t *testing.T) {
	for _, devices := range []int{1, 4, 6} {
		p := llama4.problem(t, devices, 10)
		list := planspace.WholeCascades(p)
		work := minWork(p, list)
		oneRangeByLP(t, p, list, work, boundsOf(t, fleetOf(p, list)), solver(t))
	}
}

// relaxation solves the linear program of one range. NaN: infeasible.
func relaxation(ctx context.Context, p *cascades.Problem, best []int, accuracy []float64, work [][]float64, sets []uint32, edge float64, solver milp.Solver) (float64, error) {
	m := milp.New("gears")
	m.SetSense(milp.Maximize)
	one := make([]milp.Term, 0, len(best))
	need := make([][]milp.Term, len(p.Models))
	for _, i := range best {
		x := m.AddVar("", 0, milp.Inf, accuracy[i])
		one = append(one, milp.Term{Var: x, Coef: 1})
		for k, w := range work[i] {
			if w > 0 {
				need[k] = append(need[k], milp.Term{Var: x, Coef: w * edge})
			}
		}
	}
	m.AddEQ("one cascade", 1, one...)
	devices := make([]milp.Term, 0, len(sets))
	for _, set := range sets {
		n := m.AddVar("", 0, milp.Inf, 0)
		devices = append(devices, milp.Term{Var: n, Coef: 1})
		time := []milp.Term{{Var: n, Coef: -1}}
		for k := range p.Models {
			if set&(1<<k) != 0 {
				f := m.AddVar("", 0, milp.Inf, 0)
				time = append(time, milp.Term{Var: f, Coef: 1})
				need[k] = append(need[k], milp.Term{Var: f, Coef: -1})
			}
		}
		m.AddLE("", 0, time...)
	}
	for k := range need {
		if len(need[k]) > 0 {
			m.AddLE("", 0, need[k]...)
		}
	}
	m.AddLE("devices", float64(p.Kinds[0].Devices), devices...)
	sol, err := solver.Solve(ctx, m, milp.Options{})
	if err != nil {
		return 0, err
	}
	if sol.X == nil {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return math.NaN(), nil
	}
	if math.IsNaN(sol.Bound) {
		return sol.Value, nil
	}
	return max(sol.Bound, sol.Value), nil
}

// bestByEnumeration is the most weighted accuracy of the plans that simulation shows stable on
// any placement: every cascade in every range, of batches of any length where the SLO is
// for all requests; -1 where there is none.
func bestByEnumeration(t *rapid.T, p *cascades.Problem) float64 {
	free := *p
	usable := slices.Repeat([]bool{true}, len(p.Models))
	if p.OverRequests {
		free.SLO = time.Hour
	} else {
		usable = usableOf(p)
	}
	list := cascades.Enumerate(p.PlanningSamples, p.Grid, usable)
	work, best := minWork(&free, list), -1.0
	for _, pl := range everyPlacement(p) {
		b := trials.NewSimulator(&free, pl.Configs, nil, 1)
		options := make([][]knapsack.Choice, len(p.RangeEdges))
		for r, edge := range p.RangeEdges {
			for i := range list {
				if pl.Load(work[i])*edge > 1 {
					continue
				}
				shares, _ := pl.Split(work[i])
				got, err := b.TryOnce(context.Background(), &placement.LoadedCascade{Cascade: &list[i], Shares: shares}, edge, trials.ShortestRunLength(p.SLO, edge), p.SLO, nil)
				if err != nil {
					t.Fatal(err)
				}
				if got.Stable && (p.OverRequests || got.Passed) {
					options[r] = append(options[r], knapsack.Choice{Value: p.RangeWeights[r] * float64(list[i].CorrectCount) / float64(p.PlanningSamples.N), Weight: p.RangeWeights[r] * got.LateShare})
				}
			}
		}
		best = max(best, mostOf(options, 1-p.Percentile, p.OverRequests))
	}
	return best
}

// mostOf is the most accuracy of a choice per range, with no more lateness than there
// is room for where that counts.
func mostOf(options [][]knapsack.Choice, room float64, counts bool) float64 {
	if len(options) == 0 {
		return 0
	}
	best := -1.0
	for _, c := range options[0] {
		if counts && c.Weight > room {
			continue
		}
		if rest := mostOf(options[1:], room-c.Weight, counts); rest >= 0 {
			best = max(best, c.Value+rest)
		}
	}
	return best
}

// No plan exceeds its bound, whether the SLO is for every range or for all requests
// together: not even one that answers a few requests by what never keeps the SLO.
func TestNoPlanBeatsItsBound(t *testing.T) {
	s := solver(t)
	seen, beyond := map[bool]int{}, 0
	for seed := 1; (seen[true] < 10 || seen[false] < 10 || beyond < 1) && seed < 300; seed++ {
		rapid.Custom(func(t *rapid.T) int {
			p := drawProblem(t)
			p.OverRequests = seed%2 == 0
			if len(p.Models) > 3 || p.Kinds[0].Devices > 2 || seen[p.OverRequests] >= 10 && (!p.OverRequests || beyond > 0) {
				return 0
			}
			p.SLO = time.Duration(rapid.IntRange(4, 30).Draw(t, "slo")) * time.Millisecond
			p.Percentile = rapid.SampledFrom([]float64{.8, .95}).Draw(t, "percentile")
			p.RangeWeights = cascades.HistogramWeights([]float64{rapid.Float64Range(.01, .5).Draw(t, "weight"), .5})
			best := bestByEnumeration(t, p)
			usable := planspace.WholeCascades(p)
			if best < 0 || len(usable) == 0 {
				return 0
			}
			seen[p.OverRequests]++
			one := &planSearch{problem: p, options: &Options{Seed: 1}, cache: cascades.CascadeCache{}, history: trials.NewHistory(1), solver: s}
			bound, err := one.relaxedAccuracy(context.Background(), p)
			if err != nil || !(best <= bound+1e-9) {
				t.Fatalf("over all requests %v: a plan has %v, the bound is %v, %v", p.OverRequests, best, bound, err)
			}
			if alone := p.WeightedSum(boundsOf(t, fleetOf(p, usable))); !(best <= alone+1e-9) {
				beyond++ // what keeps the SLO by itself does not bound it
			}
			q := mixedKinds(p, p.Kinds[0].Devices, 0, []float64{1, 1, 1, 1})
			several := &planSearch{problem: q, options: &Options{Seed: 1}, cache: cascades.CascadeCache{}, history: trials.NewHistory(1), solver: s}
			if bound, err = several.relaxedAccuracy(context.Background(), q); err != nil || !(best <= bound+1e-6) {
				t.Fatalf("over all requests %v, by programs: a plan has %v, the bound is %v, %v", p.OverRequests, best, bound, err)
			}
			return 0
		}).Example(seed)
	}
	t.Logf("%v plans, %d of them above what keeps the SLO by itself", seen, beyond)
	if seen[true] < 5 || seen[false] < 5 || beyond < 1 {
		t.Errorf("%v plans were enumerated, %d of them above what keeps the SLO by itself", seen, beyond)
	}
}

// Answering the range of few requests by a model that is never in time keeps an SLO
// over all requests, so that the bound is not below its accuracy.
func TestBoundOfRequestsTogether(t *testing.T) {
	p := lateModel(t)
	plan, err := Solve(context.Background(), p, programs, Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	large := 0
	for _, right := range p.PlanningSamples.Correct[1] {
		if right {
			large++
		}
	}
	late := p.RangeWeights[0] * float64(large) / float64(p.PlanningSamples.N)
	if lateAccuracy := late + p.RangeWeights[1]*plan.Gears[1].Accuracy; p.RangeWeights[0] > 1-p.Percentile || !(lateAccuracy > plan.Accuracy+.01) || plan.Bound < lateAccuracy || plan.Bound > lateAccuracy+.005 {
		t.Errorf("accuracy %.4f, bound %.4f, with the late model in a range of %.3f of the requests %.4f", plan.Accuracy, plan.Bound, p.RangeWeights[0], lateAccuracy)
	}
}

// lateModel is a problem of two models, of which the more accurate one takes longer
// than the SLO; one request in 25 comes at a low rate.
func lateModel(t *testing.T) *cascades.Problem {
	t.Helper()
	times := func(one, more time.Duration, most int) (out []time.Duration) {
		for b := range most {
			out = append(out, one+time.Duration(b)*more)
		}
		return out
	}
	rng, n := rand.New(rand.NewPCG(1, 1)), 6400
	p := &cascades.Problem{Grid: 10, Kinds: []cascades.Kind{{Devices: 1}}, SLO: 28 * time.Millisecond, Percentile: .95, OverRequests: true, RangeEdges: []float64{20, 40}, RangeWeights: []float64{.041, .959},
		Models:          []cascades.Model{cascades.NewModel("small", cascades.Variant{MedianTimes: times(5*time.Millisecond, time.Millisecond/3, 16)}), cascades.NewModel("large", cascades.Variant{MedianTimes: times(30*time.Millisecond, 14*time.Millisecond/3, 4)})},
		PlanningSamples: &cascades.Samples{N: n, Levels: make([][]uint8, 2), Correct: make([][]bool, 2)}, Thresholds: [][]float64{make([]float64, 9), make([]float64, 9)}}
	for range n {
		h := rng.NormFloat64()
		for m, right := range []bool{h+rng.NormFloat64() > -.5, h+.2*rng.NormFloat64() > -2} {
			p.PlanningSamples.Levels[m] = append(p.PlanningSamples.Levels[m], uint8(rng.IntN(10)))
			p.PlanningSamples.Correct[m] = append(p.PlanningSamples.Correct[m], right)
		}
	}
	return p
}
