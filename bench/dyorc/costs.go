package main

import (
	"fmt"

	"inferplan/bench/instrument"
)

// column is a policy by what it knows when a server starts.
type column struct {
	name, policy              string
	prior, planned, foresight bool // of the scene
}

// onPlan is the column that the claims are about, onDemand that which it is held against.
const (
	onPlan   = 0
	onDemand = 1
)

var columns = []column{
	{"dyorc on a plan", "dyorc", true, true, false},
	{"greedy", "greedy", false, false, false},
	{"dyorc, ways known", "dyorc", true, false, false},
	{"dyorc, nothing known", "dyorc", false, false, false},
	{"greedy on a plan", "greedy", false, true, false},
	{"each way told, on a plan", "dyorc", true, true, true},
}

// measureCosts returns the costs of loads under a policy, by scene: the mean latency less that of the same policy, arrivals and seed with loads that take no
// time, in ms. offered is the device time of batches of one over that of the fleet.
func (b *bench) measureCosts(r *instrument.Run, scenes []*scene, c column) (costs, offered []float64, err error) {
	var changed []*scene
	for _, sc := range scenes {
		one := *sc
		one.Prior, one.Planned, one.Foresight = c.prior, c.planned, c.foresight
		changed = append(changed, &one)
	}
	loading, err := b.measureGrid(r, changed, []string{c.policy}, false)
	if err != nil {
		return nil, nil, err
	}
	instant, err := b.measureGrid(r, changed, []string{c.policy}, true)
	if err != nil {
		return nil, nil, err
	}
	for s := range scenes {
		cost := 0.0
		for i := range b.seeds {
			cost += 1000 * (loading[s][0][i].Mean - instant[s][0][i].Mean)
		}
		costs = append(costs, cost/float64(len(b.seeds)))
		offered = append(offered, meanOf(loading[s][0], func(o *outcome) float64 { return o.Offered }))
	}
	return costs, offered, nil
}

// addCosts adds a row of costs for each scene, and returns the sums by column.
func (b *bench) addCosts(r *instrument.Run, t *instrument.Table, scenes []*scene, columns []column) ([]float64, error) {
	t.Columns = []string{"scene (u1)"}
	rows, sums := make([][]any, len(scenes)), make([]float64, len(columns))
	for k, c := range columns {
		t.Columns = append(t.Columns, c.name)
		costs, offered, err := b.measureCosts(r, scenes, c)
		if err != nil {
			return nil, err
		}
		for s, cost := range costs {
			if k == 0 {
				rows[s] = append(rows[s], fmt.Sprintf("%s (%.2f)", scenes[s].fleet(), offered[s]))
			}
			rows[s] = append(rows[s], fmt.Sprintf("%.1f", cost))
			sums[k] += cost
		}
	}
	for _, row := range rows {
		t.Add(row...)
	}
	return sums, nil
}

// measurePrior compares what loads cost, by what a server knows when it starts: on fleets from their first minute on, and when they have run for a while.
func (b *bench) measurePrior(r *instrument.Run, t *instrument.Table) error {
	for _, fleet := range []struct {
		where  string
		scenes []*scene
		asked  float64 // share of the cost that a plan has to hide, in %
	}{
		{"the first ten minutes, 32 devices with 40 GB", fromStart(scenesOf([]row{{0, []float64{12}}, {1, []float64{12}}, {2, []float64{6}}, {-1, []float64{12}}}, 32, 40)), 50},
		{"the first ten minutes, 8 devices with 24 GB", fromStart(scenesOf([]row{{0, []float64{3}}, {1, []float64{1, 3}}, {-1, []float64{1, 3}}}, 8, 24)), 50},
		{"from the fifth minute on, 32 devices with 40 GB", scenesOf([]row{{1, []float64{4, 12}}, {-1, []float64{4, 12}}}, 32, 40), 65},
		{"from the fifth minute on, 8 devices with 24 GB", scenesOf([]row{{1, []float64{1, 3}}, {-1, []float64{1, 3}}}, 8, 24), 65},
	} {
		sums, err := b.addCosts(r, t, fleet.scenes, columns)
		if err != nil {
			return err
		}
		for k, c := range columns {
			t.Note("%s, %s: %.0f %% of the cost hidden", fleet.where, c.name, 100*(1-sums[k]/sums[onDemand]))
		}
		r.AtLeast("cost of cold starts hidden against greedy on demand, "+columns[onPlan].name+", "+fleet.where+b.suffix, "own", fleet.asked, "%", 100*(1-sums[onPlan]/sums[onDemand]))
	}
	return nil
}

// measureMemory compares what loads cost over the memory of devices.
func (b *bench) measureMemory(r *instrument.Run, t *instrument.Table) error {
	for _, gigabytes := range []float64{20, 24, 32, 40, 56, 80} {
		sums, err := b.addCosts(r, t, []*scene{sceneOf(-1, 3, 8, gigabytes)}, []column{{name: "dyorc", policy: "dyorc"}, {name: "greedy", policy: "greedy"}})
		if err != nil {
			return err
		}
		if gigabytes == 24 {
			r.AtMost("cost of cold starts above that of greedy at 24 GB"+b.suffix, "own headline", 0, "ms", sums[0]-sums[1])
		}
	}
	return nil
}
