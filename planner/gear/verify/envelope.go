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

// mixtureEnvelope returns the most accuracy that mixtures of cascades reach, as a function of their cost per request
// (seconds of device time): the concave envelope of every cascade of the family that can keep a latency on some kinds
// of devices. With inStages, models may run in stages. If the documents do not say enough, or there are too many cascades,
// it returns nil.
func (c *gearChecker) mixtureEnvelope(slo time.Duration, inStages bool, kinds ...string) costEnvelope {
	var points []costPoint
	visitor := c.visitCascades(slo, inStages, func(cost, accuracy float64, _ []float64) { points = append(points, costPoint{cost, accuracy}) }, kinds...)
	if visitor == nil {
		return nil
	}
	return envelopeOf(points)
}

// visitCascades calls visit for every cascade of the family that can keep a latency, with its cost per request (seconds
// of device time on the given kinds) and accuracy. Its models forward below quantile thresholds of their certainty.
// byModel has the cost by model; it changes after the call. A model costs what it does on the kind where it is
// cheapest. With inStages it may also run in stages, if these cost less. It returns the visitor, which has the times of
// the models. If the documents do not say enough, or there are too many cascades, it returns nil.
func (c *gearChecker) visitCascades(slo time.Duration, inStages bool, visit func(cost, accuracy float64, byModel []float64), kinds ...string) *cascadeVisitor {
	names, grid := c.familyAndGrid()
	records := c.profileRecords(names)
	if records == nil || hasMoreCascades(len(names), grid, maxCascades) {
		return nil
	}

	// The models, with their samples and times.
	visitor := &cascadeVisitor{samples: &sampleBits{sampleCount: records.PlanningSamples}, slo: slo, costByModel: make([]float64, len(names)), visitCascade: visit}
	percentile, err := document.ParsePercentile(c.gear.Percentile)
	if err != nil {
		return nil
	}
	visitor.maxLate = int((1 - percentile) * float64(records.PlanningSamples)) // of the samples, so many may be late
	for _, name := range names {
		visitor.samples.addQuantiles(records.FindModel(name), records.PlanningSamples, grid)
		// A sample's part of the best batch counts as cost, the time of a single sample as latency. A model that was measured on none
		// of several kinds is left out of the cascades.
		perSample, singleSample, isMeasured := c.minTimesWhole(name, slo, kinds)
		if !isMeasured && len(c.Plan.Pools) == 1 {
			return nil
		}
		if inStages && c.ProfileModel(name) != nil {
			stagedPerSample, stagedSingle := c.minTimesInStages(name, slo, kinds)
			perSample, singleSample = min(perSample, stagedPerSample), min(singleSample, stagedSingle)
		}
		visitor.secondsPerSample, visitor.singleSample = append(visitor.secondsPerSample, perSample), append(visitor.singleSample, singleSample)
	}

	// All cascades, by their first model. All samples reach it, and no cost, latency or correct answers come before it.
	const noCost, noLatency, noCorrect = 0, 0, 0
	allSamples := newSet(records.PlanningSamples)
	for i := range records.PlanningSamples {
		allSamples.add(i)
	}
	for m := range names {
		visitor.visitPrefix(m, allSamples, noCost, noLatency, noCorrect)
	}
	return visitor
}

// hasMoreCascades reports whether a family of models has more cascades than a limit. A cascade is a set of the models
// with one of grid-1 thresholds for each but the last. So there are (grid^models - 1) / (grid-1) of them; the 1 is left
// out.
func hasMoreCascades(models, grid int, limit float64) bool {
	return math.Pow(float64(grid), float64(models)) > limit*float64(grid-1)
}

// familyAndGrid returns the names of the models that cascades are made of, those of the workload or else those of the
// plan, and grid, the number of levels of certainty of each. The grid is always the plan's, as a plan of many models
// may have fewer levels than the workload asks for.
func (c *gearChecker) familyAndGrid() (names []string, grid int) {
	for i := range c.gear.Models {
		names = append(names, c.gear.Models[i].Model)
		grid = len(c.gear.Models[i].Thresholds) + 1
	}
	if w := c.cascade; w != nil {
		names = w.Family
	}
	return names, grid
}

// addQuantiles adds a model to the samples, with levels of certainty between the quantiles 1/grid, 2/grid, … of its
// certainties on the first planningCount samples, as the planner cuts them.
func (a *sampleBits) addQuantiles(m *formats.ModelRecords, planningCount, grid int) {
	byCertainty := slices.Clone(m.Certainty[:planningCount])
	slices.Sort(byCertainty)
	var thresholds []float64
	for j := 1; j < grid; j++ {
		thresholds = append(thresholds, byCertainty[min(planningCount-1, j*planningCount/grid)])
	}
	a.addRecords(m, thresholds)
}

