package graph

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/planner/flow/terms"
	"inferplan/solver/highs"
)

// drawProblem is a tiny problem: up to three modules in one or two applications that
// share models, variants, two pools.
func drawProblem(t *rapid.T) *problem {
	p := &problem{batchWait: rapid.SampledFrom([]float64{1, .45, 0}).Draw(t, "batch wait"), pools: []pool{
		{kind: "A", count: rapid.IntRange(1, 3).Draw(t, "A"), price: 2},
		{kind: "B", count: rapid.IntRange(0, 2).Draw(t, "B"), price: 1},
	}}
	for u := range 3 {
		byPool := make([][]template, len(p.pools))
		for k := range p.pools {
			took := time.Duration(rapid.IntRange(2, 9).Draw(t, "first")) * time.Millisecond
			for _, b := range []int{1, 2, 4}[:rapid.IntRange(0, 3).Draw(t, "batches")] {
				share := rapid.IntRange(1, 2).Draw(t, "share")
				byPool[k] = append(byPool[k], template{batch: b, sharesPerDevice: share, worstTime: took, rate: float64(b*share) / took.Seconds()})
				took += time.Duration(rapid.IntRange(1, 6).Draw(t, "more")) * time.Millisecond
			}
		}
		p.models = append(p.models, model{name: string(rune('x' + u)), levels: levelsOf(byPool)})
	}
	for a := range rapid.IntRange(1, 2).Draw(t, "applications") {
		app := app{name: string(rune('p' + a)), slo: time.Duration(rapid.IntRange(10, 90).Draw(t, "slo")) * time.Millisecond,
			weight: rapid.Float64Range(20, 300).Draw(t, "weight"), accuracyFloor: rapid.SampledFrom([]float64{0, .7, .9}).Draw(t, "floor")}
		n := rapid.IntRange(1, 3).Draw(t, "modules")
		for i := range n {
			node := appModule{name: string(rune('0' + i)), visitShare: rapid.SampledFrom([]float64{1, .4}).Draw(t, "chance"), choices: []choice{{model: rapid.IntRange(0, 2).Draw(t, "model"), accuracy: .95}}}
			if rapid.Bool().Draw(t, "variant") {
				node.choices = append(node.choices, choice{model: (node.choices[0].model + 1) % 3, accuracy: .8})
			}
			app.modules = append(app.modules, node)
		}
		switch {
		case n == 3 && rapid.Bool().Draw(t, "split"):
			app.paths = [][]int{{0, 1}, {0, 2}}
		default:
			path := []int(nil)
			for i := range n {
				path = append(path, i)
			}
			app.paths = [][]int{path}
		}
		p.apps = append(p.apps, app)
	}
	return p
}

// visitSolutions visits every choice, level and number of devices that keeps deadlines,
// floors and pools.
func (p *problem) visitSolutions(visit func(s *solution)) {
	s := &solution{level: make([]int, len(p.models))}
	for range p.models {
		s.devices = append(s.devices, make([]int, len(p.pools)))
	}
	for a := range p.apps {
		s.choice = append(s.choice, make([]int, len(p.apps[a].modules)))
	}
	var devices func(u int)
	devices = func(u int) {
		if u == len(p.models) {
			visit(s)
			return
		}
		if s.level[u] < 0 {
			devices(u + 1)
			return
		}
		var fill func(k int)
		fill = func(k int) {
			if k == len(p.pools) {
				devices(u + 1)
				return
			}
			left := p.pools[k].count
			for o := range u {
				left -= s.devices[o][k]
			}
			if p.models[u].levels[s.level[u]].templates[k].rate == 0 {
				left = min(left, 0)
			}
			for n := 0; n <= left; n++ {
				s.devices[u][k] = n
				fill(k + 1)
			}
			s.devices[u][k] = 0
		}
		fill(0)
	}
	var levels func(u int, used []bool)
	levels = func(u int, used []bool) {
		if u == len(p.models) {
			for a := range p.apps {
				if p.longestPathTime(s, a) > p.apps[a].budget() {
					return
				}
			}
			devices(0)
			return
		}
		s.level[u] = -1
		if !used[u] {
			levels(u+1, used)
			return
		}
		for l := range p.models[u].levels {
			s.level[u] = l
			levels(u+1, used)
		}
	}
	var choices func(a, i int)
	choices = func(a, i int) {
		if a == len(p.apps) {
			used := make([]bool, len(p.models))
			for a := range p.apps {
				accuracy := 1.0
				for i, c := range s.choice[a] {
					used[p.apps[a].modules[i].choices[c].model] = true
					accuracy *= p.apps[a].modules[i].choices[c].accuracy
				}
				if accuracy < p.apps[a].accuracyFloor-1e-12 {
					return
				}
			}
			levels(0, used)
			return
		}
		if i == len(p.apps[a].modules) {
			choices(a+1, 0)
			return
		}
		for c := range p.apps[a].modules[i].choices {
			s.choice[a][i] = c
			choices(a, i+1)
		}
	}
	choices(0, 0)
}

