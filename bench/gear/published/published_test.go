package published

import (
	"errors"
	"io/fs"
	"math"
	"slices"
	"strings"
	"testing"
)

// The synthetic answers have the accuracies that they are made for, and
// certainties that tell right from wrong as published (areas under the curve).
func TestSynthetic(t *testing.T) {
	for _, c := range []struct {
		f             *Family
		accuracy, auc []float64
	}{
		{BERT5(), []float64{.832, .859, .897, .896, .935}, []float64{.79, .82, .855, .86, .91}},
		{Llama4(), []float64{.490, .571, .601, .648}, []float64{.63, .68, .70, .71}},
	} {
		for k := range c.f.Models {
			r := &c.f.Records.Models[k]
			if got := float64(strings.Count(r.Correct, "1")) / samples; got != c.accuracy[k] {
				t.Errorf("%s, %s: accuracy %v, expected %v", c.f.Name, r.Model, got, c.accuracy[k])
			}
			if got := area(r.Certainty, r.Correct); math.Abs(got-c.auc[k]) > .0051 {
				t.Errorf("%s, %s: area %.3f, expected %.3f", c.f.Name, r.Model, got, c.auc[k])
			}
		}
	}
}

// area is the share of pairs of a right and a wrong answer of which the right
// one is more certain.
func area(certainty []float64, correct string) float64 {
	order := make([]int, len(certainty))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		if certainty[a] < certainty[b] {
			return -1
		}
		return 1
	})
	wrong, pairs := 0.0, 0.0
	for _, i := range order {
		if correct[i] == '1' {
			pairs += wrong
		} else {
			wrong++
		}
	}
	return pairs / wrong / (float64(len(certainty)) - wrong)
}

// The traces have the means and peaks of an independent prototype of CascadeServe.
func TestTraces(t *testing.T) {
	for _, c := range []struct {
		name       string
		mean, peak float64
		requests   int
	}{{"bert5", 1732.5, 7600, 2079057}, {"llama4", 23.6, 60, 0}, {"imdb3", 1732.5, 7600, 2079057}} {
		f, err := Load(c.name, Dir())
		if errors.Is(err, fs.ErrNotExist) {
			t.Skipf("no reference data: set INFERPLAN_DATA to the folder that holds traces/ and cascade/ (%v)", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Rates.Total() / f.Rates.Duration().Seconds(); math.Abs(got-c.mean) > .05 || f.Rates.Peak() != c.peak || f.Peak != c.peak {
			t.Errorf("%s: mean %.2f, peak %v, expected %v and %v", c.name, got, f.Rates.Peak(), c.mean, c.peak)
		}
		if got := int(f.Rates.Total()); c.requests > 0 && got != c.requests {
			t.Errorf("%s: %d requests, expected %d", c.name, got, c.requests)
		}
	}
	if _, err := Load("bert6", Dir()); err == nil || !strings.Contains(err.Error(), `family "bert6": expected one of`) {
		t.Errorf("an unknown family: %v", err)
	}
}
