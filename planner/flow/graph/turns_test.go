package graph

import (
	"context"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/flow/terms"
	"inferplan/planner/kind"
	"inferplan/solver/highs"
)

// drawTimeSharedProblem is a tiny problem on one or two devices that modules may share in time.
func drawTimeSharedProblem(t *rapid.T) *problem {
	p := drawProblem(t)
	p.pools = []pool{{kind: "A", count: rapid.IntRange(1, 2).Draw(t, "devices"), price: 1, timeShared: true}}
	for u := range p.models {
		var list []template
		for _, l := range p.models[u].levels {
			if one := l.templates[0]; one.rate > 0 {
				one.rate, one.sharesPerDevice = one.rate/float64(one.sharesPerDevice), 1
				list = append(list, one)
			}
		}
		p.models[u].levels = levelsOf([][]template{list})
	}
	return p
}

// visitSharedPlacements visits the common factor of the rates of every choice and level, with every
// model on any of the devices. Where a model meets others a task may wait for the longest
// run of any of them.
func (p *problem) visitSharedPlacements(visit func(factor float64)) {
	on := make([]int, len(p.models)) // bits of devices
	devices := p.pools[0].count
	slow := *p
	slow.apps = append([]app(nil), p.apps...)
	for a := range slow.apps {
		slow.apps[a].slo, slow.apps[a].margin = time.Hour, 0 // deadlines are judged here
	}
	var put func(s *solution, u int)
	put = func(s *solution, u int) {
		if u == len(p.models) {
			if p.keepsDeadlinesOn(s, on) {
				visit(p.rateFactorOn(s, on))
			}
			return
		}
		if on[u] = 0; s.level[u] < 0 {
			put(s, u+1)
			return
		}
		for bits := 1; bits < 1<<devices; bits++ {
			on[u] = bits
			put(s, u+1)
		}
	}
	slow.pools = []pool{{kind: "A", count: len(p.models)}}
	seen := map[string]bool{}
	slow.visitSolutions(func(s *solution) {
		if key := (&solution{choice: s.choice, level: s.level}).mapKey(); !seen[key] {
			seen[key] = true
			put(s, 0)
		}
	})
}

// keepsDeadlinesOn returns whether all paths keep their deadlines with models on devices.
func (p *problem) keepsDeadlinesOn(s *solution, on []int) bool {
	step := make([]time.Duration, len(p.models))
	for u := range step {
		if s.level[u] < 0 {
			continue
		}
		took := p.models[u].levels[s.level[u]].maxTime
		wait := took
		for o := range step {
			if s.level[o] >= 0 && on[u]&on[o] != 0 {
				wait = max(wait, p.models[o].levels[s.level[o]].maxTime)
			}
		}
		step[u] = time.Duration(p.batchWait*float64(wait)) + took
	}
	for a := range p.apps {
		for _, path := range p.apps[a].paths {
			sum := time.Duration(0)
			for _, i := range path {
				sum += step[p.apps[a].modules[i].choices[s.choice[a][i]].model]
			}
			if sum > p.apps[a].budget() {
				return false
			}
		}
	}
	return true
}

// rateFactorOn is the common factor of the rates that devices carry: what models that are on
// some of them alone ask for is at most their time.
func (p *problem) rateFactorOn(s *solution, on []int) float64 {
	asked, least := p.modelRates(s), 0.0
	for set := 1; set < 1<<p.pools[0].count; set++ {
		time, devices := 0.0, 0.0
		for u, rate := range asked {
			if rate > 0 && on[u]&^set == 0 {
				time += rate / p.models[u].levels[s.level[u]].templates[0].rate
			}
		}
		for d := range p.pools[0].count {
			devices += float64(set >> d & 1)
		}
		if f := devices / time; time > 0 && (least == 0 || f < least) {
			least = f
		}
	}
	return least
}

// A plan of modules that take turns is as good as the best of all placements on one device. On two it is
// nearly so in the mean, and seldom a quarter below. No placement is above the bound of all plans.
func TestTurnsBruteForce(t *testing.T) {
	solved, sum, worst := 0, 0.0, 1.0
	rapid.Check(t, func(t *rapid.T) {
		p := drawTimeSharedProblem(t)
		best := 0.0
		p.visitSharedPlacements(func(f float64) { best = max(best, f) })
		got, err := (&planSearch{problem: p, solver: highs.Solver{}}).throughput(context.Background())
		switch {
		case errors.Is(err, terms.ErrNoPlan) && best == 0:
			return
		case err != nil:
			t.Fatalf("%v, trying everything gives %v", err, best)
		}
		if got.value > best*(1+1e-6) || got.value < best*.7 || p.pools[0].count == 1 && got.value < best*(1-1e-6) {
			t.Fatalf("rate %v on %d devices, trying everything gives %v", got.value, p.pools[0].count, best)
		}
		in := &kind.Problem{}
		in.Values = document.NewValues(formats.PlanOptions(formats.PlanFlow))
		r := &resolvedProblem{input: in, objective: "throughput", problem: p}
		bound, err := r.objectiveBound(context.Background(), highs.Solver{}, 1)
		if err != nil || bound < best*(1-1e-6) {
			t.Fatalf("the bound is %v (%v), trying everything gives %v", bound, err, best)
		}
		solved++
		sum += got.value / best
		worst = min(worst, got.value/best)
	})
	t.Logf("%d have plans: %.4f of the best placement in the mean, %.4f at least", solved, sum/float64(solved), worst)
	if mean := sum / float64(solved); !(mean >= .985) {
		t.Errorf("plans have %.4f of the best placement in the mean", mean)
	}
}
