package tolerance_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
	"pgregory.net/rapid"

	"inferplan/solver/tolerance"
)

// Eight values below .9 leave it open whether one in a hundred fresh ones exceeds 1. Had there
// been four times as many like these, it would be settled.
func ExampleValues_SeldomAbove() {
	v := tolerance.IndependentValues([]float64{.80, .83, .76, .89, .81, .85, .78, .84})
	fmt.Println(v.SeldomAbove(1, 1, .01, .95), v.ScaleCount(4).SeldomAbove(1, 1, .01, .95))
	// Output: false true
}

// The factors are those of the tables: the mean and so many deviations are above that share of
// all values (NIST/SEMATECH e-Handbook, section 7.2.6.3, for 43 values; Odeh and Owen 1980).
func TestFactorsOfTheTables(t *testing.T) {
	for _, c := range []struct {
		n                          float64
		chance, confidence, factor float64
	}{{43, .1, .99, 1.8752}, {10, .01, .95, 3.981}, {20, .05, .95, 2.396}} {
		v := tolerance.Values{Deviation: 1, N: c.n, EffectiveN: c.n}
		if v.SeldomAbove(c.factor*.999, 1, c.chance, c.confidence) || !v.SeldomAbove(c.factor*1.001, 1, c.chance, c.confidence) {
			t.Errorf("%v values: %v deviations is not the factor of %v at %v", c.n, c.factor, 1-c.chance, c.confidence)
		}
	}
}

// More room, a larger chance, less confidence and means of more values never turn a yes into
// a no. What does not vary is below every limit above its mean.
func TestSeldomAboveIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := tolerance.IndependentValues(rapid.SliceOfN(rapid.Float64Range(0, 1), 2, 20).Draw(t, "values"))
		limit, fresh := rapid.Float64Range(0, 4).Draw(t, "limit"), rapid.Float64Range(1, 40).Draw(t, "fresh")
		chance, confidence := rapid.Float64Range(.01, .3).Draw(t, "chance"), rapid.Float64Range(.6, .99).Draw(t, "confidence")
		if v.SeldomAbove(limit, fresh, chance, confidence) {
			if !v.SeldomAbove(limit+.1, fresh, chance, confidence) || !v.SeldomAbove(limit, fresh, chance+.05, confidence) ||
				!v.SeldomAbove(limit, fresh, chance, confidence-.05) || !v.SeldomAbove(limit, fresh+1, chance, confidence) {
				t.Fatalf("%+v: less is asked and refused", v)
			}
		}
		if v.Deviation == 0 && v.SeldomAbove(limit, fresh, chance, confidence) != (v.Mean <= limit) {
			t.Fatalf("%+v below %v: wrong", v, limit)
		}
	})
}

// Values that are alike are worth fewer. Over many runs of an autoregression, their mean
// varies as much as the estimate says, or somewhat less: it is on the safe side.
func TestCorrelatedValues(t *testing.T) {
	const run, runs, tries = 100, 3, 1000
	for _, alike := range []float64{0, .3, .6} {
		rng := rand.New(rand.NewPCG(1, 1))
		means, said, worth := make([]float64, tries), 0.0, 0.0
		for n := range means {
			list := make([]float64, 0, run*runs)
			for range runs {
				x := rng.NormFloat64()
				for range run {
					x = alike*x + math.Sqrt(1-alike*alike)*rng.NormFloat64()
					list = append(list, x)
				}
			}
			v := tolerance.CorrelatedValues(list, run, run)
			means[n] = v.Mean
			said, worth = said+v.Deviation*v.Deviation/v.N/tries, worth+v.EffectiveN/tries
		}
		varies := stat.Variance(means, nil)
		t.Logf("alike %.1f: the mean varies by %.4f, said to %.4f; %d values worth %.1f", alike, varies, said, run*runs, worth)
		if said < .9*varies || said > 1.5*varies || worth > 1.1*run*runs*(1-alike)/(1+alike) {
			t.Errorf("alike %.1f: the mean varies by %.4f, said to %.4f; %d values worth %.1f", alike, varies, said, run*runs, worth)
		}
	}
}

// Values that are all the same are worth what they are, and do not vary.
func TestCorrelatedConstants(t *testing.T) {
	if v := tolerance.CorrelatedValues([]float64{.25, .25, .25, .25}, 2, 4); v != (tolerance.Values{Mean: .25, N: 4, EffectiveN: 4}) || v.Wander(10, .01) != 0 {
		t.Errorf("%+v", v)
	}
}

// The difference of two means of fresh values is above what is said with that chance.
func TestWanderIsNormalQuantile(t *testing.T) {
	v := tolerance.Values{Deviation: 3, N: 100, EffectiveN: 100}
	want := distuv.Normal{Sigma: 3 * math.Sqrt(2./16)}.Quantile(.99)
	if got := v.Wander(16, .01); math.Abs(got-want) > 1e-12 {
		t.Errorf("%v, expected %v", got, want)
	}
}
