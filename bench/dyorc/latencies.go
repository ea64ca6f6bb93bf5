package main

import (
	"fmt"
	"math"
	"slices"

	"inferplan/bench/instrument"
)

const paper = "DyOrc (SoCC '25)"

// compared are the policies of the tables of latencies.
var compared = []string{"greedy", "reactive", "static", "dyorc-early", "dyorc"}

// addLatencies adds the rows of scenes under policies.
func addLatencies(t *instrument.Table, scenes []*scene, g grid, policies []string) {
	t.Columns = append([]string{"scene (u1)", "bound"}, policies...)
	for s, sc := range scenes {
		row := []any{fmt.Sprintf("%s (%.2f)", sc.Name, meanOf(g[s][0], func(o *outcome) float64 { return o.Offered })),
			fmt.Sprintf("%.2f", meanOf(g[s][0], func(o *outcome) float64 { return o.Bound }))}
		for p := range policies {
			row = append(row, latency(g[s][p]))
		}
		t.Add(row...)
	}
}

// overBest returns, by row and seed, a value of dyorc over the best of baselines.
func overBest(g grid, policies []string, value func(o *outcome) float64, baselines ...string) [][]float64 {
	var ratios [][]float64
	for _, runs := range g {
		row := make([]float64, len(runs[0]))
		for i := range row {
			best := math.Inf(1)
			for _, name := range baselines {
				best = min(best, value(&runs[slices.Index(policies, name)][i]))
			}
			row[i] = value(&runs[slices.Index(policies, "dyorc")][i]) / best
		}
		ratios = append(ratios, row)
	}
	return ratios
}

// stateBelow states by how many percent ratios are at least below 1 in the geometric mean of rows, with the interval over seeds. ratios are by row and seed.
func (b *bench) stateBelow(r *instrument.Run, claim, source string, least float64, ratios [][]float64) {
	percents := make([]float64, len(b.seeds))
	for i := range percents {
		log := 0.0
		for _, row := range ratios {
			log += math.Log(row[i])
		}
		percents[i] = 100 * (1 - math.Exp(log/float64(len(ratios))))
	}
	mean, interval := instrument.Mean(percents)
	r.AtLeast(claim+b.suffix, source, least, "%", mean).Interval = interval
}

// stateWorstP99 states how our p99 stands against the better of greedy and static, in the worst row, and notes all rows.
func (b *bench) stateWorstP99(r *instrument.Run, t *instrument.Table, claim string, scenes []*scene, ratios [][]float64) {
	worst, ofWorst := math.Inf(-1), (*[2]float64)(nil)
	for s, row := range ratios {
		var above []float64 // %
		for _, ratio := range row {
			above = append(above, 100*(ratio-1))
		}
		mean, interval := instrument.Mean(above)
		t.Note("%s: p99 %+.1f %% against the better of greedy and static%s", scenes[s].Name, mean, ends("%+.1f", interval))
		if mean > worst {
			worst, ofWorst = mean, interval
		}
	}
	r.AtMost(claim+b.suffix, "own headline", 5, "%", worst).Interval = ofWorst
}

// ends writes the ends of an interval; nothing if there is none.
func ends(format string, interval *[2]float64) string {
	if interval == nil {
		return ""
	}
	return fmt.Sprintf(" ["+format+", "+format+"]", interval[0], interval[1])
}

// measureAmple compares latencies where devices are many.
func (b *bench) measureAmple(r *instrument.Run, t *instrument.Table) error {
	scenes := scenesOf(ample, 32, 40)
	g, err := b.measureGrid(r, scenes, compared, false)
	if err != nil {
		return err
	}
	addLatencies(t, scenes, g, compared)
	b.stateWorstP99(r, t, "p99 above the better of greedy and static, worst row, 32 devices with 40 GB", scenes, overBest(g, compared, p99, "greedy", "static"))
	b.stateBelow(r, "mean latency below reactive loading, geometric mean, 32 devices", paper+" figure 6", 45, overBest(g, compared, meanLatency, "reactive"))
	least, where := math.Inf(1), ""
	for s, sc := range scenes {
		ours, reactive := meanOf(g[s][slices.Index(compared, "dyorc")], meanLatency), meanOf(g[s][slices.Index(compared, "reactive")], meanLatency)
		if percent := 100 * (1 - ours/reactive); percent < least {
			least, where = percent, sc.Name
		}
	}
	r.AtLeast("mean latency below reactive loading, least row ("+where+")"+b.suffix, paper+" figure 6", 29, "%", least)
	return nil
}

