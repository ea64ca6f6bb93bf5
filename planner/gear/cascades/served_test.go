package cascades

import (
	"math"
	"slices"
	"testing"

	"inferplan/planner/lists"
)

// Rates on both sides of an edge are served by the faster gear: the slower one
// would need half a second without a window above the edge.
func TestServedAtAnEdge(t *testing.T) {
	var rates []float64
	for i := range 100 {
		rates = append(rates, []float64{480, 520}[i%2])
	}
	byRate, served := MeasuredWeights(rates, 1000, 2), ServedWeights(rates, 1000, 2, 1)
	if math.Abs(byRate[0]-.48) > 1e-9 {
		t.Errorf("by rate %v, expected .48 below the edge", byRate)
	}
	if math.Abs(lists.Total(served)-1) > 1e-9 || served[0] > .2 || served[0] == 0 {
		t.Errorf("served %v, expected nearly all by the faster gear", served)
	}
	if again := ServedWeights(rates, 1000, 2, 1); !slices.Equal(served, again) {
		t.Errorf("the same seed gives %v and %v", served, again)
	}
	// Steady rates away from edges are what they are, up to a window at the change.
	steady := slices.Concat(slices.Repeat([]float64{200}, 300), slices.Repeat([]float64{800}, 300))
	if got := ServedWeights(steady, 1000, 2, 1); math.Abs(got[0]-.2) > .005 {
		t.Errorf("steady rates: %v, expected .2 and .8", got)
	}
	if got := ServedWeights(nil, 1000, 2, 1); !slices.Equal(got, UniformWeights(2)) {
		t.Errorf("without rates: %v", got)
	}
}

// Twenty minutes of rates are replayed in a part of the planning time.
func BenchmarkServedWeights(b *testing.B) {
	b.ReportAllocs()
	rates := make([]float64, 1200)
	for i := range rates {
		rates[i] = 1500 + 1000*math.Sin(float64(i)/30)
	}
	for b.Loop() {
		ServedWeights(rates, 7600, 10, 1)
	}
}
