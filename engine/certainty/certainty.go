package certainty

import (
	"cmp"
	"fmt"
	"math"
	"strings"
)

// Default is the score that CascadeServe uses (its equation 5): the largest
// probability less the second largest.
const Default = "top1-top2"

// Func computes the certainty, from 0 to 1, of one sample's probabilities.
type Func func(probabilities []float64) float64

var funcs = []struct {
	name string
	f    Func
}{
	{Default, TopTwo},
	{"top1", Top},
	{"entropy", Entropy},
}

// Names lists the scores of certainty (how sure a classifier is of an answer) that a plan may name.
func Names() []string {
	out := make([]string, len(funcs))
	for i := range funcs {
		out[i] = funcs[i].name
	}
	return out
}

// ByName returns the score of certainty (how sure a classifier is of an answer) with a name. The empty name means
// Default.
func ByName(name string) (Func, error) {
	name = cmp.Or(name, Default)
	for i := range funcs {
		if funcs[i].name == name {
			return funcs[i].f, nil
		}
	}
	return nil, fmt.Errorf("certainty %q: unknown, expected one of %s", name, strings.Join(Names(), ", "))
}

// TopTwo returns the largest of a sample's probabilities minus the second largest: near 1 for a sure answer, near 0
// for a doubtful one.
func TopTwo(p []float64) float64 {
	largest, second := 0.0, 0.0
	for _, v := range p {
		if v > largest {
			largest, second = v, largest
		} else if v > second {
			second = v
		}
	}
	return largest - second
}

// Top returns the largest of a sample's probabilities.
func Top(p []float64) float64 {
	largest := 0.0
	for _, v := range p {
		largest = max(largest, v)
	}
	return largest
}

// Entropy returns 1 minus the entropy of p divided by the largest possible one, the logarithm of the number of
// classes: 1 for a sure answer, 0 for equal probabilities. All zeros, which Normalise makes of invalid scores, give
// 0.
func Entropy(p []float64) float64 {
	if len(p) < 2 {
		return Top(p)
	}
	entropy, sum := 0.0, 0.0
	for _, v := range p {
		if v > 0 {
			entropy -= v * math.Log(v)
			sum += v
		}
	}
	if sum == 0 {
		return 0
	}
	return min(1, max(0, 1-entropy/math.Log(float64(len(p)))))
}

// tolerance bounds the difference of a sum of probabilities in single precision from 1.
const tolerance = 1e-3

// Normalise turns a model's scores for one sample into probabilities, in place, and returns the class of the largest
// score (the first of equal ones). Scores from 0 to 1 with a sum of 1 are probabilities already, and stay. Scores
// with a NaN or an infinity become zeros, whose certainty is 0, and the class is -1.
func Normalise(scores []float64) (class int) {
	// Find the largest score, and whether the scores are probabilities already.
	class = -1
	sum, largest, allInRange := 0.0, math.Inf(-1), true
	for i, v := range scores {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			clear(scores)
			return -1
		}
		if v > largest {
			class, largest = i, v
		}
		allInRange = allInRange && v >= 0 && v <= 1
		sum += v
	}
	if allInRange && math.Abs(sum-1) <= tolerance {
		return class
	}

	// Otherwise they are logits: take the softmax, relative to the largest so that no exponential overflows.
	sum = 0
	for i, v := range scores {
		scores[i] = math.Exp(v - largest)
		sum += scores[i]
	}
	for i := range scores {
		scores[i] /= sum
	}
	return class
}
