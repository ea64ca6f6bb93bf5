package stages

import (
	"math"
	"time"
)

// Expected is what a batch takes through ranges of a model's blocks: undisturbed, and on
// average. A size that was not measured, between two that were, takes what lies on the
// line between them where it runs as it is, unless the larger one takes less; else it
// takes what the larger one does.
type Expected struct {
	at, below         *BatchCost // the next measured sizes; below is nil where at costs it
	times, timesBelow Times
	part              float64 // of the way from below to at
	pads              []bool
	dispatch          time.Duration
}

// Expect is what a batch size takes.
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

// Interval is the least and the most that a batch takes undisturbed: one figure where its
// size was measured, or runs as one that was.
func (e *Expected) Interval(first, last int) (low, high time.Duration) {
	high = e.times.Of(first, last)
	if e.below == nil || e.pads[first] && e.pads[last] {
		return high, high
	}
	return min(e.timesBelow.Of(first, last), high), high
}

// Median is what a batch takes undisturbed.
func (e *Expected) Median(first, last int) time.Duration {
	low, high := e.Interval(first, last)
	return between(low, high, e.part)
}

// Mean returns what a batch takes up a device on average: by the profile's means, with what it takes beside its run. Where
// the profile has no means, it returns Median.
func (e *Expected) Mean(first, last int) time.Duration {
	low, high := e.Interval(first, last)
	of, below := e.at.mean(first, last), 0.0
	if of == 0 {
		return between(low, high, e.part)
	}
	mean := max(1, time.Duration(math.Round(float64(high)*of)))
	if low < high {
		below = e.below.mean(first, last)
	}
	if below == 0 {
		return e.dispatch + max(1, time.Duration(math.Round(float64(between(low, high, e.part))*of)))
	}
	return e.dispatch + between(max(1, time.Duration(math.Round(float64(low)*below))), mean, e.part)
}

// between is the time on the way from one to another.
func between(low, high time.Duration, part float64) time.Duration {
	if low == high {
		return high
	}
	return low + time.Duration(math.Round(part*float64(high-low)))
}

// mean is what a range takes on average over its median: its own where it was measured in
// one piece, else the whole model's; 0: not known.
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
