package stages

import (
	"math"
	"time"
)

// ExpectedTimes gives the median and the mean time that a batch takes through ranges of a model's
// blocks. A size between two measured ones lies on the line between them if it runs without
// padding, unless the larger size takes less. Otherwise it takes as long as the larger size.
type Expected struct {
	at, below         *BatchCost // the next measured sizes; below is nil if above alone counts
	times, timesBelow Times
	part              float64 // position between below and above, 0 to 1
	pads              []bool
	dispatch          time.Duration
}

// ExpectedTimes returns the times of a batch size.
func (s *Share) Expect(batch int) Expected {
	e := Expected{at: s.At(batch), pads: s.Pads, dispatch: s.Dispatch}
	e.times = e.at.times()
	if s.Pads == nil || e.at.Batch == batch {
		return e
	}
	for i := range s.Batches {
		if b := &s.Batches[i]; b.Batch < batch {
			e.below = b
		}
	}
	if e.below != nil {
		e.timesBelow = e.below.times()
		e.part = float64(batch-e.below.Batch) / float64(e.at.Batch-e.below.Batch)
	}
	return e
}

// Interval returns the least and the largest median time that a batch may have. Both are the same
// if its size was measured or is padded to a measured one.
func (e *Expected) Interval(first, last int) (low, high time.Duration) {
	high = e.times.Of(first, last)
	if e.below == nil || e.pads[first] && e.pads[last] {
		return high, high
	}
	return min(e.timesBelow.Of(first, last), high), high
}

// Median returns the time that a batch takes undisturbed.
func (e *Expected) Median(first, last int) time.Duration {
	low, high := e.Interval(first, last)
	return between(low, high, e.part)
}

// Mean returns the time for which a batch occupies a device on average: by the profile's means, with
// the time beside its run. If the profile has no means, it returns Median.
func (e *Expected) Mean(first, last int) time.Duration {
	low, high := e.Interval(first, last)
	of, below := e.at.mean(first, last), 0.0
	if of == 0 {
		return between(low, high, e.part)
	}

	// Interpolate between the means of both sizes, if both are known.
	mean := max(1, time.Duration(math.Round(float64(high)*of)))
	if low < high {
		below = e.below.mean(first, last)
	}
	if below == 0 {
		return e.dispatch + max(1, time.Duration(math.Round(float64(between(low, high, e.part))*of)))
	}
	return e.dispatch + between(max(1, time.Duration(math.Round(float64(low)*below))), mean, e.part)
}

// interpolate returns the time at a fraction of the way from lower to upper.
func between(low, high time.Duration, part float64) time.Duration {
	if low == high {
		return high
	}
	return low + time.Duration(math.Round(part*float64(high-low)))
}

// meanFactorOf returns the mean time of a range over its median: its own if it was measured in one
// piece, else that of the whole model. It returns 0 if that is unknown.
func (c *BatchCost) mean(first, last int) float64 {
	if c.Mean == 0 {
		return 0
	}
	for i := range c.Pieces {
		if p := &c.Pieces[i]; p.First == first && p.Last == last && p.Mean > 0 {
			return p.Mean
		}
	}
	return c.Mean
}
