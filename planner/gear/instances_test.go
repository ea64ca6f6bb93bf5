package gear

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// instance draws a problem of one to three kinds of devices, six devices in all at most:
// two to four models of rising cost and accuracy, whose speeds on other kinds are
// unrelated, and 400 samples whose certainty tells a little of whether they are right.
func instance(seed uint64) *Problem {
	rng := rand.New(rand.NewPCG(seed, 20240610))
	between := func(low, high float64) float64 { return low * math.Exp(rng.Float64()*math.Log(high/low)) }
	models, kinds, ranges := 2+rng.IntN(3), 1+rng.IntN(3), 2+rng.IntN(3)
	p := &Problem{Grid: 5, Percentile: .95, Weights: Zipf(ranges)}
	p.Planned, p.HeldOut = drawSamples(rng, models, p.Grid, 400), &Samples{Levels: make([][]uint8, models), Correct: make([][]bool, models)}
	base, total, largest := between(1, 20), int64(0), int64(0)
	for m := range models {
		p.Models = append(p.Models, Model{Name: fmt.Sprint("m", m), Times: affine(base*between(.5, 1.5), base*between(.1, .8), 1), Memory: 1 + rng.Int64N(8)})
		base *= between(1.5, 4)
		total, largest = total+p.Models[m].Memory, max(largest, p.Models[m].Memory)
		p.Thresholds = append(p.Thresholds, make([]float64, p.Grid-1))
	}
	memory := func() int64 { return largest - 2 + rng.Int64N(total-largest+4) }
	p.Devices, p.Memory = 1+rng.IntN(4), max(memory(), p.Models[0].Memory)
	if kinds > 1 {
		p.Devices, p.Memory = 0, 0
		addKinds(rng, p, kinds, memory)
	}
	last := p.Models[models-1].Times[0]
	p.SLO = time.Duration(between(3, 20) * float64(last))
	p.Edges = Ranges(between(.25, .9)*capacity(p, rng.IntN(models)), ranges)
	return p
}

// affine are the times of batches up to eight: a fixed part and one per sample, in
// milliseconds.
func affine(fixed, each, factor float64) []time.Duration {
	out := make([]time.Duration, 8)
	for b := range out {
		out[b] = time.Duration(factor * (fixed + each*float64(b+1)) * 1e6)
	}
	return out
}

// drawSamples draws answers: a sample is as hard for one model as for another, but for
// luck, and certainty is what is easy with noise.
func drawSamples(rng *rand.Rand, models, grid, n int) *Samples {
	s := &Samples{N: n}
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
		s.Levels = append(s.Levels, levelsOf(certainty, Thresholds(certainty, grid)))
		s.Correct = append(s.Correct, correct)
	}
	return s
}

// addKinds makes the devices of several kinds, on which speeds are unrelated, at prices.
func addKinds(rng *rand.Rand, p *Problem, kinds int, memory func() int64) {
	own := make([][]time.Duration, len(p.Models))
	for m := range p.Models {
		own[m] = p.Models[m].Times
		p.Models[m].Times = nil
	}
	for k := range kinds {
		p.Kinds = append(p.Kinds, Kind{Name: fmt.Sprint("k", k), Devices: 1 + rng.IntN(6/kinds), Memory: max(memory(), p.Models[0].Memory), Price: float64(1+rng.IntN(40)) / 10})
		for m := range p.Models {
			factor := .4 + 2.6*rng.Float64()
			v := Variant{Memory: p.Models[m].Memory}
			for b, t := range own[m] {
				v.Times = append(v.Times, time.Duration(factor*float64(t)))
				if b == len(p.Models[m].Times) {
					p.Models[m].Times = append(p.Models[m].Times, v.Times[b])
				}
				p.Models[m].Times[b] = min(p.Models[m].Times[b], v.Times[b])
			}
			p.Models[m].On = append(p.Models[m].On, v)
		}
	}
}

// capacity is how many requests per second all devices hold of one model alone.
func capacity(p *Problem, model int) float64 {
	if len(p.Kinds) == 0 {
		t := p.Models[model].Times
		return float64(p.Devices*len(t)) / t[len(t)-1].Seconds()
	}
	rate := 0.0
	for k := range p.Kinds {
		t := p.Models[model].On[k].Times
		rate += float64(p.Kinds[k].Devices*len(t)) / t[len(t)-1].Seconds()
	}
	return rate
}

// clonedKinds is the problem with kinds of its own.
func clonedKinds(p *Problem) *Problem {
	q := *p
	q.Kinds = slices.Clone(p.Kinds)
	return &q
}
