package graph

import (
	"context"
	"fmt"
	"testing"
	"time"

	"inferplan/solver/highs"
)

// fiveModuleProblem is a pipeline of five modules like live video (PARD, section 5.1): device
// times a + c*b, over 64 devices of so many kinds, each slower than the last.
func fiveModuleProblem(kinds int) *problem {
	p := &problem{batchWait: 1}
	for k := range kinds {
		p.pools = append(p.pools, pool{kind: string(rune('A' + k)), count: 64 / kinds, price: 1 / (1 + .6*float64(k))})
	}
	app := app{name: "lv", slo: 500 * time.Millisecond, margin: 50 * time.Millisecond, weight: 1, paths: [][]int{{0, 1, 2, 3, 4}}}
	for u, cost := range [][2]float64{{7, 5.3}, {12, 2.6}, {7, 1.25}, {6, .83}, {12, 3.4}} {
		byPool := make([][]template, kinds)
		for k := range kinds {
			slow := 1 + float64(k)*(.5+.1*float64(u))
			for _, b := range []int{1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32} {
				took := time.Duration(slow * (cost[0] + cost[1]*float64(b)) * 1e6)
				byPool[k] = append(byPool[k], template{batch: b, sharesPerDevice: 1, worstTime: took, rate: float64(b) / took.Seconds()})
			}
		}
		p.models = append(p.models, model{name: fmt.Sprint("m", u), levels: levelsOf(byPool)})
		app.modules = append(app.modules, appModule{name: fmt.Sprint("m", u), visitShare: 1, choices: []choice{{model: u}}})
	}
	p.apps = append(p.apps, app)
	return p
}

// Planning time of 64 devices of one and of four kinds at the default gap.
func BenchmarkSolve(b *testing.B) {
	for _, kinds := range []int{1, 4} {
		p := fiveModuleProblem(kinds)
		run := func(name string, weight float64, find func(*planSearch) (*solveResult, error)) {
			b.Run(fmt.Sprintf("%d-kinds/%s", kinds, name), func(b *testing.B) {
				p.apps[0].weight = weight
				var result *solveResult
				for b.Loop() {
					var err error
					if result, err = find(&planSearch{problem: p, solver: highs.Solver{}, gap: .01}); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(result.value, "value")
				b.ReportMetric(result.bound, "bound")
				b.ReportMetric(float64(result.solution.deviceCount()), "devices")
			})
		}
		run("throughput", 1, func(s *planSearch) (*solveResult, error) { return s.throughput(context.Background()) })
		run("cost", 1000, func(s *planSearch) (*solveResult, error) { return s.cheapest(context.Background()) })
		run("cost-of-most", 2000, func(s *planSearch) (*solveResult, error) { return s.cheapest(context.Background()) })
	}
}
