package main

import (
	"context"
	"fmt"
	"math"
	"strings"

	"gonum.org/v1/gonum/stat"

	"inferplan/bench/instrument"
)

// load has the rates at which deadlines are compared: .7 of the device time of batches of one, and .7 of what batches make of it.
type load struct {
	name          string
	rps           [4]float64 // GILL, KC, DEBATE, MIX
	mean, leastOf float64    // asked of the scale below the baselines', in %: of the geometric mean, of the least workload
}

// scaled are the policies whose least scale is asked for, ours last.
var scaled = []string{"greedy", "static", "greedy-edf", "static-edf", "dyorc", "dyorc-deadline"}

// rounds of the search for the least scale: what is late hardly depends on the scale that a policy is told, so that it soon stands. KC has two at batched
// load .7. It is 12 minutes there, 7 of which count: as many requests as others have in 25. What a static fleet holds is taken from the first 5: under
// dyorc-early the queues grow all the time, and so does the cost of a run.
const (
	rounds      = 4
	fewerRounds = 2
)

// leastScale returns the least scale at which 99 % of requests end within it, as found: a policy that is told a scale shows the scale that it keeps. Where
// that is no more than what it was told, the latter would do as well.
func (b *bench) leastScale(ctx context.Context, r *instrument.Run, sc scene, policy string, seed uint64) (float64, error) {
	least, times := math.Inf(1), rounds
	if sc.Scale = 3; sc.Oracle > 0 {
		times = fewerRounds
	}
	for range times {
		out, err := b.run(ctx, r, &sc, policy, seed, false)
		if err != nil {
			return 0, err
		}
		least = min(least, max(out.Scale99, sc.Scale))
		if policy == "greedy" || policy == "static" || policy == "dyorc" {
			return out.Scale99, nil // they know no deadlines
		}
		if sc.Scale == out.Scale99 {
			break
		}
		sc.Scale = math.Round(1000*out.Scale99) / 1000
	}
	return least, nil
}

func (b *bench) measureDeadlines(r *instrument.Run, t *instrument.Table) error {
	return b.measureScales(r, t, load{"load .7", [4]float64{9.2, 7.5, 2.9, 5.9}, 25, 5})
}

func (b *bench) measureBatched(r *instrument.Run, t *instrument.Table) error {
	return b.measureScales(r, t, load{"batched load .7", [4]float64{20.6, 100, 37, 36.8}, 0, 0})
}

// measureScales compares the least scales of all workloads at a load.
func (b *bench) measureScales(r *instrument.Run, t *instrument.Table, l load) error {
	t.Columns = append([]string{"scene"}, scaled...)
	least := math.Inf(1)
	var ratios [][]float64 // ours over the better of per-call EDF on greedy and on static, by workload and seed
	for m, rps := range l.rps {
		app := m
		if m == len(meanAlone) {
			app = -1
		}
		sc := sceneOf(app, rps, 32, 40)
		if app == 1 && l.name == "batched load .7" {
			sc.Minutes, sc.Oracle = 12, 5
		}
		scales := make([][]float64, len(scaled))
		for p := range scales {
			scales[p] = make([]float64, len(b.seeds))
		}
		err := r.ForEach(len(scaled)*len(b.seeds), func(ctx context.Context, i int) (err error) {
			p, k := i/len(b.seeds), i%len(b.seeds)
			scales[p][k], err = b.leastScale(ctx, r, *sc, scaled[p], b.seeds[k])
			return err
		})
		if err != nil {
			return err
		}
		row, over := []any{sc.Name}, make([]float64, len(b.seeds))
		for p := range scaled {
			mean, interval := instrument.Mean(scales[p])
			row = append(row, fmt.Sprintf("%.3f", mean)+ends("%.3f", interval))
		}
		t.Add(row...)
		for k := range over {
			over[k] = scales[len(scaled)-1][k] / min(scales[2][k], scales[3][k])
		}
		ratios, least = append(ratios, over), min(least, 100*(1-stat.Mean(over, nil)))
	}
	b.stateBelow(r, "scale of deadlines below the better of per-call EDF on greedy and on static, geometric mean, "+l.name, "own headline", l.mean, ratios)
	r.AtLeast("the same, least workload, "+l.name+b.suffix, "own headline", l.leastOf, "%", least)
	return nil
}

// giving are policies that give requests up, ours last.
var giving = []string{"greedy", "greedy-edf", "greedy-hopeless", "greedy-drop", "dyorc", "dyorc-hopeless", "dyorc-drop"}

// measureGoodput counts requests in time where not all can be.
func (b *bench) measureGoodput(r *instrument.Run, t *instrument.Table) error {
	scenes := scenesOf([]row{{0, []float64{24, 30}}, {1, []float64{30}}, {2, []float64{20}}, {-1, []float64{24, 36}}}, 32, 40)
	for _, sc := range scenes {
		sc.Scale = 2.5
	}
	g, err := b.measureGrid(r, scenes, giving, false)
	if err != nil {
		return err
	}
	t.Columns = append([]string{"scene (u1)"}, giving...)
	least := math.Inf(1) // ours above the best of greedy's, in points
	for s, sc := range scenes {
		row, best, share := []any{fmt.Sprintf("%s (%.2f)", sc.Name, meanOf(g[s][0], func(o *outcome) float64 { return o.Offered }))}, 0.0, 0.0
		for p, policy := range giving {
			share = 100 * meanOf(g[s][p], func(o *outcome) float64 { return o.InTime })
			if strings.HasPrefix(policy, "greedy") {
				best = max(best, share)
			}
			row = append(row, fmt.Sprintf("%.1f", share))
		}
		least = min(least, share-best)
		t.Add(row...)
	}
	r.AtLeast("requests in time above the best of greedy's, overload, least row"+b.suffix, "own", 0, "points", least)
	return nil
}
