package report_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/report"
	"inferplan/formats/seeded"
)

const ms = time.Millisecond

func TestPercentileIsNearestRank(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, c := range []struct {
		samples []time.Duration
		p       float64
		want    time.Duration
	}{
		{nil, 0.5, 0},
		{[]time.Duration{7}, 0.5, 7},
		{[]time.Duration{7}, 0.99, 7},
		{[]time.Duration{1, 2}, 0.5, 1},
		{[]time.Duration{1, 2, 3}, 0.5, 2},
		{hundred, 0.07, 7}, // 0.07*100 is above 7 in floating point
		{hundred, 0.29, 29},
		{hundred, 0.99, 99},
		{hundred, 0.991, 100},
		{hundred, 1, 100},
		{hundred, 0.0001, 1},
	} {
		if got := report.Percentile(c.samples, c.p); got != c.want {
			t.Errorf("percentile %v of %d samples is %d, want %d", c.p, len(c.samples), got, c.want)
		}
	}
}

// Selection gives what sorting gives, and keeps all samples.
func TestPercentileReordering(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		samples := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) time.Duration { return time.Duration(rapid.IntRange(0, 30).Draw(t, "ns")) }), 0, 60).Draw(t, "samples")
		p := rapid.Float64Range(.01, .999).Draw(t, "p")
		sorted := slices.Sorted(slices.Values(samples))
		if want, got := report.Percentile(sorted, p), report.PercentileReordering(samples, p); got != want {
			t.Fatalf("%v, expected %v", got, want)
		}
		if slices.Sort(samples); !slices.Equal(samples, sorted) {
			t.Fatalf("%v has become %v", sorted, samples)
		}
	})
}