// minTimesWhole returns the least times of a whole model on some kinds of devices: seconds per sample in the best batch
// within a latency, and the time of a single sample. If the model fits on no kind, both are infinite. isMeasured says
// whether today's profile has the model on any of the kinds.
func (c *gearChecker) minTimesWhole(model string, slo time.Duration, kinds []string) (perSample float64, singleSample time.Duration, isMeasured bool) {
	perSample, singleSample = math.Inf(1), time.Duration(math.MaxInt64)
	for _, kind := range kinds {
		times, pool := c.latenciesOn(model, kind), c.Pool(kind)
		if times == nil {
			continue
		}
		isMeasured = true
		if pool != nil && pool.Memory > 0 && c.modelMemory(model, kind) > int64(pool.Memory) {
			continue
		}
		singleSample = min(singleSample, times[0])
		for b, batchTime := range c.rateTimes(model, kind, times) {
			if times[b] <= slo {
				perSample = min(perSample, batchTime.Seconds()/float64(b+1))
			}
		}
	}
	return perSample, singleSample, isMeasured
}

// costPoint is a cascade's cost, in seconds per request, and accuracy.
type costPoint struct{ cost, accuracy float64 }

// costEnvelope is an upper concave envelope of points, by rising cost.
type costEnvelope []costPoint

// accuracyAt returns the most accuracy that a mixture of cascades reaches for a budget of device seconds per request.
// Between two points of the envelope it interpolates on the line, as a mixture of the two cascades does. Below the
// cheapest point it returns negative infinity.
func (h costEnvelope) accuracyAt(budget float64) float64 {
	accuracy := math.Inf(-1)
	for i, p := range h {
		if p.cost <= budget {
			accuracy = p.accuracy
		} else if i > 0 {
			previous := h[i-1]
			return previous.accuracy + (p.accuracy-previous.accuracy)*(budget-previous.cost)/(p.cost-previous.cost)
		}
	}
	return accuracy
}

// cascadeVisitor visits all cascades, depth first.
type cascadeVisitor struct {
	samples          *sampleBits
	secondsPerSample []float64       // by model, in the best batch; infinite if the model is not usable
	singleSample     []time.Duration // by model: time of a single sample
	slo              time.Duration
	maxLate          int // number of samples that may take longer than the SLO at batch 1

	costByModel  []float64 // cost of the visited cascade, by model
	visitCascade func(cost, accuracy float64, byModel []float64)
}

// visitPrefix visits all cascades that begin with the models and levels chosen by its callers (the prefix) and go on
// with model m. samples is the set that reaches m. cost (seconds per request), latency (of one sample) and
// correctBefore (correct answers) are of the models before it.
func (w *cascadeVisitor) visitPrefix(m int, samples bitSet, cost float64, latency time.Duration, correctBefore int) {
	if math.IsInf(w.secondsPerSample[m], 1) {
		return
	}

	// Cost and latency with this model.
	n := samples.size()
	modelCost := w.secondsPerSample[m] * float64(n) / float64(w.samples.sampleCount)
	cost += modelCost
	if latency += w.singleSample[m]; latency > w.slo && n > w.maxLate {
		return // every longer cascade is late, too
	}

	// The cascade that ends here.
	correctHere := commonCount(samples, w.samples.correct[m])
	w.costByModel[m] = modelCost
	defer func() { w.costByModel[m] = 0 }()
	w.visitCascade(cost, float64(correctBefore+correctHere)/float64(w.samples.sampleCount), w.costByModel)
	if m+1 == len(w.secondsPerSample) {
		return
	}

	// Longer cascades: each level, below which samples are forwarded, and each next model. If none or all are forwarded, a shorter
	// cascade does the same.
	forwarded := newSet(w.samples.sampleCount)
	for l := 1; l < len(w.samples.atLevel[m]); l++ {
		setDifference(forwarded, samples, w.samples.atLevel[m][l])
		if k := forwarded.size(); k == 0 || k == n {
			continue
		}
		correctKept := correctHere - commonCount(forwarded, w.samples.correct[m])
		for next := m + 1; next < len(w.secondsPerSample); next++ {
			w.visitPrefix(next, forwarded, cost, latency, correctBefore+correctKept)
		}
	}
}

// envelopeOf returns the upper concave envelope of cascades, given as points of cost and accuracy in any order: by
// rising cost, those that no mixture of others beats. It sorts the points in place.
func envelopeOf(points []costPoint) costEnvelope {
	slices.SortFunc(points, func(a, b costPoint) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(b.accuracy, a.accuracy))
	})
	var envelope costEnvelope
	bestAccuracy := -1.0
	for _, p := range points {
		if p.accuracy <= bestAccuracy {
			continue
		}
		bestAccuracy = p.accuracy
		// Remove points that lie on or below the line from the one before them to p.
		for n := len(envelope); n >= 2; n = len(envelope) {
			a, b := envelope[n-2], envelope[n-1]
			if (b.accuracy-a.accuracy)*(p.cost-a.cost) > (p.accuracy-a.accuracy)*(b.cost-a.cost) {
				break
			}
			envelope = envelope[:n-1]
		}
		envelope = append(envelope, p)
	}
	return envelope
}
