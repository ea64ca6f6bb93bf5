package profiler

import (
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Ten blocks' worth of arithmetic on a device of 1 TB/s and 10 Tflop/s.
func TestRooflineMatchesHandComputation(t *testing.T) {
	us := func(x float64) document.Micros { return document.Micros(time.Duration(x * 1000)) }
	p := &formats.Profile{
		Devices: []formats.ProfileDevice{{Device: "H100", MemoryGBps: 1000, MatmulGflops: 10000}, {Device: "cpu-1"}},
		Models: []formats.ProfileModel{{
			Model: "m",
			Blocks: []formats.Block{
				{Name: "compute", MACs: 1e9, TensorBytes: 1e6, WeightBytes: 1e6}, // 200 us of products, 2 us of bytes
				{Name: "memory", MACs: 1e6, TensorBytes: 1e8, WeightBytes: 1e8},  // 200 us of bytes at batch 1, 300 at batch 2
				{Name: "small", MACs: 1e6, TensorBytes: 1e6},                     // 1 us
				{Name: "uncounted"},
			},
			Measurements: []formats.Measurement{
				{Device: "H100", Share: 1, Batch: 2, WholeModel: &formats.Latency{WallUS: us(1000)}, Blocks: []formats.Latency{
					{WallUS: us(800), HostUS: us(20)}, {WallUS: us(600)}, {WallUS: us(100), HostUS: us(95)}, {WallUS: us(10)},
				}},
				{Device: "H100", Share: 2, Batch: 2, Blocks: []formats.Latency{{WallUS: 1}, {WallUS: 1}, {WallUS: 1}, {WallUS: 1}}},
				{Device: "cpu-1", Share: 1, Batch: 2, Blocks: []formats.Latency{{WallUS: 1}, {WallUS: 1}, {WallUS: 1}, {WallUS: 1}}},
			},
		}},
	}
	rows := RooflineRows(p)
	want := []RooflineRow{
		{Block: 0, Bound: "compute", Floor: us(400), Fraction: 0.5},
		{Block: 1, Bound: "memory", Floor: us(300), Fraction: 0.5},
		{Block: 2, Bound: "memory", Floor: us(2), Fraction: 0.02, Reason: "launch"},
		{Block: -1, Bound: "memory", Floor: us(305), Fraction: 0.305},
	}
	// The whole: 2.004 GMACs at batch 2 are 400.8 us, which is more than its bytes take.
	want[3].Bound, want[3].Floor, want[3].Fraction = "compute", us(400.8), 0.4008
	if len(rows) != len(want) {
		t.Fatalf("%d rows: %+v", len(rows), rows)
	}
	for i, w := range want {
		g := rows[i]
		if g.Block != w.Block || g.Bound != w.Bound || g.Fraction != w.Fraction || g.Reason != w.Reason || g.Model != "m" || g.Device != "H100" || g.Batch != 2 {
			t.Errorf("row %d: %+v, want %+v", i, g, w)
		}
		if d := g.Floor - w.Floor; d > 10 || d < -10 {
			t.Errorf("row %d: at best %v, want %v", i, g.Floor, w.Floor)
		}
	}
	r := &runner{profile: p, notes: runNotes{profile: p}}
	r.dev.Kind = "H100"
	r.noteRoofline(&modelJob{info: modelInfo{name: "m"}, entry: &p.Models[0]})
	if len(p.Notes) != 1 || !strings.Contains(p.Notes[0], "block 2 at batch 2 reaches 2.0 %") || !strings.Contains(p.Notes[0], "the host launches too slowly") {
		t.Errorf("notes %q", p.Notes)
	}
	// A note goes when its reason is gone.
	p.Models[0].Measurements[0].Blocks[2].WallUS = us(8)
	r.noteRoofline(&modelJob{info: modelInfo{name: "m"}, entry: &p.Models[0]})
	if len(p.Notes) != 0 {
		t.Errorf("notes %q", p.Notes)
	}
}
