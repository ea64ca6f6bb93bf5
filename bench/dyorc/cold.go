package main

import (
	"fmt"
	"slices"

	"inferplan/bench/figures"
	"inferplan/policy/predict"
	"inferplan/testkit/workflows"
)

// costs are the costs of loads under a policy: the mean latency less that of the same
// policy, arrivals and seed with loads that take no time; by scene and seed.
func (b *bench) costs(scenes []*scene, policies []string) (costs [][][]float64, offered []float64, err error) {
	grid, err := b.grid(scenes, policies, false)
	if err != nil {
		return nil, nil, err
	}
	instant, err := b.grid(scenes, policies, true)
	if err != nil {
		return nil, nil, err
	}
	for s := range scenes {
		row := make([][]float64, len(policies))
		for p := range policies {
			for i := range b.seeds {
				row[p] = append(row[p], 1000*(grid[s][p][i].Mean-instant[s][p][i].Mean))
			}
		}
		costs = append(costs, row)
		offered = append(offered, meanOf(grid[s][0], func(r *outcome) float64 { return r.Offered }))
	}
	return costs, offered, nil
}

// coldPolicies are those whose loads are costed, ours first, on demand second.
var coldPolicies = []string{"dyorc", "greedy", "dyorc-early"}

func (b *bench) coldTable() error {
	for _, one := range []struct {
		where  string
		scenes []*scene
	}{{"32 devices with 40 GB", scenesOf(ample, 32, 40)}, {"8 devices with 24 GB", scenesOf(scarce, 8, 24)}, {"the first ten minutes, 32 devices", starts()}} {
		costs, offered, err := b.costs(one.scenes, coldPolicies)
		if err != nil {
			return err
		}
		b.header(append([]string{one.where + " (u1)"}, coldPolicies...)...)
		ours, demand := make([]float64, len(b.seeds)), make([]float64, len(b.seeds))
		for s, sc := range one.scenes {
			cells := []string{fmt.Sprintf("%s (%.2f)", sc.Name, offered[s])}
			for p := range coldPolicies {
				m, ci := interval(costs[s][p])
				cell := fmt.Sprintf("%.1f", m)
				if ci != nil {
					cell += fmt.Sprintf(" [%.1f, %.1f]", ci[0], ci[1])
				}
				cells = append(cells, cell)
			}
			b.line(cells...)
			if offered[s] <= 1.5 {
				for i := range b.seeds {
					ours[i] += costs[s][0][i]
					demand[i] += costs[s][1][i]
				}
			}
		}
		sumOurs, sumDemand := 0.0, 0.0
		for i := range ours {
			sumOurs += ours[i]
			sumDemand += demand[i]
		}
		fmt.Fprintln(b.out)
		hidden := 100 * (1 - sumOurs/sumDemand)
		b.claim(figures.Figure{Claim: "cost of cold starts hidden against greedy on demand, pooled over rows with u1 <= 1.5, " + one.where, Source: "own headline, of a server that knows nothing", Asked: "shown", Measured: hidden, Unit: "%"})
	}
	return nil
}

// foresightTable compares what loads cost with what they cost where somebody knows
// more: where each request's way is known as it comes, so that no prediction hides
// more; where every load of the same run is begun in time for its batch; and on a
// fleet that never loads, which holds what was there for longest. Its scenes are those
// in which loads cost most.
func (b *bench) foresightTable() error {
	scenes := append(scenesOf([]row{{1, []float64{4, 12}}, {-1, []float64{4, 12}}}, 32, 40), scenesOf([]row{{1, []float64{1, 3}}, {-1, []float64{1, 3}}}, 8, 24)...)
	var told []*scene
	for _, sc := range scenes {
		known := *sc
		known.Foresight = true
		told = append(told, &known)
	}
	costs, offered, err := b.costs(scenes, coldPolicies[:2])
	if err != nil {
		return err
	}
	seen, _, err := b.costs(told, coldPolicies[:1])
	if err != nil {
		return err
	}
	ran, err := b.grid(scenes, []string{"dyorc", "static"}, false)
	if err != nil {
		return err
	}
	b.header("scene (u1)", "dyorc", "told each way", "its loads in time", "never loads", "greedy")
	var sums [6]float64 // the last one: the least of a row
	for s, sc := range scenes {
		ours, _ := interval(costs[s][0])
		known, _ := interval(seen[s][0])
		demand, _ := interval(costs[s][1])
		intime := ours - 1000*meanOf(ran[s][0], func(r *outcome) float64 { return r.Timely })
		never := ours + 1000*(meanOf(ran[s][1], mean)-meanOf(ran[s][0], mean))
		cells := []string{fmt.Sprintf("%s on %d with %g GB (%.2f)", sc.Name, sc.Devices, sc.Gigabytes, offered[s])}
		for k, v := range []float64{ours, known, intime, never, demand} {
			sums[k] += v
			cells = append(cells, fmt.Sprintf("%.1f", v))
		}
		sums[5] += min(ours, known, intime, never)
		b.line(cells...)
	}
	fmt.Fprintln(b.out)
	for _, one := range []struct {
		of    string
		which int
	}{{"with prediction", 0}, {"where each request's way is known as it comes", 1}, {"where all loads of the run are begun in time", 2}, {"by a fleet that never loads", 3}, {"by the best of these in each row", 5}} {
		hidden := 100 * (1 - sums[one.which]/sums[4])
		b.claim(figures.Figure{Claim: "cost of cold starts hidden " + one.of + ", KC and MIX with u1 <= 1.5", Source: "own", Asked: figures.AskedShown, Measured: hidden, Unit: "%"})
	}
	return nil
}

