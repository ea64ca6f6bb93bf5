package arrivals

import (
	"math"
	"testing"
	"time"

	"inferplan/formats/seeded"
)

// Every second has the requests of its rate: exactly, where they come evenly, and on
// average by a Poisson process, whose counts vary as much as they are large.
func TestArrivalsFollowRatesOfSeconds(t *testing.T) {
	rates := []float64{4, 0, 2.5, 8}
	even, err := Collect(Evenly(rates), 0)
	if err != nil || len(even) != 15 {
		t.Fatalf("%d requests, %v, expected 15: the last when 14.5 is reached", len(even), err)
	}
	for i, want := range []time.Duration{125, 375, 625, 875, 2200, 2600} {
		if got := even[i].ArrivedAt; got.Round(time.Microsecond) != want*time.Millisecond {
			t.Errorf("request %d comes at %v, expected %v ms", i, got, int64(want))
		}
	}
	const n = 2000
	var sums, squares [4]float64
	for seed := range uint64(n) {
		list, err := Collect(PoissonOf(rates, seeded.New(seed, "test")), 0)
		if err != nil {
			t.Fatal(err)
		}
		var count [4]float64
		for _, r := range list {
			count[int(r.ArrivedAt/time.Second)]++
		}
		for k, c := range count {
			sums[k], squares[k] = sums[k]+c, squares[k]+c*c
		}
	}
	for k, rate := range rates {
		mean := sums[k] / n
		if variance := squares[k]/n - mean*mean; math.Abs(mean-rate) > .05*rate || math.Abs(variance-rate) > .15*rate {
			t.Errorf("second %d: mean %.3f and variance %.3f, expected %v", k, mean, variance, rate)
		}
	}
}
