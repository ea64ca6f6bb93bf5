package profiler

import (
	"math"
	"testing"
	"time"
)

// Beside medians of the quieter half, which tell profiles apart, the profile has what
// serving takes: means over all runs, and those of runs after the device was idle. These
// are taken of the whole model at its smallest batch.
func TestMeansOfServing(t *testing.T) {
	eng := newFakeEngine(uniformModel("net", 8, time.Millisecond))
	o := eng.options("net")
	o.Blocks, o.Batches, o.Precision = 4, []int{1, 2}, Precision{HalfWidth: 1e-9, MinRounds: 40, MaxRounds: 40}
	rests, rest := 0, false
	o.letIdle = func() { rests, rest = rests+1, true }
	runs := 0
	eng.noise = func(time.Time) float64 {
		runs++
		switch {
		case rest:
			rest = false
			return 1.25
		case runs/200%4 == 3: // a quarter of the time
			return 1.4
		}
		return 1
	}
	p := mustRun(t, o)
	if rests != 40 {
		t.Errorf("%d rests, expected one a round of the smallest batch, 40", rests)
	}
	for _, m := range p.Models[0].Measurements {
		w := m.WholeModel
		ratio := float64(w.MeanUS) / float64(w.WallUS)
		t.Logf("batch %d: median %v, mean %v, after a rest %v", m.Batch, w.WallUS, w.MeanUS, w.IdleUS)
		if ratio < 1.02 || ratio > 1.3 {
			t.Errorf("batch %d: mean %v, median %v: expected a quarter of the runs to count as much slower", m.Batch, w.MeanUS, w.WallUS)
		}
		if idle := float64(w.IdleUS) / float64(w.WallUS); m.Batch == 1 && math.Abs(idle-1.25) > 1e-3 || m.Batch == 2 && w.IdleUS != 0 {
			t.Errorf("batch %d: %v after a rest, expected 1.25 times %v at the smallest batch only", m.Batch, w.IdleUS, w.WallUS)
		}
		for i, b := range m.Blocks {
			if b.MeanUS == 0 || b.IdleUS != 0 {
				t.Errorf("batch %d, block %d: mean %v, after a rest %v", m.Batch, i, b.MeanUS, b.IdleUS)
			}
		}
	}
}