// The interval's coverage is checked by what it promises: over many samples
// from a known distribution it holds the true median often enough.
func TestMedianIntervalCovers(t *testing.T) {
	rng := seeded.New(1, "median")
	for _, n := range []int{6, 15, 50, 200} {
		const rounds = 2000
		hit := 0
		for range rounds {
			s := make([]time.Duration, n)
			for i := range s {
				s[i] = time.Duration(rng.ExpFloat64() * 1e9)
			}
			slices.Sort(s)
			lo, hi, ok := report.MedianInterval(s, 0.95)
			if !ok {
				t.Fatalf("%d samples are said to be too few", n)
			}
			if median := time.Duration(693147181); lo <= median && median <= hi {
				hit++
			}
		}
		// Order statistics cover at least 95 %; 3 standard errors are 1.5 points.
		if share := float64(hit) / rounds; share < 0.935 {
			t.Errorf("with %d samples the interval holds the median in %.1f %% of the rounds", n, 100*share)
		}
	}
	// The classic table: n=10 gives x(2), x(9) at 95 %.
	s := []time.Duration{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	if lo, hi, ok := report.MedianInterval(s, 0.95); lo != 2 || hi != 9 || !ok {
		t.Errorf("ten samples give [%d, %d] %v, want [2, 9]", lo, hi, ok)
	}
	if lo, hi, ok := report.MedianInterval(s[:5], 0.95); lo != 1 || hi != 5 || ok {
		t.Errorf("five samples give [%d, %d] %v, want [1, 5] and too few", lo, hi, ok)
	}
	if _, _, ok := report.MedianInterval(nil, 0.95); ok {
		t.Error("no samples give an interval")
	}
}

func TestIntervalsAgainstTables(t *testing.T) {
	near := func(got, want float64) bool { return math.Abs(got-want) < 5e-4 }
	// Newcombe (1998), table I: 81 of 263 gives 0.2553 to 0.3662, 15 of 148 gives 0.0624 to 0.1605,
	// 0 of 20 gives 0 to 0.1611.
	for _, c := range []struct {
		k, n   int64
		lo, hi float64
	}{{81, 263, 0.2553, 0.3662}, {15, 148, 0.0624, 0.1605}, {0, 20, 0, 0.1611}, {20, 20, 0.8389, 1}, {0, 0, 0, 1}} {
		if lo, hi := report.Wilson(c.k, c.n, 0.95); !near(lo, c.lo) || !near(hi, c.hi) {
			t.Errorf("%d of %d: %.4f to %.4f, want %.4f to %.4f", c.k, c.n, lo, hi, c.lo, c.hi)
		}
	}
	// t quantile 0.975 with 4 degrees of freedom is 2.776; the standard deviation of 1..5 is 1.5811.
	mean, lo, hi := report.MeanInterval([]float64{1, 2, 3, 4, 5}, 0.95)
	if half := 2.776 * 1.5811 / math.Sqrt(5); mean != 3 || !near(lo, 3-half) || !near(hi, 3+half) {
		t.Errorf("mean %v, %v to %v", mean, lo, hi)
	}
}

func config() report.Config {
	return report.Config{
		Source: "simulate", Policy: "reserve", Seed: 3, Load: 0.9,
		Models:  []report.Model{{Name: "a", SLO: 100 * ms}, {Name: "b", SLO: 50 * ms}},
		Reasons: []string{"", "deadline", "queue_full"},
		Warmup:  time.Second, Duration: 3 * time.Second, Window: time.Second, Expect: 16,
	}
}

// feed is ten requests of model a, of which one is before the warm-up, one
// after the end, one late and two dropped; and nothing of model b.
func feed(a *report.Accumulator) {
	for i := range 10 {
		at := 900*ms + time.Duration(i)*250*ms
		a.Arrive(0, at)
		switch i {
		case 3:
			a.Drop(0, at, 1)
		case 4:
			a.Drop(0, at, 2)
		case 5:
			a.Complete(0, at, at+101*ms, at+100*ms)
		default:
			a.Complete(0, at, at+time.Duration(i)*ms, at+100*ms)
		}
	}
	a.Batch(0, 2, 2*time.Second)
	a.Batch(0, 2, 2*time.Second)
	a.Batch(0, 10, 2*time.Second)
	a.AddDevice(formats.DeviceReport{Device: "L4", Count: 2, RunningUS: document.Micros(3 * time.Second), IdleUS: document.Micros(time.Second)})
	a.AddEvents(42)
}

func TestOneRun(t *testing.T) {
	a := report.New(config())
	feed(a)
	r := a.Build()
	m := r.Models[0]
	if m.Requests != 8 || m.Completed != 6 || m.Late != 1 || m.Dropped != 2 || m.Attainment != 5.0/8 {
		t.Errorf("counts %+v", m.Counts)
	}
	if m.DroppedByReason["deadline"] != 1 || m.DroppedByReason["queue_full"] != 1 || len(m.DroppedByReason) != 2 {
		t.Errorf("reasons %v", m.DroppedByReason)
	}
	if m.OfferedRPS != 4 || m.GoodputRPS != 2.5 {
		t.Errorf("offered %v, goodput %v, want 4 and 2.5 over two counted seconds", m.OfferedRPS, m.GoodputRPS)
	}
	// Latencies are 1, 2, 6, 7, 8 and 101 ms.
	want := formats.LatencySummary{MeanUS: document.Micros(125 * ms / 6), P50US: document.Micros(6 * ms), P90US: document.Micros(101 * ms),
		P95US: document.Micros(101 * ms), P99US: document.Micros(101 * ms), MaxUS: document.Micros(101 * ms)}
	if m.Latency != want {
		t.Errorf("latency %+v, want %+v", m.Latency, want)
	}
	if m.BatchSizes["2"] != 2 || m.BatchSizes["10"] != 1 || len(m.BatchSizes) != 2 {
		t.Errorf("batch sizes %v", m.BatchSizes)
	}
	if d := r.Devices[0]; d.Utilisation != 0.75 {
		t.Errorf("utilisation %v, want 0.75", d.Utilisation)
	}
	if r.Events != 42 || len(r.Warnings) != 1 {
		t.Errorf("events %d, warnings %q, want one about model b", r.Events, r.Warnings)
	}
	// Windows [1s,2s) and [2s,3s), overall and per model.
	if len(r.Windows) != 6 || r.Windows[0].Requests != 4 || r.Windows[3].Requests != 4 || r.Windows[3].StartUS.D() != 2*time.Second {
		t.Errorf("windows %+v", r.Windows)
	}
	if w := r.Windows[1]; w.Model != "a" || w.Completed != 2 || w.P95US.D() != 2*ms {
		t.Errorf("first window of a: %+v", w)
	}
	if err := r.Validate(); err != nil {
		t.Errorf("the report is not valid: %v", err)
	}
}

func TestUnfinishedAreNotForgotten(t *testing.T) {
	a := report.New(config())
	a.Arrive(1, 2*time.Second)
	r := a.Build()
	if m := r.Models[1]; m.Requests != 1 || m.Dropped != 1 || m.DroppedByReason[report.Unfinished] != 1 || m.Attainment != 0 {
		t.Errorf("%+v", m.Counts)
	}
	if len(r.Warnings) == 0 {
		t.Error("no warning")
	}
}

func TestReplicationsGiveAnInterval(t *testing.T) {
	var runs []*report.Accumulator
	for i := range 4 {
		cfg := config()
		cfg.Seed = uint64(i)
		a := report.New(cfg)
		for k := range 100 {
			at := time.Second + time.Duration(k)*ms
			a.Arrive(0, at)
			deadline := at + 10*ms
			if k < i { // run i has i late ones
				deadline = at
			}
			a.Complete(0, at, at+5*ms, deadline)
		}
		runs = append(runs, a)
	}
	r := report.Merge(runs)
	if r.Requests != 400 || r.Late != 6 || r.Runs != 4 || r.Seed != 0 || r.Models[0].OfferedRPS != 50 {
		t.Errorf("%+v", r)
	}
	// Attainments 1, .99, .98, .97: mean .985, deviation .01291, t(3) = 3.182.
	half := 3.182 * 0.0129099 / 2
	if ci := r.AttainmentCI; ci == nil || math.Abs(ci[0]-(0.985-half)) > 1e-5 || ci[1] != 1 {
		t.Errorf("interval %v, want %v to 1", ci, 0.985-half)
	}
	// Replications that agree do not make the figure certain.
	if ci := report.Merge(runs[:1]).AttainmentCI; ci[0] > 0.97 || ci[1] != 1 {
		t.Errorf("one run without a miss gives %v", ci)
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	cfg := config()
	cfg.Warmup, cfg.Duration, cfg.Expect = 0, 0, 1<<20
	a := report.New(cfg)
	at := time.Duration(0)
	step := func() {
		at += 10 * time.Microsecond
		a.Arrive(0, at)
		a.Batch(0, 4, at)
		a.Complete(0, at, at+ms, at+2*ms)
		a.Arrive(1, at)
		a.Drop(1, at, 1)
	}
	step()
	if n := testing.AllocsPerRun(10000, step); n != 0 {
		t.Errorf("%v allocations per request, want none", n)
	}
}

func BenchmarkOutcome(b *testing.B) {
	cfg := config()
	cfg.Warmup, cfg.Duration, cfg.Window = 0, 0, 0
	cfg.Expect = b.N
	a := report.New(cfg)
	b.ReportAllocs()
	for i := range b.N {
		at := time.Duration(i)
		a.Arrive(0, at)
		a.Complete(0, at, at+ms, at+2*ms)
	}
}

// Simulator, server and client share these figures.
func TestAttainmentHasConfidenceInterval(t *testing.T) {
	for _, c := range []struct {
		name      string
		runs      []report.Outcomes
		share     float64
		low, high float64
	}{
		{"nothing came", []report.Outcomes{{}}, 1, 0, 1},
		{"all in time", []report.Outcomes{{Requests: 10, Completed: 10}}, 1, 0.722, 1},
		{"late and dropped", []report.Outcomes{{Requests: 10, Completed: 6, Late: 1}}, 0.5, 0.237, 0.763},
		{"runs that agree", []report.Outcomes{{Requests: 5, Completed: 3, Late: 1}, {Requests: 5, Completed: 2}}, 0.4, 0.168, 0.687},
		{"runs that differ", []report.Outcomes{{Requests: 4, Completed: 4}, {Requests: 12, Completed: 6}}, 0.625, 0, 1},
	} {
		share, ci := report.Attainment(c.runs...)
		if share != c.share || math.Abs(ci[0]-c.low) > 1e-3 || math.Abs(ci[1]-c.high) > 1e-3 {
			t.Errorf("%s: %v in %v, want %v in [%v %v]", c.name, share, ci, c.share, c.low, c.high)
		}
	}
}
