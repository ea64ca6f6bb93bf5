package published

import (
	"math"
	"testing"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
)

func TestRates(t *testing.T) {
	r := Rates{2, 0, 4}
	got, err := arrivals.Collect(r.Even(), 0)
	if err != nil || len(got) != 6 {
		t.Fatalf("%d arrivals, %v, expected 6", len(got), err)
	}
	for i, want := range []float64{.25, .75, 2.125, 2.375, 2.625, 2.875} {
		if math.Abs(got[i].ArrivedAt.Seconds()-want) > 1e-9 {
			t.Errorf("arrival %d at %v, expected %v s", i, got[i].ArrivedAt, want)
		}
	}
	if r.Peak() != 4 || r.Total() != 6 || r.Duration() != 3*time.Second {
		t.Errorf("peak %v, total %v, duration %v", r.Peak(), r.Total(), r.Duration())
	}
	long := make(Rates, 1000)
	for i := range long {
		long[i] = float64(10 * (i % 2))
	}
	some, _ := arrivals.Collect(long.Poisson(seeded.New(1, "test")), 0)
	if n := float64(len(some)); math.Abs(n-5000) > 4*math.Sqrt(5000) {
		t.Errorf("%v arrivals, expected about 5000", n)
	}
	for _, a := range some {
		if int(a.ArrivedAt.Seconds())%2 == 0 {
			t.Fatalf("an arrival at %v, in a second without any", a.ArrivedAt)
		}
	}
}
