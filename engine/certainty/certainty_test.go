package certainty

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestNamedScoresMatchFormulas(t *testing.T) {
	p := []float64{.1, .6, .3}
	for name, want := range map[string]float64{
		"": .3, "top1-top2": .3, "top1": .6,
		"entropy": 1 + (.1*math.Log(.1)+.6*math.Log(.6)+.3*math.Log(.3))/math.Log(3),
	} {
		f, err := ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := f(p); math.Abs(got-want) > 1e-12 {
			t.Errorf("%q: %v, expected %v", name, got, want)
		}
	}
	if _, err := ByName("topp"); err == nil {
		t.Error("an unknown name: no error")
	}
}

func TestNormaliseMakesProbabilities(t *testing.T) {
	nan := math.NaN()
	for name, c := range map[string]struct {
		in, want []float64
		class    int
	}{
		"probabilities stay": {[]float64{.2, .7996, .0003}, []float64{.2, .7996, .0003}, 1},
		"logits":             {[]float64{0, math.Log(3)}, []float64{.25, .75}, 1},
		"all small":          {[]float64{.1, .1}, []float64{.5, .5}, 0},
		"negative":           {[]float64{-1, 1, 1}, nil, 1},
		"huge":               {[]float64{1000, 0}, []float64{1, 0}, 0},
		"nan":                {[]float64{nan, 1}, []float64{0, 0}, -1},
		"infinite":           {[]float64{math.Inf(1), 1}, []float64{0, 0}, -1},
	} {
		got := append([]float64(nil), c.in...)
		if class := Normalise(got); class != c.class {
			t.Errorf("%s: class %d, expected %d", name, class, c.class)
		}
		for i := range c.want {
			if math.Abs(got[i]-c.want[i]) > 1e-12 {
				t.Errorf("%s: %v, expected %v", name, got, c.want)
				break
			}
		}
	}
}

// What is no answer is uncertain by every score.
func TestNoAnswerIsUncertain(t *testing.T) {
	for _, name := range Names() {
		f, err := ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range [][]float64{{math.NaN(), 1, 0}, {math.Inf(1), 0}, {math.NaN()}} {
			Normalise(p)
			if c := f(p); c != 0 {
				t.Errorf("%s of what is no answer: %v, expected 0", name, c)
			}
		}
	}
}

// Whatever a model puts out, a certainty is a number from 0 to 1 and the class
// is the largest score.
func TestAnyScores(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOfN(rapid.Float64(), 1, 20).Draw(t, "scores")
		p := append([]float64(nil), in...)
		class := Normalise(p)
		for _, name := range Names() {
			f, err := ByName(name)
			if err != nil {
				t.Fatal(err)
			}
			if c := f(p); !(c >= 0 && c <= 1) {
				t.Fatalf("%s of %v is %v", name, p, c)
			}
		}
		for i, v := range in {
			if class >= 0 && v > in[class] {
				t.Fatalf("class %d of %v, %d is larger", class, in, i)
			}
		}
	})
}

func TestNoAllocation(t *testing.T) {
	p := make([]float64, 10)
	if n := testing.AllocsPerRun(100, func() { p[3] = 4; Normalise(p); _ = TopTwo(p) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
