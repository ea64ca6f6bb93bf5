package stages

import (
	"slices"
	"testing"

	"inferplan/formats"
)

// Serving takes the measured means: of the whole model, of a range that was measured in
// one piece, and for other blocks in proportion to the whole's. Profiles without means
// say nothing.
func TestServed(t *testing.T) {
	lat := func(wall, mean, idle formats.Micros) formats.Latency {
		return formats.Latency{WallUS: 1000 * wall, MeanUS: 1000 * mean, IdleUS: 1000 * idle}
	}
	one, four := lat(100, 110, 125), lat(400, 420, 0)
	m := &formats.ProfileModel{Model: "m", Measurements: []formats.Measurement{
		{Device: "A", Share: 1, Batch: 4, Whole: &four},
		{Device: "A", Share: 1, Batch: 1, Whole: &one, Ranges: []formats.RangeLatency{{Blocks: [2]int{0, 2}, Latency: lat(50, 75, 0)}}},
		{Device: "B", Share: 1, Batch: 1, Whole: &formats.Latency{WallUS: 5000}},
	}}
	micros := func(list ...int) (out []formats.Micros) {
		for _, x := range list {
			out = append(out, formats.Micros(1000*x))
		}
		return out
	}
	for _, c := range []struct {
		name          string
		device        string
		first, last   int
		planned, mean []formats.Micros
		idle          formats.Micros
	}{
		{"whole", "A", 0, 4, micros(100, 400, 400, 400), micros(110, 420, 420, 420), 15_000},
		{"a measured range", "A", 0, 2, micros(50), micros(75), 15_000},
		{"an estimated range", "A", 2, 4, micros(60, 200), micros(66, 210), 15_000},
		{"a batch beyond all measured", "A", 0, 4, micros(1, 1, 1, 1, 1), nil, 0},
		{"no means", "B", 0, 4, micros(5), nil, 0},
		{"no measurement", "C", 0, 4, micros(5), nil, 0},
	} {
		mean, idle := Served(m, c.device, 1, c.first, c.last, c.planned)
		if !slices.Equal(mean, c.mean) || idle != c.idle {
			t.Errorf("%s: %v and %v more, expected %v and %v", c.name, mean, idle, c.mean, c.idle)
		}
	}
}
