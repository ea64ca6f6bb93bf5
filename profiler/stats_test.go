package profiler

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/formats/report"
)

func TestSummarizeGivesMedianAndP99(t *testing.T) {
	us := time.Microsecond
	var wall, cpu []time.Duration
	for i := range 101 { // 0..100 us in a scattered order
		wall = append(wall, time.Duration(i*37%101)*us)
		cpu = append(cpu, time.Duration(i*37%101)*us/2)
	}
	l := Summarize(cpu, wall)
	if l.WallUS.D() != 50*us || l.CPUUS.D() != 25*us || l.P99US.D() != 99*us || l.Samples != 101 {
		t.Errorf("got %+v", l)
	}
	if h := l.HalfWidthUS.D(); h < 4*us || h > 8*us {
		t.Errorf("half width of the CPU time: %v", h)
	}
	if l := Summarize(nil, nil); l.Samples != 0 || l.WallUS != 0 {
		t.Errorf("no samples: %+v", l)
	}
	if l := Summarize(nil, []time.Duration{7 * us}); l.WallUS.D() != 7*us || l.P99US.D() != 7*us || l.CPUUS != 0 {
		t.Errorf("one sample: %+v", l)
	}
}

// Means of stretches that differ by what the machine's speed changes tell it; scatter within
// stretches counts little, and fewer samples than stretches say nothing.
func TestDriftIgnoresScatter(t *testing.T) {
	const ms = time.Millisecond
	var steady, drifting []time.Duration
	for i := range 160 {
		scatter := time.Duration(i%2) * 2 * ms
		steady = append(steady, 9*ms+scatter)
		drifting = append(drifting, 9*ms+scatter+time.Duration(i/80)*ms) // the second half takes 1 ms longer
	}
	if d := drift(steady); d != 0 {
		t.Errorf("%v of a steady machine", d)
	}
	// Four means of 10 ms and four of 11: .5 sqrt(8/7) ms.
	if d := float64(drift(drifting)) / 1e3; math.Abs(d-534.5) > .1 {
		t.Errorf("%.1f us, expected 534.5", d)
	}
	// Few runs of a slow model say it, too: 8 samples are 8 stretches.
	var slow []time.Duration
	for i := range 8 {
		slow = append(slow, 100*ms+time.Duration(i/4)*10*ms)
	}
	if d := float64(drift(slow)) / 1e3; math.Abs(d-5345.2) > .1 {
		t.Errorf("%.1f us of 8 samples, expected 5345.2", d)
	}
	if d := drift(slow[:7]); d != 0 {
		t.Errorf("%v of 7 samples", d)
	}
}

// The interval covers the true median in at least 93 % of the cases, for
// scatter without drift; it is a 95 % interval.
func TestHalfWidthCovers(t *testing.T) {
	const runs, n = 600, 60
	rng := rand.New(rand.NewPCG(1, 2))
	covered := 0
	for range runs {
		s := make([]time.Duration, n)
		for i := range s {
			s[i] = time.Duration(1e6 * math.Exp(0.05*rng.NormFloat64()))
		}
		if d := report.Median(s) - 1e6; max(d, -d) <= halfWidth(s) {
			covered++
		}
	}
	if share := float64(covered) / runs; share < 0.93 {
		t.Errorf("covered in %.1f %% of the runs", 100*share)
	}
}

// Samples that sit still for a while and then at another level must not look
// tight: independent samples of this spread would.
func TestHalfWidthSeesDrift(t *testing.T) {
	var still, drift []time.Duration
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range 160 {
		level := 1e6
		if i/40%2 == 1 {
			level = 1.2e6
		}
		noise := math.Exp(0.002 * rng.NormFloat64())
		drift = append(drift, time.Duration(level*noise))
		still = append(still, time.Duration(1e6*noise))
	}
	if h := halfWidth(still); h > 2*time.Microsecond {
		t.Errorf("still: %v", h)
	}
	if h := halfWidth(drift); h < 50*time.Microsecond {
		t.Errorf("drift of 20 %% reported as %v", h)
	}
}

func TestSummarizeBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOfN(rapid.Int64Range(0, 1e9), 1, 200).Draw(t, "samples")
		s := make([]time.Duration, len(raw))
		lo, hi := time.Duration(math.MaxInt64), time.Duration(0)
		for i, v := range raw {
			s[i] = time.Duration(v)
			lo, hi = min(lo, s[i]), max(hi, s[i])
		}
		l := Summarize(nil, s)
		if l.WallUS.D() < lo || l.P99US < l.WallUS || l.P99US.D() > hi || l.HalfWidthUS < 0 {
			t.Fatalf("%+v from %v", l, s)
		}
	})
}
