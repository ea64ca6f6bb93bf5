package queueing

import (
	"math"
	"math/rand/v2"
	"testing"
)

// lostBy simulates the server of LostShare.
func lostBy(load, places float64, requests int) float64 {
	r, work, lost := rand.New(rand.NewPCG(1, 2)), 0.0, 0
	for range requests {
		work = max(0, work-r.ExpFloat64()/load)
		if work > places {
			lost++
			continue
		}
		work++
	}
	return float64(lost) / float64(requests)
}

func TestLostAsSimulated(t *testing.T) {
	for _, load := range []float64{.3, .8, .95, 1, 1.2} {
		for _, places := range []float64{0, .5, 1, 3.7, 12, 40} {
			want, got := lostBy(load, places, 1_000_000), LostShare(load, places)
			if math.Abs(want-got) > .0015+.05*want {
				t.Errorf("load %v, %v places: %.5f lost, simulated %.5f", load, places, got, want)
			}
		}
	}
}

// Without places a server turns away what comes while it works: load / (1 + load).
func TestLostWithoutPlaces(t *testing.T) {
	for _, load := range []float64{.1, 1, 3} {
		if got, want := LostShare(load, 0), load/(1+load); math.Abs(got-want) > 1e-12 {
			t.Errorf("load %v: %v lost, expected %v", load, got, want)
		}
	}
}

// With many places a server answers all that it can.
func TestLostOfMany(t *testing.T) {
	for load, want := range map[float64]float64{.5: 0, .9: 0, 1.25: .2} {
		if got := LostShare(load, 1900); math.Abs(got-want) > 1e-6 {
			t.Errorf("load %v: %v lost, expected %v", load, got, want)
		}
	}
	for _, places := range []float64{1900, 1e18} {
		if got := MaxLoad(places, .01); math.Abs(got-1/.99) > 1e-3 {
			t.Errorf("%v places: the highest load is %v, expected almost %v", places, got, 1/.99)
		}
	}
}

func TestMostLoad(t *testing.T) {
	before := 0.0
	for _, places := range []float64{0, 1, 2, 5, 10, 30, 100} {
		load := MaxLoad(places, .01)
		if lost := LostShare(load, places); math.Abs(lost-.01) > 1e-9 {
			t.Errorf("%v places: %v lost at load %v", places, lost, load)
		}
		if load <= before {
			t.Errorf("%v places allow load %v, fewer %v", places, load, before)
		}
		before = load
	}
}

// No choice of requests answers more of them in time than taking each that fits: of random arrivals, every set in which
// each stretch of time has at most the work that fits into it and the waits has no more requests.
func TestTakingEachIsBest(t *testing.T) {
	const places = 1.6
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		at := make([]float64, 9)
		for i := range at {
			at[i] = r.ExpFloat64() / 1.3
			if i > 0 {
				at[i] += at[i-1]
			}
		}
		fits := func(set int) (count int, ok bool) {
			work, last := 0.0, 0.0
			for i, when := range at {
				if set>>i&1 == 0 {
					continue
				}
				if work = max(0, work-(when-last)); work > places {
					return 0, false
				}
				work, last = work+1, when
				count++
			}
			return count, true
		}
		best := 0
		for set := range 1 << len(at) {
			if count, ok := fits(set); ok {
				best = max(best, count)
			}
		}
		each, work, last := 0, 0.0, 0.0
		for _, when := range at {
			if left := max(0, work-(when-last)); left <= places {
				work, last = left+1, when
				each++
			}
		}
		if each != best {
			t.Errorf("seed %d: taking each that fits answers %d, the best set %d", seed, each, best)
		}
	}
}
