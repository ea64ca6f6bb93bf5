package drop

import "time"

// The last sampleWaits waits for batches are kept of every module (PARD §4.2 keeps 10,000), in buckets of one
// millisecond for the convolution.
const (
	sampleWaits = 10000
	waitStep    = time.Millisecond
)

// waitSamples holds the latest waits for batches of a module.
type waits struct {
	last  []time.Duration // a ring
	next  int             // index of the oldest one
	steps []float64       // number of waits by bucket
}

// newWaitSamples returns an empty sample for waits of up to `longest`. Longer waits count in the last bucket.
func newWaits(longest time.Duration) waits {
	return waits{last: make([]time.Duration, 0, sampleWaits), steps: make([]float64, int(longest/waitStep)+2)}
}

// bucketOf returns the bucket of a wait.
func (w *waits) step(d time.Duration) int { return min(int(d/waitStep), len(w.steps)-1) }

// add adds a wait, in place of the oldest one if there are sampleWaits.
func (w *waits) add(d time.Duration) {
	if len(w.last) < sampleWaits {
		w.last = append(w.last, d)
	} else {
		w.steps[w.step(w.last[w.next])]--
		w.last[w.next] = d
		if w.next++; w.next == sampleWaits {
			w.next = 0
		}
	}
	w.steps[w.step(d)]++
}

// convolve sets dst to the distribution of the sum of two waits, one with the distribution `distribution` and one of w,
// and returns it.
func (w *waits) convolve(dst, tail []float64) []float64 {
	n := len(w.last)
	if n == 0 { // no samples yet
		return append(dst[:0], tail...)
	}
	size := len(w.steps) + len(tail) - 1
	if cap(dst) < size {
		dst = make([]float64, size)
	}
	dst = dst[:size]
	clear(dst)
	for i, x := range w.steps {
		if x == 0 {
			continue
		}
		x /= float64(n)
		to := dst[i : i+len(tail)]
		for j, y := range tail {
			to[j] += x * y
		}
	}
	for len(dst) > 1 && dst[len(dst)-1] == 0 {
		dst = dst[:len(dst)-1]
	}
	return dst
}

// quantile returns the lambda quantile of a sum of `terms` waits. A wait is spread evenly over its bucket, so the mean
// of the sum lies (terms-1)/2 buckets above the sum of the bucket numbers.
func quantile(dist []float64, terms int, lambda float64) time.Duration {
	if terms == 0 {
		return 0
	}
	sum := 0.0
	for i, p := range dist {
		if sum+p >= lambda && p > 0 {
			at := float64(i) + (lambda-sum)/p + float64(terms-1)/2
			return time.Duration(at * float64(waitStep))
		}
		sum += p
	}
	return time.Duration(len(dist)) * waitStep
}
