package check

import (
	"cmp"
	"math"
	"slices"
	"time"

	"inferplan/formats"
)

// maxCascades limits the enumeration that the bounds are recomputed from.
const maxCascades = 5_000_000

// envelope lists every cascade of the family over its quantile thresholds with
// bit sets, as far as they keep a latency; a model costs what it does on the kind
// where it is cheapest, in parts what these do. Nil where the documents do not say
// enough, or there are too many.
func (c *checker) envelope(slo time.Duration, parts bool, kinds ...string) hull {
	var names []string
	grid := 10
	for i := range c.plan.Gear.Models {
		names = append(names, c.plan.Gear.Models[i].Model)
		grid = len(c.plan.Gear.Models[i].Thresholds) + 1
	}
	if c.workload != nil && c.workload.Cascade != nil {
		names = c.workload.Cascade.Family
		if grid = c.workload.Cascade.Grid; grid == 0 {
			grid = 10
		}
	}
	r := c.records(names)
	if r == nil || math.Pow(float64(grid), float64(len(names))) > maxCascades*float64(grid-1) {
		return nil
	}
	w := walk{a: &answers{samples: r.Planning}, slo: slo}
	percentile, err := formats.ParsePercentile(c.plan.Gear.Percentile)
	if err != nil {
		return nil
	}
	w.late = int((1 - percentile) * float64(r.Planning))
	for _, n := range names {
		m := recordsOf(r, n)
		sorted := slices.Clone(m.Certainty[:r.Planning])
		slices.Sort(sorted)
		var t []float64
		for j := 1; j < grid; j++ {
			t = append(t, sorted[min(r.Planning-1, j*r.Planning/grid)])
		}
		w.a.addModel(len(t), func(i int) int {
			l, _ := slices.BinarySearchFunc(t, m.Certainty[i], func(t, x float64) int {
				if t <= x {
					return -1
				}
				return 1
			})
			return l
		}, m.Correct)
		per, one, measured := math.Inf(1), time.Duration(math.MaxInt64), false
		for _, kind := range kinds {
			times, pool := c.timesOf(n, kind), c.pool(kind)
			if times == nil {
				continue
			}
			measured = true
			if pool != nil && pool.Memory > 0 && c.weights(n, kind) > int64(pool.Memory) {
				continue
			}
			one = min(one, times[0])
			for b, took := range times {
				if took <= w.slo {
					per = min(per, took.Seconds()/float64(b+1))
				}
			}
		}
		if !measured && len(c.plan.Pools) == 1 {
			return nil
		}
		if parts && c.profileModel(n) != nil {
			p, o := c.partly(n, slo, kinds)
			per, one = min(per, p), min(one, o)
		}
		w.per, w.one = append(w.per, per), append(w.one, one)
	}
	all := newSet(r.Planning)
	for i := range r.Planning {
		all.add(i)
	}
	for m := range names {
		w.visit(m, all, 0, 0, 0)
	}
	return w.hull()
}

type point struct{ cost, accuracy float64 }

// hull is an upper concave envelope, by rising cost.
type hull []point

func (h hull) at(budget float64) float64 {
	best := math.Inf(-1)
	for i, p := range h {
		if p.cost <= budget {
			best = p.accuracy
		} else if i > 0 {
			before := h[i-1]
			return before.accuracy + (p.accuracy-before.accuracy)*(budget-before.cost)/(p.cost-before.cost)
		}
	}
	return best
}

// walk visits all cascades; answered are the right answers given before a model.
type walk struct {
	a    *answers
	per  []float64 // seconds per sample in the best batch
	one  []time.Duration
	slo  time.Duration
	late int // samples that may take longer than the SLO, one by one
	all  []point
}

func (w *walk) visit(m int, left set, cost float64, path time.Duration, answered int) {
	if math.IsInf(w.per[m], 1) {
		return
	}
	n := left.size()
	cost += w.per[m] * float64(n) / float64(w.a.samples)
	if path += w.one[m]; path > w.slo && n > w.late {
		return // and whatever continues it
	}
	right := common(left, w.a.right[m])
	w.all = append(w.all, point{cost, float64(answered+right) / float64(w.a.samples)})
	if m+1 == len(w.per) {
		return
	}
	rest := newSet(w.a.samples)
	for l := 1; l < len(w.a.reaches[m]); l++ {
		without(rest, left, w.a.reaches[m][l])
		if k := rest.size(); k == 0 || k == n {
			continue
		}
		kept := right - common(rest, w.a.right[m])
		for next := m + 1; next < len(w.per); next++ {
			w.visit(next, rest, cost, path, answered+kept)
		}
	}
}

func (w *walk) hull() hull {
	slices.SortFunc(w.all, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(b.accuracy, a.accuracy))
	})
	var h hull
	best := -1.0
	for _, p := range w.all {
		if p.accuracy <= best {
			continue
		}
		best = p.accuracy
		for n := len(h); n >= 2; n = len(h) {
			a, b := h[n-2], h[n-1]
			if (b.accuracy-a.accuracy)*(p.cost-a.cost) > (p.accuracy-a.accuracy)*(b.cost-a.cost) {
				break
			}
			h = h[:n-1]
		}
		h = append(h, p)
	}
	return h
}
