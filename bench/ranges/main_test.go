package main

import (
	"math"
	"slices"
	"testing"

	"inferplan/bench/instrument"
	"inferplan/formats"
	"inferplan/formats/document"
)

// Errors are of CPU times, and the estimate knows nothing of the ranges.
func TestCompare(t *testing.T) {
	latency := func(us float64) formats.Latency {
		return formats.Latency{WallUS: document.Micros(5e6), CPUUS: document.Micros(us * 1e3)}
	}
	whole := latency(270)
	p := &formats.Profile{
		Devices: []formats.ProfileDevice{{Device: "cpu-1"}},
		Models: []formats.ProfileModel{{
			Model: "m", Blocks: []formats.Block{{CutBytesFP32: 10}, {CutBytesFP32: 20}, {}},
			Measurements: []formats.Measurement{{
				Device: "cpu-1", Share: 1, Batch: 2, WholeModel: &whole, Blocks: []formats.Latency{latency(100), latency(100), latency(100)},
				Ranges: []formats.RangeLatency{{Blocks: [2]int{0, 2}, Latency: latency(200)}, {Blocks: [2]int{1, 3}, Latency: latency(180)}},
			}},
		}},
	}
	list, err := compare(p)
	if err != nil || len(list) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	for i, want := range [][2]float64{{190./200 - 1, 0}, {0, 200./180 - 1}} {
		if math.Abs(list[i].estimate-want[0]) > 1e-9 || math.Abs(list[i].sum-want[1]) > 1e-9 {
			t.Errorf("%+v, expected errors of %v", list[i], want)
		}
	}
	tab := &instrument.Table{}
	report(&instrument.Run{}, tab, list)
	if want := []string{"2", "2", "0.0", "5.0", "-5.0", "0.0", "11.1"}; len(tab.Rows) != 1 || !slices.Equal(tab.Rows[0], want) {
		t.Errorf("rows %v, expected %v", tab.Rows, want)
	}
	if p.Models[0].Measurements[0].Blocks[0].WallUS != 5e6 || len(p.Models[0].Measurements[0].Ranges) != 2 {
		t.Error("the profile was changed")
	}
}

// The draw is of ranges of two or more blocks, but not all, each once, and the same
// for the same seed.
func TestDrawn(t *testing.T) {
	a := drawn("m", 10, 19, 1)
	if len(a) != 19 || !slices.Equal(a, drawn("m", 10, 19, 1)) || slices.Equal(a, drawn("m", 10, 19, 2)) {
		t.Errorf("%v", a)
	}
	seen := map[[2]int]bool{}
	for _, r := range drawn("m", 5, 100, 1) {
		if seen[r] || r[1]-r[0] < 2 || r[1]-r[0] == 5 || r[1] > 5 {
			t.Errorf("range %v", r)
		}
		seen[r] = true
	}
	if len(seen) != 9 {
		t.Errorf("%d ranges of 5 blocks", len(seen))
	}
}
