package baseline

import (
	"cmp"
	"math"
	"slices"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/planspace"
)

// deployment holds the choices for a latency.
type deployment struct {
	*Cascadia
	sets  []uint32  // configurations that a device may hold
	rates []float64 // of a device, by model
	list  []cascades.Cascade
	work  [][]float64 // device seconds per request, by cascade and model
}

// plan is the most accurate plan in the latency, weighted over the levels of load; nil:
// there is none. Every deployment is tried: given one, levels have nothing to share, and
// each takes the most accurate cascade whose work the devices have time for.
func (d *deployment) plan() *CascadiaPoint {
	p := d.Problem
	var best *CascadiaPoint
	each(len(d.sets), p.Kinds[0].Devices, func(counts []int) {
		point := &CascadiaPoint{Levels: make([]CascadiaLevel, len(p.RangeEdges))}
		pl := newPlacement(len(p.Models), d.sets, counts)
		held := slices.Clone(counts)
		at := 0
		for r, edge := range p.RangeEdges { // at higher rates no cascade fits that did not before
			for at < len(d.list) && pl.Load(d.work[at])*edge > 1 {
				at++
			}
			if at < len(d.list) {
				point.Levels[r] = CascadiaLevel{held, d.list[at]}
			}
		}
		switch {
		case best == nil:
			best = point
		case d.Redeployed:
			for r := range point.Levels {
				if point.Levels[r].Cascade.CorrectCount > best.Levels[r].Cascade.CorrectCount {
					best.Levels[r] = point.Levels[r]
				}
			}
		case d.accuracy(point) > d.accuracy(best):
			best = point
		}
	})
	if best.Accuracy = d.accuracy(best); math.IsInf(best.Accuracy, -1) {
		return nil
	}
	return best
}

// accuracy is weighted over the levels; where one has no cascade there is none.
func (d *deployment) accuracy(point *CascadiaPoint) float64 {
	sum := 0.0
	for r := range point.Levels {
		if point.Levels[r].Counts == nil {
			return math.Inf(-1)
		}
		sum += d.Problem.RangeWeights[r] * Accuracy(d.Problem, &point.Levels[r].Cascade)
	}
	return sum
}

// each visits the ways to give devices one of some configurations.
func each(sets, devices int, visit func(counts []int)) {
	counts := make([]int, sets)
	var fill func(at, left int)
	fill = func(at, left int) {
		if at == sets-1 {
			counts[at] = left
			visit(counts)
			return
		}
		for n := range left + 1 {
			counts[at] = n
			fill(at+1, left-n)
		}
	}
	fill(0, devices)
}

// cascades are those that no other one beats in accuracy without more work of a model,
// or, where all models stand everywhere, without more work.
func (d *deployment) cascades() (list []cascades.Cascade, work [][]float64) {
	all := planspace.WholeCascades(d.Problem)
	works, total := make([][]float64, len(all)), make([]float64, len(all))
	for i := range all {
		works[i] = make([]float64, len(d.rates))
		for k, m := range all[i].Models {
			if d.rates[m] == 0 {
				total[i] = math.Inf(1)
				break
			}
			works[i][m] = float64(all[i].ReachCounts[k]) / float64(d.Problem.PlanningSamples.N) / d.rates[m]
			total[i] += works[i][m]
		}
	}
	order := make([]int, 0, len(all))
	for i := range all {
		if !math.IsInf(total[i], 1) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(all[b].CorrectCount, all[a].CorrectCount), cmp.Compare(total[a], total[b]))
	})
	for _, i := range order {
		if !slices.ContainsFunc(work, func(w []float64) bool { return d.beats(w, works[i]) }) {
			list, work = append(list, all[i]), append(work, works[i])
		}
	}
	return list, work
}

// beats returns whether no model, or not all together, works more.
func (d *deployment) beats(a, b []float64) bool {
	if len(d.sets) == 1 {
		return total(a) <= total(b)
	}
	for m := range a {
		if a[m] > b[m] {
			return false
		}
	}
	return true
}

func total(list []float64) float64 {
	sum := 0.0
	for _, x := range list {
		sum += x
	}
	return sum
}
