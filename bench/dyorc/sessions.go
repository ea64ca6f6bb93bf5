package main

import (
	"fmt"
	"math"
	"time"

	"inferplan/bench/figures"
	"inferplan/policy/flow"
)

// keepers are the rules for states of sessions, ours first.
var keepers = []string{"dyorc", "dyorc-keep-state", "dyorc-drop-state"}

// contexts are the states that the language model keeps of a task of the usual work: keys and
// values of Llama-2-7B, 512 KiB per token, for so many tokens. Prompts are computed at
// 13,000 tokens per second; states move at 25 GB/s within a node, 12.5 GB/s across.
var contexts = []int{1024, 4096}

func sessionOf(tokens int) flow.SessionState {
	bytes := int64(tokens) << 19
	at := func(perSecond float64, n float64) time.Duration { return time.Duration(n / perSecond * 1e9) }
	return flow.SessionState{Bytes: bytes, Recompute: at(13_000, float64(tokens)), SameNode: at(25e9, float64(bytes)), OtherNode: at(12.5e9, float64(bytes))}
}

// sessionTable compares rules for states of sessions.
func (b *bench) sessionTable() error {
	var scenes []*scene
	for _, tokens := range contexts {
		for _, sc := range append(scenesOf([]row{{1, []float64{4, 12}}, {2, []float64{6}}, {-1, []float64{12}}}, 32, 40), scenesOf([]row{{1, []float64{1, 3}}, {2, []float64{2}}, {-1, []float64{3}}}, 8, 24)...) {
			sc.Session = sessionOf(tokens)
			sc.Name += fmt.Sprintf(" on %d with %g GB, %d tokens", sc.Devices, sc.Gigabytes, tokens)
			scenes = append(scenes, sc)
		}
	}
	grid, err := b.grid(scenes, keepers, false)
	if err != nil {
		return err
	}
	b.header("scene: mean / p99 in s, tasks that compute anew / states moved, %", "by worth", "keep all", "drop all")
	logs, worst := make([]float64, len(b.seeds)), math.Inf(-1)
	for s, sc := range scenes {
		cells, above := []string{sc.Name}, 0.0
		for p := range keepers {
			runs := grid[s][p]
			cells = append(cells, fmt.Sprintf("%.3f / %.2f, %.0f / %.0f", meanOf(runs, mean), meanOf(runs, p99),
				100*meanOf(runs, func(r *outcome) float64 { return r.Anew }), 100*meanOf(runs, func(r *outcome) float64 { return r.Moved })))
		}
		for i := range b.seeds {
			ratio := grid[s][0][i].Mean / min(grid[s][1][i].Mean, grid[s][2][i].Mean)
			logs[i] += math.Log(ratio) / float64(len(scenes))
			above += 100 * (ratio - 1) / float64(len(b.seeds))
		}
		worst = max(worst, above)
		b.line(cells...)
	}
	var below []float64
	for _, l := range logs {
		below = append(below, 100*(1-math.Exp(l)))
	}
	m, ci := interval(below)
	fmt.Fprintln(b.out)
	b.claim(figures.Figure{Claim: "mean latency with states of sessions kept, dropped and moved by worth, below the better of keeping and of dropping all, geometric mean", Source: "own", Asked: ">= 0 %", Measured: m, Interval: ci, Unit: "%", Holds: figures.If(m >= 0)})
	b.claim(figures.Figure{Claim: "the same, worst row above the better of the two", Source: "own", Asked: figures.AskedShown, Measured: worst, Unit: "%"})
	return nil
}
