package arrivals

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"inferplan/formats"
	"inferplan/formats/seeded"
)

// longest bounds a drawn length if the distribution has no Max.
const longest = 1 << 20

// WithLengths gives the requests of a source lengths that are drawn from distributions, independently of each
// other. A nil distribution means one token.
func WithLengths(s Source, rng *rand.Rand, prompt, output *formats.Lengths) Source {
	in, outputLength := Lengths(prompt, rng), Lengths(output, rng)
	return &mappedSource{s, func(r *Request) bool {
		if !s.Next(r) {
			return false
		}
		r.PromptTokens, r.OutputTokens = in(), outputLength()
		return true
	}}
}

// Lengths returns a function that draws from a distribution of token counts, limited to 1 and Max. A nil
// distribution always gives 1.
func Lengths(l *formats.Lengths, rng *rand.Rand) func() int32 {
	if l == nil {
		return func() int32 { return 1 }
	}
	maxTokens := float64(longest)
	if l.Max > 0 {
		maxTokens = float64(l.Max)
	}
	clamp := func(x float64) int32 { return int32(min(max(math.Round(x), 1), maxTokens)) }
	switch l.Distribution {
	case formats.LengthsNormal:
		return func() int32 { return clamp(l.Mean + l.SD*rng.NormFloat64()) }
	case formats.LengthsLognormal:
		location, scale := lognormalParameters(l)
		return func() int32 { return clamp(math.Exp(location + scale*rng.NormFloat64())) }
	case formats.LengthsLogT:
		// The limit keeps the exponential finite.
		t := distuv.StudentsT{Mu: l.Location, Sigma: l.Scale, Nu: l.Tail, Src: rng}
		return func() int32 { return clamp(math.Exp(min(t.Rand(), 40))) }
	case formats.LengthsEmpirical:
		return empirical(l, rng, clamp)
	}
	return func() int32 { return clamp(l.Mean) }
}

// lognormalParameters returns the mean and the standard deviation of the logarithms of lognormal lengths.
func lognormalParameters(l *formats.Lengths) (location, scale float64) {
	variance := math.Log1p(l.SD * l.SD / (l.Mean * l.Mean))
	return math.Log(l.Mean) - variance/2, math.Sqrt(variance)
}

// empirical returns a function that draws from a list of lengths by weight. clamp limits and rounds them.
func empirical(l *formats.Lengths, rng *rand.Rand, clamp func(float64) int32) func() int32 {
	sums := make([]float64, len(l.Tokens))
	sum := 0.0
	for i := range sums {
		sum += weightAt(l, i)
		sums[i] = sum
	}
	return func() int32 {
		index, _ := slices.BinarySearch(sums, rng.Float64()*sum)
		return clamp(float64(l.Tokens[min(index, len(sums)-1)]))
	}
}

// weightAt returns the weight of the i-th length of an empirical distribution. Without weights all are equal.
func weightAt(l *formats.Lengths, i int) float64 {
	if len(l.Weights) == len(l.Tokens) {
		return l.Weights[i]
	}
	return 1
}

// meanOf is the number of draws over which the mean of a limited distribution is taken.
const meanOf = 20_000

// MeanLength returns the mean of a distribution of token counts as Lengths draws it, over a fixed stream of draws if
// there is no simple form. For a nil distribution it is 1. meanOf is the number of draws.
func MeanLength(l *formats.Lengths) float64 {
	n, sum := meanOf, 0.0
	switch {
	case l == nil:
		return 1
	case l.Distribution == formats.LengthsFixed:
		n = 1
	case l.Distribution == formats.LengthsEmpirical:
		totalWeight := 0.0
		for i, tokens := range l.Tokens {
			if l.Max > 0 {
				tokens = min(tokens, l.Max)
			}
			w := weightAt(l, i)
			totalWeight, sum = totalWeight+w, sum+w*float64(tokens)
		}
		return sum / totalWeight
	}

	// Draw, if there is no simple form.
	draw := Lengths(l, seeded.New(1, "mean length"))
	for range n {
		sum += float64(draw())
	}
	return sum / float64(n)
}

// ShareUpTo returns the share of lengths that are at most n, as Lengths draws them.
func ShareUpTo(l *formats.Lengths, n int64) float64 {
	if l.Max > 0 && n >= int64(l.Max) || n >= longest {
		return 1
	}
	if n < 1 {
		return 0
	}
	x := float64(n) + .5 // draws are rounded
	switch l.Distribution {
	case formats.LengthsNormal:
		return distuv.Normal{Mu: l.Mean, Sigma: l.SD}.CDF(x)
	case formats.LengthsLognormal:
		location, scale := lognormalParameters(l)
		return distuv.Normal{Mu: location, Sigma: scale}.CDF(math.Log(x))
	case formats.LengthsLogT:
		return distuv.StudentsT{Mu: l.Location, Sigma: l.Scale, Nu: l.Tail}.CDF(math.Log(x))
	case formats.LengthsEmpirical:
		totalWeight, sum := 0.0, 0.0
		for i, tokens := range l.Tokens {
			w := weightAt(l, i)
			if totalWeight += w; int64(tokens) <= n {
				sum += w
			}
		}
		return sum / totalWeight
	}
	if math.Round(l.Mean) <= float64(n) {
		return 1
	}
	return 0
}
