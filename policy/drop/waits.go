package drop

import "time"

// The last sampleWaits waits for batches are kept of every module (PARD §4.2 keeps 10,000), in buckets of one
// millisecond for the convolution.
const (
	sampleWaits = 10000
	waitStep    = time.Millisecond
)

// waitSamples holds the latest waits for batches of a module: the times from entering a batch until it starts.
type waitSamples struct {
	latest    []time.Duration // a ring
	oldest    int             // index of the oldest one
	histogram []float64       // number of waits by bucket
}

// newWaitSamples returns an empty sample for waits of up to `longest`. Longer waits count in the last bucket.
func newWaitSamples(longest time.Duration) waitSamples {
	return waitSamples{latest: make([]time.Duration, 0, sampleWaits), histogram: make([]float64, int(longest/waitStep)+2)}
}

// bucketOf returns the bucket of the histogram (a millisecond each) in which a wait counts.
func (waits *waitSamples) bucketOf(wait time.Duration) int {
	return min(int(wait/waitStep), len(waits.histogram)-1)
}

// add adds a wait for a batch (from entering it until it starts) to the latest waits of a module and to their histogram.
// If there are sampleWaits of them, it takes the place of the oldest one.
func (waits *waitSamples) add(wait time.Duration) {
	if len(waits.latest) < sampleWaits {
		waits.latest = append(waits.latest, wait)
	} else {
		waits.histogram[waits.bucketOf(waits.latest[waits.oldest])]--
		waits.latest[waits.oldest] = wait
		waits.oldest++
		if waits.oldest == sampleWaits {
			waits.oldest = 0
		}
	}
	waits.histogram[waits.bucketOf(wait)]++
}

// convolve returns the distribution of the sum of two independent waits for batches: one with the given distribution,
// and one like the samples. Element i is the chance of bucket i. It overwrites result, and returns it with the length
// that it needs. Without samples the sum is the given wait.
func (waits *waitSamples) convolve(result, distribution []float64) []float64 {
	samples := len(waits.latest)
	if samples == 0 { // no samples yet
		return append(result[:0], distribution...)
	}

	// Clear the result.
	size := len(waits.histogram) + len(distribution) - 1
	if cap(result) < size {
		result = make([]float64, size)
	}
	result = result[:size]
	clear(result)

	// Each pair of buckets adds the product of its chances to the bucket of the sum.
	for bucket, chance := range waits.histogram {
		if chance == 0 {
			continue
		}
		chance /= float64(samples)
		target := result[bucket : bucket+len(distribution)]
		for otherBucket, otherChance := range distribution {
			target[otherBucket] += chance * otherChance
		}
	}

	// Cut off the buckets without a chance at the end.
	for len(result) > 1 && result[len(result)-1] == 0 {
		result = result[:len(result)-1]
	}
	return result
}

// quantile returns the lambda quantile (lambda from 0 to 1) of a sum of `terms` waits. `distribution` is that of the
// sum, in buckets of waitStep: convolve adds the bucket numbers of the waits, so bucket i has the chance that these
// numbers add up to i. A wait is spread evenly over its bucket, on average half a bucket above the lower end. The
// interpolation within a bucket of the sum counts that for one wait, hence (terms-1)/2 buckets for the others.
func quantile(distribution []float64, terms int, lambda float64) time.Duration {
	if terms == 0 {
		return 0
	}
	cumulated := 0.0
	for bucket, chance := range distribution {
		if cumulated+chance >= lambda && chance > 0 {
			buckets := float64(bucket) + (lambda-cumulated)/chance + float64(terms-1)/2
			return time.Duration(buckets * float64(waitStep))
		}
		cumulated += chance
	}
	return time.Duration(len(distribution)) * waitStep
}
