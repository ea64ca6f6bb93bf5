package flow

import (
	"math"
	"slices"
	"testing"
	"time"
)

// ruleOf has a worker per ten requests per second.
func ruleOf(every, window, hold, ahead time.Duration) *Scaling {
	r := &Scaling{Interval: every, Window: window, Hold: hold, Lookahead: ahead, MaxWorkers: 100, StartWorkers: []int{1}}
	for i := range 50 {
		r.RatesAbove, r.Workers = append(r.RatesAbove, float64(10*i)), append(r.Workers, []int{i + 1})
	}
	return r
}

// countArrivals lets n requests come in a second.
func countArrivals(d *WorkerDemand, second, n int) {
	for range n {
		d.CountArrival()
	}
	d.PassTime(time.Duration(second+1) * time.Second)
}

// The mean of the window is wanted, and the most of it within the hold.
func TestDemandHolds(t *testing.T) {
	d := NewWorkerDemand(ruleOf(time.Second, 2*time.Second, 3*time.Second, 0))
	var got []int
	for s, n := range []int{35, 35, 75, 5, 5, 5, 5, 5, 5} {
		countArrivals(d, s, n)
		got = append(got, d.WantedWorkers(time.Duration(s+1) * time.Second)[0])
	}
	if want := []int{2, 4, 6, 6, 6, 4, 1, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// More than there may be together are not held.
func TestDemandAboveTheMost(t *testing.T) {
	rule := ruleOf(time.Second, time.Second, time.Minute, 0)
	rule.MaxWorkers = 5
	d := NewWorkerDemand(rule)
	countArrivals(d, 0, 95)
	d.WantedWorkers(time.Second)
	countArrivals(d, 1, 15)
	if n := d.WantedWorkers(2 * time.Second)[0]; n != 2 {
		t.Errorf("%d workers, want those of the last rate", n)
	}
}

// A rise is extrapolated, a fall is not.
func TestDemandLooksAhead(t *testing.T) {
	d := NewWorkerDemand(ruleOf(time.Second, 4*time.Second, 0, 3*time.Second))
	for s, n := range []int{10, 20, 30, 40} {
		countArrivals(d, s, n)
	}
	if r := d.PlannedRate(); math.Abs(r-70) > 1e-9 {
		t.Errorf("rate %v, want that of the line three seconds on, 70", r)
	}
	for s, n := range []int{30, 20, 10, 0} {
		countArrivals(d, 4+s, n)
	}
	if r := d.PlannedRate(); math.Abs(r-15) > 1e-9 {
		t.Errorf("rate %v of a fall, want the mean, 15", r)
	}
}

// Decisions are due every so often, and seconds without a timer are empty ones.
func TestDemandPasses(t *testing.T) {
	d := NewWorkerDemand(ruleOf(5*time.Second, 2*time.Second, 0, 0))
	d.CountArrival()
	d.PassTime(5 * time.Second)
	if !d.IsDecisionDue() || d.PlannedRate() != 0 {
		t.Errorf("due %v at 5 s, rate %v", d.IsDecisionDue(), d.PlannedRate())
	}
	if d.PassTime(6 * time.Second); d.IsDecisionDue() {
		t.Error("due at 6 s")
	}
}

// With sigmas a step counts at once, as far as it stands out, and noise does not.
func TestDemandTellsStepsFromNoise(t *testing.T) {
	rule := ruleOf(time.Second, 8*time.Second, 0, 3*time.Second)
	rule.RiseSigmas = 3
	d := NewWorkerDemand(rule)
	second := 0
	for range 20 {
		for _, n := range []int{96, 104, 98, 102} {
			countArrivals(d, second, n)
			if second++; second > noiseSamples {
				if r := d.PlannedRate(); r < 97 || r > 104 {
					t.Fatalf("second %d: rate %v of noise around 100", second, r)
				}
			}
		}
	}
	countArrivals(d, second, 400)
	step := math.Sqrt((298*298 + 29*5.5*5.5) / 2 / 30)
	if r := d.PlannedRate(); r < 400-3*step-20 || r > 400 {
		t.Errorf("rate %v at once after a step to 400, noise %v", r, step)
	}
	without := NewWorkerDemand(ruleOf(time.Second, 8*time.Second, 0, 0))
	for s := range second {
		countArrivals(without, s, 100)
	}
	countArrivals(without, second, 400)
	if r := without.PlannedRate(); r > 150 {
		t.Errorf("rate %v of the mean", r)
	}
}
