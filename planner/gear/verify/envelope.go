package verify

import (
	"cmp"
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// maxCascades limits the enumeration from which bounds are recomputed.
const maxCascades = 5_000_000

// mixtureEnvelope returns the envelope of every cascade of the family that can keep a latency. If the documents do
// not say enough, or there are too many cascades, it returns nil.
func (c relaxation) envelope(slo time.Duration, parts bool, kinds ...string) hull {
	var all []point
	w := c.walk(slo, parts, func(cost, accuracy float64, _ []float64) { all = append(all, point{cost, accuracy}) }, kinds...)
	if w == nil {
		return nil
	}
	return hullOf(all)
}

// visitCascades calls visit for every cascade of the family, over its quantile thresholds, that can keep a
// latency. A model costs what it does on the kind where it is cheapest, or in stages, if parts is true. If the
// documents do not say enough, or there are too many cascades, it returns nil.
func (c relaxation) walk(slo time.Duration, parts bool, each func(cost, accuracy float64, byModel []float64), kinds ...string) *walk {
	names, grid := c.members()
	r := c.records(names)
	if r == nil || math.Pow(float64(grid), float64(len(names))) > maxCascades*float64(grid-1) {
		return nil
	}

	// The models, with their samples and times.
	w := &walk{a: &answers{samples: r.Planning}, slo: slo, byModel: make([]float64, len(names)), each: each}
	percentile, err := document.ParsePercentile(c.gear.Percentile)
	if err != nil {
		return nil
	}
	w.late = int((1 - percentile) * float64(r.Planning))
	for _, n := range names {
		w.a.addQuantiles(r.Find(n), r.Planning, grid)
		per, one, measured := c.whole(n, slo, kinds)
		if !measured && len(c.Plan.Pools) == 1 {
			return nil
		}
		if parts && c.ProfileModel(n) != nil {
			p, o := c.partly(n, slo, kinds)
			per, one = min(per, p), min(one, o)
		}
		w.per, w.one = append(w.per, per), append(w.one, one)
	}

	// All cascades, by their first model.
	all := newSet(r.Planning)
	for i := range r.Planning {
		all.add(i)
	}
	for m := range names {
		w.visit(m, all, 0, 0, 0)
	}
	return w
}

// familyAndGrid returns the models that cascades are made of, those of the workload or else those of the plan, and
// the number of levels of each. A plan of many models may have fewer levels than the workload asks for.
func (c relaxation) members() (names []string, grid int) {
	for i := range c.gear.Models {
		names = append(names, c.gear.Models[i].Model)
		grid = len(c.gear.Models[i].Thresholds) + 1
	}
	if w := c.cascade; w != nil {
		names = w.Family
	}
	return names, grid
}

// addQuantiles adds a model with levels at the quantiles of its certainties.
func (a *answers) addQuantiles(m *formats.ModelRecords, planning, grid int) {
	sorted := slices.Clone(m.Certainty[:planning])
	slices.Sort(sorted)
	var t []float64
	for j := 1; j < grid; j++ {
		t = append(t, sorted[min(planning-1, j*planning/grid)])
	}
	a.addRecords(m, t)
}

// minTimesWhole returns the least time of a whole model on some kinds: seconds per sample in the best batch within
// a latency, and the time of a single sample. If it fits on no kind, both are infinite. isMeasured says whether
// the profile has it on any kind.
func (c relaxation) whole(model string, slo time.Duration, kinds []string) (per float64, one time.Duration, measured bool) {
	per, one = math.Inf(1), time.Duration(math.MaxInt64)
	for _, kind := range kinds {
		times, pool := c.timesOf(model, kind), c.Pool(kind)
		if times == nil {
			continue
		}
		measured = true
		if pool != nil && pool.Memory > 0 && c.weights(model, kind) > int64(pool.Memory) {
			continue
		}
		one = min(one, times[0])
		for b, run := range c.runsOf(model, kind, times) {
			if times[b] <= slo {
				per = min(per, run.Seconds()/float64(b+1))
			}
		}
	}
	return per, one, measured
}

// costPoint is a cascade's cost, in seconds per request, and accuracy.
type point struct{ cost, accuracy float64 }

// costEnvelope is an upper concave envelope of points, by rising cost.
type hull []point

// accuracyAt returns the height of the envelope at a budget. Below the cheapest point it is negative infinity.
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

// cascadeVisitor visits all cascades, depth first.
type walk struct {
	a    *answers
	per  []float64       // by model, in the best batch; infinite if the model is not usable
	one  []time.Duration // by model: time of a single sample
	slo  time.Duration
	late int // number of samples that may take longer than the SLO at batch 1

	byModel []float64 // cost of the visited cascade, by model
	each    func(cost, accuracy float64, byModel []float64)
}

// visitPrefix visits the cascades with a prefix that ends in model m. samples reach it, cost, latency and
// correctBefore are of the models before it.
func (w *walk) visit(m int, left set, cost float64, path time.Duration, answered int) {
	if math.IsInf(w.per[m], 1) {
		return
	}

	// Cost and latency with this model. If too many samples are late, so they are in every longer cascade.
	n := left.size()
	own := w.per[m] * float64(n) / float64(w.a.samples)
	cost += own
	if path += w.one[m]; path > w.slo && n > w.late {
		return // every longer cascade is late, too
	}

	// The cascade that ends here.
	right := common(left, w.a.right[m])
	w.byModel[m] = own
	defer func() { w.byModel[m] = 0 }()
	w.each(cost, float64(answered+right)/float64(w.a.samples), w.byModel)
	if m+1 == len(w.per) {
		return
	}

	// Longer cascades: each level, and each next model.
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

// envelopeOf returns the envelope of points.
func hullOf(all []point) hull {
	slices.SortFunc(all, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(b.accuracy, a.accuracy))
	})
	var h hull
	best := -1.0
	for _, p := range all {
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
