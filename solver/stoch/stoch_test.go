package stoch_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat"
	"pgregory.net/rapid"

	"inferplan/solver/stoch"
)

func newGenerator(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

// exactQuantile is the value that a normal X exceeds with probability 1 - Level.
func exactQuantile(c stoch.Chance, mean, variance float64) float64 {
	return mean + c.Z()*math.Sqrt(variance+c.CommonSD*c.CommonSD*mean*mean)
}

// TestTangentKeepsItsLevel draws sums and counts how often the limit that the constraint just
// allows is passed, and holds the row above the exact form.
func TestTangentKeepsItsLevel(t *testing.T) {
	c := stoch.Chance{Level: 0.9, CommonSD: 0.08}
	limit := exactQuantile(c, 100, 64)
	rng, over := newGenerator(9), 0
	const n = 40000
	for range n {
		if 100*(1+0.08*rng.NormFloat64())+8*rng.NormFloat64() > limit {
			over++
		}
	}
	if share := float64(over) / n; math.Abs(share-0.1) > 0.008 {
		t.Errorf("the limit of level .9 is passed by %.4f", share)
	}
	rapid.Check(t, func(t *rapid.T) {
		c := stoch.Chance{Level: rapid.Float64Range(0.5, 0.999).Draw(t, "level"), CommonSD: rapid.Float64Range(0, 0.3).Draw(t, "common")}
		v0 := rapid.Float64Range(0.1, 1e4).Draw(t, "v0")
		mean, variance := rapid.Float64Range(0, 1e4).Draw(t, "mean"), rapid.Float64Range(0, 1e4).Draw(t, "variance")
		a, b, k, err := c.Tangent(v0)
		if err != nil {
			t.Fatal(err)
		}
		if row, exact := a*mean+b*variance+k, exactQuantile(c, mean, variance); row < exact-1e-9*(1+exact) {
			t.Errorf("the row gives %g, below the exact %g", row, exact)
		}
		c.CommonSD = 0
		a, b, k, _ = c.Tangent(v0)
		if row, exact := a*mean+b*v0+k, exactQuantile(c, mean, v0); math.Abs(row-exact) > 1e-9*(1+exact) {
			t.Errorf("the row does not touch at v0: %g, exact %g", row, exact)
		}
	})
}

func TestScenariosHaveTheirSpread(t *testing.T) {
	s := stoch.SampleScenarios(newGenerator(1), 200, 2, 0.08, []float64{0.3, 0})
	column := func(rows [][]float64, j int) []float64 {
		out := make([]float64, len(rows))
		for i := range rows {
			out[i] = rows[i][j]
		}
		return out
	}
	for _, c := range []struct {
		name string
		got  []float64
		sd   float64
	}{{"queue 0", column(s.QueueFactors, 0), 0.08}, {"queue 1", column(s.QueueFactors, 1), 0.08}, {"group 0", column(s.GroupFactors, 0), 0.3}, {"group 1", column(s.GroupFactors, 1), 0}} {
		mean, sd := stat.MeanStdDev(c.got, nil)
		if math.Abs(mean-1) > 0.01*c.sd+1e-12 || math.Abs(sd-c.sd) > 0.03*c.sd+1e-12 {
			t.Errorf("%s: mean %g, standard deviation %g, expected 1 and %g", c.name, mean, sd, c.sd)
		}
	}
	again := stoch.SampleScenarios(newGenerator(1), 200, 2, 0.08, []float64{0.3, 0})
	if !slices.Equal(s.GroupFactors[3], again.GroupFactors[3]) || !slices.Equal(s.QueueFactors[199], again.QueueFactors[199]) {
		t.Error("the same seed gives other scenarios")
	}
}

func TestPhiIsNearTheExactValue(t *testing.T) {
	worst := 0.0
	for z := -8.0; z < 8; z += 1e-3 {
		worst = max(worst, math.Abs(stoch.Phi(z)-stoch.Normal{Sigma: 1}.CDF(z)))
	}
	if worst > 2e-6 {
		t.Errorf("the table is off by %g", worst)
	}
	if stoch.Phi(math.NaN()) != 0 || stoch.Phi(math.Inf(1)) != 1 || stoch.Phi(math.Inf(-1)) != 0 {
		t.Error("the ends are wrong")
	}
}

func TestTangentRefusesBadInput(t *testing.T) {
	for name, call := range map[string]func() error{
		"level below .5":  func() error { _, _, _, err := stoch.Chance{Level: 0.4}.Tangent(1); return err },
		"tangent at zero": func() error { _, _, _, err := stoch.Chance{Level: 0.9}.Tangent(0); return err },
	} {
		if call() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func BenchmarkPhi(b *testing.B) {
	b.ReportAllocs()
	z, sum := -5.0, 0.0
	for b.Loop() {
		sum += stoch.Phi(z)
		if z += 0.37; z > 5 {
			z = -5
		}
	}
	if sum < 0 {
		b.Fatal(sum)
	}
}

func BenchmarkErfc(b *testing.B) {
	z, sum := -5.0, 0.0
	for b.Loop() {
		sum += stoch.Normal{Sigma: 1}.CDF(z)
		if z += 0.37; z > 5 {
			z = -5
		}
	}
	if sum < 0 {
		b.Fatal(sum)
	}
}
