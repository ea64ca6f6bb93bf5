package drop

import "time"

// The last sampleWaits waits for batches are kept of every module (PARD §4.2 keeps 10,000), in buckets of one
// millisecond for the convolution.
const (
	sampleWaits = 10000
	waitStep    = time.Millisecond
)

// waitSamples holds the latest waits for batches of a module.
type waitSamples struct {
	latest    []time.Duration // a ring
	oldest    int             // index of the oldest one
	histogram []float64       // number of waits by bucket
}

// newWaitSamples returns an empty sample for waits of up to `longest`. Longer waits count in the last bucket.
func newWaitSamples(longest time.Duration) waitSamples {
	return waitSamples{latest: make([]time.Duration, 0, sampleWaits), histogram: make([]float64, int(longest/waitStep)+2)}
}

// bucketOf returns the bucket of a wait.
func (w *waitSamples) bucketOf(d time.Duration) int { return min(int(d/waitStep), len(w.histogram)-1) }

// add adds a wait for a batch to the samples and their histogram, in place of the oldest one if there are
// sampleWaits.
func (w *waitSamples) add(d time.Duration) {
	if len(w.latest) < sampleWaits {
		w.latest = append(w.latest, d)
	} else {
		w.histogram[w.bucketOf(w.latest[w.oldest])]--
		w.latest[w.oldest] = d
		if w.oldest++; w.oldest == sampleWaits {
			w.oldest = 0
		}
	}
	w.histogram[w.bucketOf(d)]++
}

// convolve writes into result, and returns, the distribution of the sum of two independent waits for batches: one
// with the given distribution, and one of w. Element i is the chance of bucket i.
func (w *waitSamples) convolve(result, distribution []float64) []float64 {
	n := len(w.latest)
	if n == 0 { // no samples yet
		return append(result[:0], distribution...)
	}
	size := len(w.histogram) + len(distribution) - 1
	if cap(result) < size {
		result = make([]float64, size)
	}
	result = result[:size]
	clear(result)
	for i, x := range w.histogram {
		if x == 0 {
			continue
		}
		x /= float64(n)
		target := result[i : i+len(distribution)]
		for j, y := range distribution {
			target[j] += x * y
		}
	}
	for len(result) > 1 && result[len(result)-1] == 0 {
		result = result[:len(result)-1]
	}
	return result
}

// quantile returns the lambda quantile of a sum of `terms` waits. A wait is spread evenly over its bucket, so the mean
// of the sum lies (terms-1)/2 buckets above the sum of the bucket numbers.
func quantile(distribution []float64, terms int, lambda float64) time.Duration {
	if terms == 0 {
		return 0
	}
	cumulated := 0.0
	for i, p := range distribution {
		if cumulated+p >= lambda && p > 0 {
			steps := float64(i) + (lambda-cumulated)/p + float64(terms-1)/2
			return time.Duration(steps * float64(waitStep))
		}
		cumulated += p
	}
	return time.Duration(len(distribution)) * waitStep
}