// What the program finds is what trying everything finds: the rate with its
// fewest devices, the price at given rates with its fewest devices.
func TestSearchFindsBruteForceOptimum(t *testing.T) {
	solved := 0
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		rate, price, fewestRate, fewestPrice := 0.0, math.Inf(1), 0, 0
		p.visitSolutions(func(s *solution) {
			f := p.rateFactor(s)
			if n := s.deviceCount(); f > rate*(1+1e-9) || f > rate*(1-1e-9) && n < fewestRate {
				rate, fewestRate = max(f, rate), n
			}
			if c, n := p.price(s), s.deviceCount(); f >= 1-1e-9 && (c < price-1e-9 || c < price+1e-9 && n < fewestPrice) {
				price, fewestPrice = c, n
			}
		})
		s := &planSearch{problem: p, solver: highs.Solver{}}
		got, err := s.throughput(context.Background())
		switch {
		case errors.Is(err, terms.ErrNoPlan) && rate == 0:
			if err := s.explainInfeasible(context.Background(), false); err == nil {
				t.Fatal("no reason")
			}
			return
		case err != nil:
			t.Fatalf("%v, trying everything gives %v", err, rate)
		case math.Abs(got.value-rate) > 1e-6*rate || got.bound < rate*(1-1e-6) || got.solution.deviceCount() != fewestRate:
			t.Fatalf("rate %v (bound %v) on %d devices, trying everything gives %v on %d", got.value, got.bound, got.solution.deviceCount(), rate, fewestRate)
		}
		solved++
		got, err = s.cheapest(context.Background())
		switch {
		case errors.Is(err, terms.ErrNoPlan) && math.IsInf(price, 1):
		case err != nil:
			t.Fatalf("%v, trying everything gives %v", err, price)
		case math.Abs(got.value-price) > 1e-6*price || got.bound > price*(1+1e-6) || got.solution.deviceCount() != fewestPrice:
			t.Fatalf("price %v (bound %v) on %d devices, trying everything gives %v on %d", got.value, got.bound, got.solution.deviceCount(), price, fewestPrice)
		}
	})
	t.Logf("%d of them have plans", solved)
	if solved == 0 {
		t.Error("no problem has a plan")
	}
}

// Of the plans of one price the one that carries most is taken: nearly the largest
// factor that trying everything finds at that price and number of devices.
func TestCheapestPlanCarriesMost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		got, err := (&planSearch{problem: p, solver: highs.Solver{}}).cheapest(context.Background())
		if err != nil {
			return
		}
		most := 0.0
		p.visitSolutions(func(s *solution) {
			if p.price(s) <= got.value*(1+1e-9) && s.deviceCount() <= got.solution.deviceCount() {
				most = max(most, p.rateFactor(s))
			}
		})
		if f := p.rateFactor(got.solution); f < min(most, 2)*.97 {
			t.Errorf("the plan carries %v times the rates, one of the same price %v times", f, most)
		}
	})
}

// What is left of the deadlines goes to batches that carry more, of no module less.
func TestLargerBatchesUseRestOfDeadlines(t *testing.T) {
	more := 0
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		got, err := (&planSearch{problem: p, solver: highs.Solver{}}).cheapest(context.Background())
		if err != nil {
			return
		}
		before := make([]float64, len(p.models))
		for u := range before {
			before[u] = p.capacity(got.solution, u)
		}
		p.enlargeBatches(got.solution)
		for u := range before {
			if c := p.capacity(got.solution, u); c < before[u] {
				t.Errorf("model %d carries %v, before %v", u, c, before[u])
			} else if c > before[u] {
				more++
			}
		}
		for u, l := range got.solution.level {
			if l >= 0 && p.modelRates(got.solution)[u] > 0 && p.raiseLevel(got.solution, u) {
				t.Errorf("model %d could carry more", u)
			}
		}
		if !p.keepsDeadlines(got.solution) {
			t.Error("a deadline is missed")
		}
	})
	if more == 0 {
		t.Error("nothing was widened")
	}
}
