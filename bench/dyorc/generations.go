package main

import (
	"fmt"
	"math"

	"inferplan/bench/figures"
)

// generating are the policies of the table of language models, ours last.
var generating = []string{"greedy", "reactive", "static", "dyorc"}

// spread is the standard deviation of the answers' lengths over their mean. Those of the
// conversations of Azure (2023) and of Mooncake (FAST '25) are .77 and .73.
const spread = .75

// generationTable compares policies where language models run iteration by iteration.
func (b *bench) generationTable() error {
	var scenes []*scene
	for _, sc := range append(scenesOf([]row{{1, []float64{12}}, {2, []float64{2, 6, 20}}, {-1, []float64{4, 12, 24}}}, 32, 40), scenesOf([]row{{2, []float64{2, 5}}, {-1, []float64{3}}}, 8, 24)...) {
		sc.Generations, sc.Spread = true, spread
		scenes = append(scenes, sc)
	}
	grid, err := b.grid(scenes, generating, false)
	if err != nil {
		return err
	}
	b.header(append([]string{"scene (u1)", "bound"}, append(generating, "dyorc: sequences at once, tokens/s")...)...)
	for s, sc := range scenes {
		runs := grid[s]
		cells := []string{fmt.Sprintf("%s on %d with %g GB (%.2f)", sc.Name, sc.Devices, sc.Gigabytes, meanOf(runs[0], func(r *outcome) float64 { return r.Offered })), fmt.Sprintf("%.2f", meanOf(runs[0], func(r *outcome) float64 { return r.Bound }))}
		for p := range generating {
			cells = append(cells, fmt.Sprintf("%.2f / %.2f", meanOf(runs[p], mean), meanOf(runs[p], p99)))
		}
		ours := runs[len(generating)-1]
		b.line(append(cells, fmt.Sprintf("%.1f, %.0f", meanOf(ours, func(r *outcome) float64 { return r.Running }), meanOf(ours, func(r *outcome) float64 { return r.Rate })))...)
	}
	b.generationClaims(scenes, grid)
	return nil
}

// generationClaims claims how far ours is from the baselines, in the worst row and in the
// geometric mean.
func (b *bench) generationClaims(scenes []*scene, grid [][][]*outcome) {
	const greedy, reactive, static, ours = 0, 1, 2, 3
	worst, logs, fixed := math.Inf(-1), make([]float64, len(b.seeds)), make([]float64, len(b.seeds))
	for s := range scenes {
		above := 0.0
		for i := range b.seeds {
			r := func(p int) *outcome { return grid[s][p][i] }
			above += 100 * (r(ours).P99/min(r(greedy).P99, r(static).P99) - 1) / float64(len(b.seeds))
			logs[i] += math.Log(r(ours).Mean/r(reactive).Mean) / float64(len(scenes))
			fixed[i] += math.Log(r(ours).Mean/min(r(greedy).Mean, r(static).Mean)) / float64(len(scenes))
		}
		worst = max(worst, above)
	}
	below := func(logs []float64) (mean float64, ci *[2]float64) {
		var list []float64
		for _, l := range logs {
			list = append(list, 100*(1-math.Exp(l)))
		}
		return interval(list)
	}
	fmt.Fprintln(b.out)
	b.claim(figures.Figure{Claim: "p99 above the better of greedy and static with language models iteration by iteration, worst row", Source: "own headline", Asked: "<= 5 %", Measured: worst, Unit: "%", Holds: figures.If(worst <= 5)})
	m, ci := below(logs)
	b.claim(figures.Figure{Claim: "mean latency below reactive loading with language models iteration by iteration, geometric mean", Source: "own", Asked: figures.AskedShown, Measured: m, Interval: ci, Unit: "%"})
	m, ci = below(fixed)
	b.claim(figures.Figure{Claim: "mean latency below the better of greedy and static with language models iteration by iteration, geometric mean", Source: "own", Asked: ">= 0 %", Measured: m, Interval: ci, Unit: "%", Holds: figures.If(m >= 0)})
}