func (b *bench) memoryTable() error {
	scenes := memories()
	policies := coldPolicies[:2]
	costs, _, err := b.costs(scenes, policies)
	if err != nil {
		return err
	}
	b.header(append([]string{"scene"}, policies...)...)
	dear := 0.0
	for s, sc := range scenes {
		ours, _ := interval(costs[s][0])
		demand, _ := interval(costs[s][1])
		b.line(sc.Name, fmt.Sprintf("%.1f", ours), fmt.Sprintf("%.1f", demand))
		if sc.Gigabytes == 24 {
			dear = ours - demand
		}
	}
	fmt.Fprintln(b.out)
	b.claim(figures.Figure{Claim: "cost of cold starts above that of greedy at 24 GB", Source: "own headline", Asked: "<= 0 ms", Measured: dear, Unit: "ms", Holds: figures.If(dear <= 0)})
	return nil
}

// accuracyTable learns from requests in order and predicts each before it learns
// from it.
func (b *bench) accuracyTable() error {
	b.header("application", "next token: most likely", "sampled", "last token", "whole request: most likely", "sampled", "last token")
	var accuracies []float64
	for m, name := range workflows.Names {
		var next, whole [3]float64
		for i, opt := range []predict.Options{{}, {Sampled: true, Seed: 1}, {LastTokenOnly: true}} {
			next[i], whole[i] = accuracy(int32(m), opt, 20_000)
		}
		b.line(name, fmt.Sprintf("%.3f", next[0]), fmt.Sprintf("%.3f", next[1]), fmt.Sprintf("%.3f", next[2]), fmt.Sprintf("%.3f", whole[0]), fmt.Sprintf("%.3f", whole[1]), fmt.Sprintf("%.3f", whole[2]))
		accuracies = append(accuracies, next[0])
	}
	fmt.Fprintln(b.out)
	for m, name := range workflows.Names {
		b.claim(figures.Figure{Claim: "accuracy of the next token, " + name, Source: paper + " figure 12", Asked: "76 to 94 %", Measured: 100 * accuracies[m], Unit: "%", Holds: figures.If(accuracies[m] >= .755 && accuracies[m] <= .945)})
	}
	return nil
}

// accuracy is how often the next token, the end included, and the whole rest of a
// request are predicted, of so many requests.
func accuracy(model int32, opt predict.Options, requests int) (next, whole float64) {
	t, apps := predict.New(opt), workflows.NewApps(1)
	var w workflows.Way
	var path, ahead []int32
	asked, right, all := 0, 0, 0
	for range requests {
		w.Reset()
		apps.Draw(model, &w)
		path = path[:0]
		for i := range w.Len() {
			k := &w.Tasks[i]
			var inputs []int32
			for _, in := range k.Reads {
				inputs = append(inputs, int32(i)-in)
			}
			path = append(path, t.TokenNumber(k.Service, k.Work, inputs))
		}
		known := int(w.Ends[0])
		c := t.CursorAtStart(model, predict.NoFeature)
		for i := 0; i <= len(path); i++ {
			if i >= known {
				ahead = t.PredictTokens(c, 16-i, ahead[:0])
				if i == known && slices.Equal(ahead, path[i:]) {
					all++
				}
				asked++
				if i == len(path) && len(ahead) == 0 || i < len(path) && len(ahead) > 0 && ahead[0] == path[i] {
					right++
				}
			}
			if i < len(path) {
				t.Advance(&c, path[i])
			}
		}
		t.Learn(model, predict.NoFeature, path, known)
	}
	return float64(right) / float64(asked), float64(all) / float64(requests)
}
