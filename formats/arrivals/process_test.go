package arrivals_test

import (
	"math"
	"testing"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
)

func gapStats(t *testing.T, s arrivals.Source) (n int, mean, cv float64) {
	t.Helper()
	rs, err := arrivals.Collect(s, 0)
	if err != nil {
		t.Fatal(err)
	}
	var sum, sq float64
	last := time.Duration(0)
	for _, r := range rs {
		if r.ArrivedAt < last {
			t.Fatalf("time goes back from %v to %v", last, r.ArrivedAt)
		}
		g := (r.ArrivedAt - last).Seconds()
		sum, sq, last = sum+g, sq+g*g, r.ArrivedAt
	}
	n = len(rs)
	mean = sum / float64(n)
	return n, mean, math.Sqrt(sq/float64(n)-mean*mean) / mean
}

func TestProcessesHaveTheirRateAndVariation(t *testing.T) {
	const rps, until = 250, 400 * time.Second // 100 000 arrivals: standard errors are 0.3 % of cv for Poisson, 3 % at cv 3
	for _, c := range []struct {
		name   string
		source arrivals.Source
		cv     float64
		tol    float64
	}{
		{"poisson", arrivals.Poisson(seeded.New(1, "p"), 0, rps, until), 1, 0.02},
		{"gamma smooth", arrivals.Gamma(seeded.New(1, "g"), 0, rps, 0.5, until), 0.5, 0.02},
		{"gamma bursty", arrivals.Gamma(seeded.New(1, "g"), 0, rps, 3, until), 3, 0.06},
		{"gamma one", arrivals.Gamma(seeded.New(1, "g"), 0, rps, 1, until), 1, 0.02},
		{"uniform", arrivals.Uniform(0, rps, until), 0, 0.01},
	} {
		n, mean, cv := gapStats(t, c.source)
		if rate := 1 / mean; math.Abs(rate/rps-1) > 0.04 || math.Abs(cv-c.cv) > c.tol*max(c.cv, 1) {
			t.Errorf("%s: %d arrivals at %.1f rps with cv %.3f, want %d rps with cv %v", c.name, n, rate, cv, rps, c.cv)
		}
	}
}

func TestUniformIsExact(t *testing.T) {
	rs, _ := arrivals.Collect(arrivals.Uniform(7, 4, time.Second), 0)
	want := []time.Duration{125, 375, 625, 875}
	if len(rs) != len(want) {
		t.Fatalf("%d arrivals, want %d", len(rs), len(want))
	}
	for i, r := range rs {
		if r.ArrivedAt != want[i]*time.Millisecond || r.Model != 7 {
			t.Errorf("arrival %d is %+v, want at %v ms", i, r, want[i])
		}
	}
}

func TestNoRateNoRequests(t *testing.T) {
	for _, rps := range []float64{0, -1, math.NaN(), math.Inf(-1)} {
		if rs, _ := arrivals.Collect(arrivals.Poisson(seeded.New(1, "p"), 0, rps, time.Second), 10); len(rs) != 0 {
			t.Errorf("rps %v gives %d requests", rps, len(rs))
		}
	}
}

func TestMergeIsStable(t *testing.T) {
	at := func(model int32, times ...time.Duration) arrivals.Source {
		var rs []arrivals.Request
		for _, x := range times {
			rs = append(rs, arrivals.Request{ArrivedAt: x, Model: model})
		}
		return arrivals.Slice(rs)
	}
	rs, err := arrivals.Collect(arrivals.Merge(at(0, 1, 5, 5), at(1, 1, 1, 9), at(2), at(3, 0, 5)), 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		at    time.Duration
		model int32
	}{{0, 3}, {1, 0}, {1, 1}, {1, 1}, {5, 0}, {5, 0}, {5, 3}, {9, 1}}
	if len(rs) != len(want) {
		t.Fatalf("%d requests, want %d", len(rs), len(want))
	}
	for i, r := range rs {
		if r.ArrivedAt != want[i].at || r.Model != want[i].model {
			t.Errorf("request %d is %+v, want %+v", i, r, want[i])
		}
	}
}

func TestProcessesAllocateNothing(t *testing.T) {
	s := arrivals.Merge(
		arrivals.Poisson(seeded.New(1, "a"), 0, 100, 0),
		arrivals.Gamma(seeded.New(1, "b"), 1, 100, 2, 0),
		arrivals.Gamma(seeded.New(1, "b"), 1, 100, 0.5, 0),
		arrivals.Uniform(2, 100, 0))
	var r arrivals.Request
	if n := testing.AllocsPerRun(10000, func() { s.Next(&r) }); n != 0 {
		t.Errorf("%v allocations per request, want none", n)
	}
}

func BenchmarkMergedPoisson(b *testing.B) {
	s := arrivals.Merge(
		arrivals.Poisson(seeded.New(1, "a"), 0, 100, 0),
		arrivals.Poisson(seeded.New(1, "b"), 1, 100, 0),
		arrivals.Poisson(seeded.New(1, "c"), 2, 100, 0))
	b.ReportAllocs()
	var r arrivals.Request
	for b.Loop() {
		s.Next(&r)
	}
}
