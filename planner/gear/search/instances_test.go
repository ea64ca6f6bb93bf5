package search

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"inferplan/planner/gear/cascades"
)

// randomInstance draws a problem of one to three kinds of devices, six devices in all at most:
// two to four models of rising cost and accuracy, whose speeds on other kinds are
// unrelated, and 400 samples whose certainty tells a little of whether they are right.
func randomInstance(seed uint64) *cascades.Problem {
	rng := rand.New(rand.NewPCG(seed, 20240610))
	between := func(low, high float64) float64 { return low * math.Exp(rng.Float64()*math.Log(high/low)) }
	models, kinds, ranges := 2+rng.IntN(3), 1+rng.IntN(3), 2+rng.IntN(3)
	p := &cascades.Problem{Grid: 5, Percentile: .95, RangeWeights: cascades.ZipfWeights(ranges)}
	p.PlanningSamples, p.HeldOutSamples = drawSamples(rng, models, p.Grid, 400), &cascades.Samples{Levels: make([][]uint8, models), Correct: make([][]bool, models)}
	base, total, largest := between(1, 20), int64(0), int64(0)
	for m := range models {
		p.Models = append(p.Models, cascades.NewModel(fmt.Sprint("m", m), cascades.Variant{MedianTimes: affineTimes(base*between(.5, 1.5), base*between(.1, .8), 1), Memory: 1 + rng.Int64N(8)}))
		base *= between(1.5, 4)
		total, largest = total+p.Models[m].Variants[0].Memory, max(largest, p.Models[m].Variants[0].Memory)
		p.Thresholds = append(p.Thresholds, make([]float64, p.Grid-1))
	}
	memory := func() int64 { return largest - 2 + rng.Int64N(total-largest+4) }
	p.Kinds = []cascades.Kind{{Name: "device", Devices: 1 + rng.IntN(4), Memory: max(memory(), p.Models[0].Variants[0].Memory), Price: 1}}
	if kinds > 1 {
		addKinds(rng, p, kinds, memory)
	}
	last := p.Models[models-1].FastestTimes[0]
	p.SLO = time.Duration(between(3, 20) * float64(last))
	p.RangeEdges = cascades.EqualRanges(between(.25, .9)*modelCapacity(p, rng.IntN(models)), ranges)
	return p
}

// affineTimes are the times of batches up to eight: a fixed part and one per sample, in
// milliseconds.
func affineTimes(fixed, each, factor float64) []time.Duration {
	out := make([]time.Duration, 8)
	for b := range out {
		out[b] = time.Duration(factor * (fixed + each*float64(b+1)) * 1e6)
	}
	return out
}

// drawSamples draws answers: a sample is as hard for one model as for another, but for
// luck, and certainty is what is easy with noise.
func drawSamples(rng *rand.Rand, models, grid, n int) *cascades.Samples {
	s := &cascades.Samples{N: n}
	easy := make([]float64, n)
	for i := range easy {
		easy[i] = rng.NormFloat64()
	}
	for m := range models {
		certainty, correct := make([]float64, n), make([]bool, n)
		for i := range easy {
			own := .8*easy[i] + .6*rng.NormFloat64()
			correct[i] = own > .2-.45*float64(m)
			certainty[i] = math.Abs(own-.2+.45*float64(m)) + .4*rng.Float64()
		}
		s.Levels = append(s.Levels, cascades.CertaintyLevels(certainty, cascades.Thresholds(certainty, grid)))
		s.Correct = append(s.Correct, correct)
	}
	return s
}

// addKinds makes the devices of several kinds, on which speeds are unrelated, at prices.
func addKinds(rng *rand.Rand, p *cascades.Problem, kinds int, memory func() int64) {
	own := slices.Clone(p.Models)
	on := make([][]cascades.Variant, len(own))
	p.Kinds = nil
	for k := range kinds {
		p.Kinds = append(p.Kinds, cascades.Kind{Name: fmt.Sprint("k", k), Devices: 1 + rng.IntN(6/kinds), Memory: max(memory(), own[0].Variants[0].Memory), Price: float64(1+rng.IntN(40)) / 10})
		for m := range p.Models {
			factor := .4 + 2.6*rng.Float64()
			v := cascades.Variant{Memory: own[m].Variants[0].Memory}
			for _, t := range own[m].FastestTimes {
				v.MedianTimes = append(v.MedianTimes, time.Duration(factor*float64(t)))
			}
			on[m] = append(on[m], v)
		}
	}
	for m := range own {
		p.Models[m] = cascades.NewModel(own[m].Name, on[m]...)
	}
}

// modelCapacity is how many requests per second all devices hold of one model alone.
func modelCapacity(p *cascades.Problem, model int) float64 {
	rate := 0.0
	for k := range p.Kinds {
		t := p.Models[model].Variants[k].MedianTimes
		rate += float64(p.Kinds[k].Devices*len(t)) / t[len(t)-1].Seconds()
	}
	return rate
}

// clonedKinds is the problem with kinds of its own.
func clonedKinds(p *cascades.Problem) *cascades.Problem {
	q := *p
	q.Kinds = slices.Clone(p.Kinds)
	return &q
}
