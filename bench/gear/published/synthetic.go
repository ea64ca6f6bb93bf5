package published

import (
	"math"
	"slices"

	"inferplan/formats"
)

// splitmix is splitmix64.
type splitmix uint64

func (s *splitmix) uniform() float64 {
	*s += 0x9E3779B97F4A7C15
	x := uint64(*s)
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return (float64((x^x>>31)>>11) + .5) / (1 << 53)
}

func (s *splitmix) normal() float64 {
	u1, u2 := s.uniform(), s.uniform()
	return math.Sqrt(-2*math.Log(u1)) * math.Cos(2*math.Pi*u2)
}

// Of the joint model: samples, correlation of scores between models, and how
// sharp the softmax is.
const (
	samples = 10000
	rho     = .75
	kappa   = 2.0
)

// synthetic draws correlated scores of a family and shifts the truth's, option
// 0, until the accuracies come out.
func synthetic(names []string, accuracy []float64, options int, seed splitmix) *formats.Records {
	z := make([][][]float64, len(names))
	shared := make([]float64, options)
	for range samples {
		for o := range shared {
			shared[o] = seed.normal()
		}
		for k := range names {
			one := make([]float64, options)
			for o := range one {
				one[o] = math.Sqrt(rho)*shared[o] + math.Sqrt(1-rho)*seed.normal()
			}
			z[k] = append(z[k], one)
		}
	}
	out := &formats.Records{Samples: samples, PlanningSamples: samples}
	for k := range names {
		need := make([]float64, samples) // the truth wins where the shift exceeds it
		for i := range need {
			need[i] = slices.Max(z[k][i][1:]) - z[k][i][0]
		}
		sorted := slices.Clone(need)
		slices.Sort(sorted)
		want := int(math.Round(accuracy[k] * samples))
		shift := (sorted[want-1] + sorted[want]) / 2
		r := formats.ModelRecords{Model: names[k]}
		correct := make([]byte, samples)
		for i := range correct {
			z[k][i][0] += shift
			correct[i] = '0'
			if shift > need[i] {
				correct[i] = '1'
			}
			r.Certainty = append(r.Certainty, topTwo(z[k][i]))
		}
		r.Correct = string(correct)
		out.Models = append(out.Models, r)
	}
	return out
}

// topTwo is the difference of the two largest softmax values.
func topTwo(z []float64) float64 {
	var list []float64
	sum := 0.0
	for _, x := range z {
		e := math.Exp(kappa * (x - slices.Max(z)))
		list, sum = append(list, e), sum+e
	}
	slices.Sort(list)
	return (list[len(list)-1] - list[len(list)-2]) / sum
}
