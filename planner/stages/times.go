package stages

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A stage runs its blocks in one piece, which takes less time than the blocks one by one:
// between two blocks nothing is copied or changes its layout, and operators can be fused. Ranges
// that were measured in one piece have their measured time. For other ranges there is an estimate:
//
//	T(i, j) = Σ t_block(b), i <= b < j, less Σ cost(c), i < c < j
//	cost(c) = min( t_block(c-1), t_block(c), s · bytes(c) )    for the cut before block c
//
// The factor s belongs to the smallest measured piece that contains the range, which may be the whole
// model. It is such that the costs of the inner cuts of the piece add up to the difference between
// the sum of its blocks and the time of the piece. If nothing was measured in one piece, a range
// takes the sum of its blocks. See docs/methods.md, "Times of ranges".

// MeasuredRange is a range of blocks that was measured in one piece.
type Piece struct {
	First, Last int // half-open
	Time        time.Duration
	Mean        float64         // mean time over the median; 0 if unknown
	saved       []time.Duration // costs of its inner cuts, added up from the first; see SetPieces
}

// SetPieces stores the measured pieces and computes the costs of their inner cuts. bytes holds what
// crosses after each block but the last, negative if unknown. If some are unknown, all cuts have
// the same weight.
func (c *BatchCost) Fit(pieces []Piece, bytes []int64) {
	c.Pieces = slices.Clone(pieces)
	slices.SortFunc(c.Pieces, func(a, b Piece) int {
		return cmp.Or(cmp.Compare(a.Last-a.First, b.Last-b.First), cmp.Compare(a.First, b.First))
	})
	weights := make([]float64, len(bytes))
	for i, b := range bytes {
		weights[i] = float64(b)
	}
	if len(bytes) > 0 && (slices.Min(bytes) < 0 || slices.Max(bytes) == 0) {
		weights = slices.Repeat([]float64{1}, len(bytes))
	}
	for i := range c.Pieces {
		p := &c.Pieces[i]
		p.Time = max(p.Time, minBlock)
		p.saved = c.split(p, weights)
	}
}

// savedTimes divides the difference between the blocks and the piece among the inner cuts of a piece,
// and returns its prefix sums: entry i holds the cuts before block FirstBlock+1+i.
func (c *BatchCost) split(p *Piece, weights []float64) []time.Duration {
	n := p.Last - p.First - 1
	caps, w := make([]float64, n), weights[p.First:p.First+n]

	// The difference, and the largest cost of each cut.
	over := -float64(p.Time)
	for i, b := range c.Blocks[p.First:p.Last] {
		b = max(b, minBlock)
		over += float64(b)
		if i < n {
			caps[i] = float64(min(b, max(c.Blocks[p.First+i+1], minBlock)))
		}
	}

	// The costs are min(maxSaved, factor · cutWeight).
	s := level(caps, w, over)
	out, sum := make([]time.Duration, n+1), 0.0
	for i := range n {
		if w[i] > 0 {
			sum += min(caps[i], s*w[i])
		}
		out[i+1] = time.Duration(math.Round(sum))
	}
	return out
}

// fillFactor returns the s for which Σ min(caps, s·weights) equals total. If no s is large enough, it
// returns infinity.
func level(caps, weights []float64, total float64) float64 {
	order := make([]int, 0, len(caps))
	weight := 0.0
	for i, w := range weights {
		if w > 0 {
			order = append(order, i)
			weight += w
		}
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(caps[a]/weights[a], caps[b]/weights[b]) })
	for _, i := range order { // in the order in which they reach their caps
		if s := total / weight; s*weights[i] <= caps[i] {
			return s
		}
		total -= caps[i]
		weight -= weights[i]
	}
	return math.Inf(1)
}

// RangeTimes holds the times of all ranges of a model's blocks at a batch size.
type Times struct {
	sums   []time.Duration // prefix sums over the blocks, each of at least minBlock
	pieces []Piece
	// If they are not nil, the time of a range is ends[last] - starts[first]. They are nil if
	// pieces of several sizes were measured.
	starts, ends []time.Duration
}

// rangeTimes prepares the times of the ranges.
func (c *BatchCost) times() Times {
	n := len(c.Blocks)
	t := Times{sums: make([]time.Duration, n+1), pieces: c.Pieces}
	for i, d := range c.Blocks {
		t.sums[i+1] = t.sums[i] + max(d, minBlock)
	}

	// Without pieces, and with the whole model as the only one, times are differences.
	switch {
	case len(c.Pieces) == 0:
		t.starts, t.ends = t.sums, t.sums
	case len(c.Pieces) == 1 && c.Pieces[0].Last-c.Pieces[0].First == n && t.sums[n]-c.Pieces[0].saved[n-1] == c.Pieces[0].Time:
		t.starts, t.ends = slices.Clone(t.sums), slices.Clone(t.sums)
		for i := range n {
			t.starts[i] -= c.Pieces[0].saved[i]
			t.ends[i+1] -= c.Pieces[0].saved[i]
		}
	}
	return t
}

// Time returns the time of blocks [first, last).
func (t *Times) Of(first, last int) time.Duration {
	if t.ends != nil {
		return t.ends[last] - t.starts[first]
	}
	return t.byPieces(first, last)
}

// timeFromPieces returns the time of a range from the smallest piece that contains it.
func (t *Times) byPieces(first, last int) time.Duration {
	sum := t.sums[last] - t.sums[first]
	for i := range t.pieces {
		p := &t.pieces[i]
		switch {
		case p.First == first && p.Last == last:
			return p.Time
		case last-first > 1 && p.First <= first && last <= p.Last:
			return sum - (p.saved[last-1-p.First] - p.saved[first-p.First])
		}
	}
	return sum
}

// IsMonotone reports whether no range takes longer than a range that contains it.
func (t *Times) Rises() bool { return t.ends != nil }

// IsEstimated reports whether the time of a range is an estimate: some piece of the model was
// measured, but not this range.
func (c *BatchCost) Estimated(first, last int) bool {
	return last-first > 1 && len(c.Pieces) > 0 && !slices.ContainsFunc(c.Pieces, func(p Piece) bool { return p.First == first && p.Last == last })
}

// MaxTime returns the time that a batch takes through blocks [first, last) at most: that of the next
// larger measured batch size.
func Infer(s *Share, batch, first, last int) time.Duration {
	t := s.At(batch).times()
	return t.Of(first, last)
}

// IsEstimated reports whether the time of a range is an estimate at some batch size up to the given
// one.
func Estimated(s *Share, batch, first, last int) bool {
	for i := range s.Batches {
		if s.Batches[i].Estimated(first, last) {
			return true
		}
		if s.Batches[i].Batch >= batch {
			break
		}
	}
	return false
}
