package scaling

import (
	"math"
	"testing"
)

// Rates and workers rise, each row carries about its rates, and with fewer workers on
// average than whole workers for every rate take.
func TestScalingTableCarriesItsRates(t *testing.T) {
	carries := []float64{159, 295, 595, 828, 249}
	const top = 4000.
	rows := Table(workerSums(carries, 1.5*top), 1, .05, top)
	capacity := func(at int) float64 {
		least := math.Inf(1)
		for k, n := range rows[at].Replicas {
			least = min(least, float64(n)*carries[k])
		}
		return least
	}
	if rows[0].AboveRPS != 0 {
		t.Errorf("the first row begins at %v", rows[0].AboveRPS)
	}
	short, spent, whole, at := 0., 0, 0, 0
	for rate := 20.; rate < top-50; rate += 5 {
		for at+1 < len(rows) && rows[at+1].AboveRPS < rate {
			if at++; capacity(at) < capacity(at-1) || rows[at].AboveRPS <= rows[at-1].AboveRPS {
				t.Fatalf("row %d: %+v after %+v", at, rows[at], rows[at-1])
			}
		}
		short += max(0, rate-capacity(at)) / rate
		for k, n := range rows[at].Replicas {
			spent += n
			whole += int(math.Ceil(rate / carries[k]))
		}
	}
	if spent >= whole {
		t.Errorf("%d workers, %d that carry every rate", spent, whole)
	}
	if part := short / ((top - 70) / 5); part > .02 {
		t.Errorf("%.3f of the rates are not carried", part)
	}
	more := Table(workerSums(carries, 3*top), 2, .05, top)
	sum := func(list []int) (n int) {
		for _, x := range list {
			n += x
		}
		return n
	}
	if a, b := sum(more[len(more)-1].Replicas), sum(rows[len(rows)-1].Replicas); a < 2*b-6 || a > 2*b+6 {
		t.Errorf("%d workers with a headroom of 2, %d of 1", a, b)
	}
}

// workerSums returns, by module, what its first worker carries, its first two, and so on, up to a rate and beyond.
func workerSums(carries []float64, rate float64) [][]float64 {
	sums := make([][]float64, len(carries))
	for k, c := range carries {
		for m := 1.0; m*c <= rate+carries[k]; m++ {
			sums[k] = append(sums[k], m*c)
		}
	}
	return sums
}