// measureScarce compares latencies where devices and memory are few.
func (b *bench) measureScarce(r *instrument.Run, t *instrument.Table) error {
	scenes := scenesOf(scarce, 8, 24)
	g, err := b.measureGrid(r, scenes, compared, false)
	if err != nil {
		return err
	}
	addLatencies(t, scenes, g, compared)
	b.stateWorstP99(r, t, "p99 above the better of greedy and static, worst row, 8 devices with 24 GB", scenes, overBest(g, compared, p99, "greedy", "static"))
	return nil
}

// measureShift shows two hours, in the middle of which one application doubles and the others halve.
func (b *bench) measureShift(r *instrument.Run, t *instrument.Table) error {
	scenes := []*scene{sceneOf(-1, 12, 32, 40), sceneOf(-1, 24, 32, 40), sceneOf(-1, 3, 8, 24)}
	for _, sc := range scenes {
		sc.Rates.shift, sc.Minutes = true, minutes
	}
	policies := []string{"dyorc-early", "dyorc", "greedy", "static", "reactive"}
	g, err := b.measureGrid(r, scenes, policies, false)
	if err != nil {
		return err
	}
	t.Columns = append([]string{"scene"}, policies...)
	for s, sc := range scenes {
		row := []any{sc.fleet()}
		for p := range policies {
			window := func(k int) float64 { return meanOf(g[s][p], func(o *outcome) float64 { return o.Windows[k] }) }
			row = append(row, fmt.Sprintf("%.2f / %.2f / %.2f", window(5), window(6), window(11)))
		}
		t.Add(row...)
	}
	return nil
}

// measureGenerations compares policies where language models run iteration by iteration.
func (b *bench) measureGenerations(r *instrument.Run, t *instrument.Table) error {
	scenes := append(scenesOf([]row{{1, []float64{12}}, {2, []float64{2, 6, 20}}, {-1, []float64{4, 12, 24}}}, 32, 40), scenesOf([]row{{2, []float64{2, 5}}, {-1, []float64{3}}}, 8, 24)...)
	for _, sc := range scenes {
		sc.Generations, sc.Name = true, sc.fleet()
	}
	policies := []string{"greedy", "reactive", "static", "dyorc"}
	g, err := b.measureGrid(r, scenes, policies, false)
	if err != nil {
		return err
	}
	addLatencies(t, scenes, g, policies)
	t.Columns = append(t.Columns, "dyorc: sequences at once, tokens/s")
	worst, ours := math.Inf(-1), len(policies)-1
	for s, ratios := range overBest(g, policies, p99, "greedy", "static") {
		t.Rows[s] = append(t.Rows[s], fmt.Sprintf("%.1f, %.0f", meanOf(g[s][ours], func(o *outcome) float64 { return o.Running }), meanOf(g[s][ours], func(o *outcome) float64 { return o.Rate })))
		above := 0.0
		for _, ratio := range ratios {
			above += 100 * (ratio - 1) / float64(len(ratios))
		}
		worst = max(worst, above)
	}
	r.AtMost("p99 above the better of greedy and static with language models iteration by iteration, worst row"+b.suffix, "own headline", 5, "%", worst)
	b.stateBelow(r, "mean latency below the better of greedy and static with language models iteration by iteration, geometric mean", "own", 0, overBest(g, policies, meanLatency, "greedy", "static"))
	return nil
}
