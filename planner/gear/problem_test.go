package gear

import (
	"math"
	"slices"
	"testing"
	"time"

	"inferplan/formats"
)

func sortFloats(x []float64) { slices.Sort(x) }

// problem is the family's planning problem on some devices: ten equal ranges
// with Zipf weights.
func (f *family) problem(t testing.TB, devices, grid int) *Problem {
	certainty, correct := f.records()
	r := &formats.Records{Samples: synthetic, Planning: synthetic}
	for k, name := range f.names {
		r.Models = append(r.Models, formats.ModelRecords{Model: name, Certainty: certainty[k], Correct: correct[k]})
	}
	th, planned, held, err := Grade(r, f.names, grid)
	if err != nil {
		t.Fatal(err)
	}
	p := &Problem{Thresholds: th, Planned: planned, HeldOut: held, Grid: grid, Devices: devices, Memory: 32000, SLO: 400 * time.Millisecond, Percentile: .95}
	peak := 7600.0
	if f == &llama4 {
		p.Memory, p.SLO, peak = 48000, 3*time.Second, 60
	}
	for k, name := range f.names {
		m := Model{Name: name, Memory: f.memory[k]}
		for b := 1; b <= f.maxBatch; b++ {
			m.Times = append(m.Times, time.Duration(math.Round((f.a[k]+f.b[k]*float64(b))*1e6)))
		}
		p.Models = append(p.Models, m)
	}
	p.Edges, p.Weights = Ranges(peak, 10), Zipf(10)
	return p
}
