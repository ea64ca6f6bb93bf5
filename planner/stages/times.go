package stages

import (
	"cmp"
	"math"
	"slices"
	"time"

	"inferplan/planner/lists"
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
// takes the sum of its blocks. See docs/methods/pool.md, "Times and rates".

// MeasuredRange is a range of blocks that was measured in one piece.
type MeasuredRange struct {
	FirstBlock, EndBlock int // half-open
	Time                 time.Duration
	MeanFactor           float64 // mean time over the median; 0 if unknown
	// savedBefore[i] is the time that the first i cuts inside the piece save, those before its blocks 1 to i; see SetPieces.
	savedBefore []time.Duration
}

// SetPieces stores the pieces (ranges of blocks that were measured in one run), those with the fewest blocks first, and
// computes the time that each saves against its blocks run one by one, divided among the cuts inside it: from that,
// times of ranges that were not measured are estimated. A cut saves in proportion to the bytes of a sample that cross
// it. bytes[i] crosses after block i, negative if unknown. If some are unknown or nothing crosses, all cuts weigh the
// same.
func (c *BatchCost) SetPieces(pieces []MeasuredRange, bytes []int64) {
	c.Pieces = slices.Clone(pieces)
	slices.SortFunc(c.Pieces, func(a, b MeasuredRange) int {
		return cmp.Or(cmp.Compare(a.EndBlock-a.FirstBlock, b.EndBlock-b.FirstBlock), cmp.Compare(a.FirstBlock, b.FirstBlock))
	})
	weights := lists.Filled(len(bytes), func(i int) float64 { return float64(bytes[i]) })
	if len(bytes) > 0 && (slices.Min(bytes) < 0 || slices.Max(bytes) == 0) {
		weights = slices.Repeat([]float64{1}, len(bytes))
	}
	for i := range c.Pieces {
		p := &c.Pieces[i]
		p.Time = max(p.Time, minBlock)
		p.savedBefore = c.savedTimes(p, weights)
	}
}

// savedTimes divides the time that a piece (a range of blocks measured in one run) saves against the sum of its blocks
// among the cuts inside it, in proportion to weights, which has one for the cut after each block of the model. It
// returns the prefix sums: entry i has what the first i cuts save, which are those before blocks FirstBlock+1 to
// FirstBlock+i. No cut saves more than the shorter of the two blocks beside it takes. If the piece takes more time than
// its blocks, the savings are negative.
func (c *BatchCost) savedTimes(piece *MeasuredRange, weights []float64) []time.Duration {
	n := piece.EndBlock - piece.FirstBlock - 1
	maxSaved, cutWeights := make([]float64, n), weights[piece.FirstBlock:piece.FirstBlock+n]

	// The time that the piece saves, the sum of its blocks less its own, and the most that each cut may save.
	pieceSaves := -float64(piece.Time)
	for i, b := range c.Blocks[piece.FirstBlock:piece.EndBlock] {
		b = max(b, minBlock)
		pieceSaves += float64(b)
		if i < n {
			maxSaved[i] = float64(min(b, max(c.Blocks[piece.FirstBlock+i+1], minBlock)))
		}
	}

	// A cut saves min(maxSaved, factor · weight), with the factor at which all cuts together save as much as the piece. If their
	// limits are too low for that, it is infinite. Cuts of weight 0 save nothing; an infinite factor times 0 would be NaN.
	factor := fillFactor(maxSaved, cutWeights, pieceSaves)
	saved, sum := make([]time.Duration, n+1), 0.0
	for i := range n {
		if cutWeights[i] > 0 {
			sum += min(maxSaved[i], factor*cutWeights[i])
		}
		saved[i+1] = time.Duration(math.Round(sum))
	}
	return saved
}

// fillFactor returns the factor s for which Σ min(caps[i], s·weights[i]) equals total: total is divided among entries in
// proportion to their weights, but each gets at most its cap. Entries of weight 0 get nothing. If all caps together
// are less than total, it returns infinity.
func fillFactor(caps, weights []float64, total float64) float64 {
	byFill := make([]int, 0, len(caps))
	weight := 0.0
	for i, w := range weights {
		if w > 0 {
			byFill = append(byFill, i)
			weight += w
		}
	}
	slices.SortFunc(byFill, func(a, b int) int { return cmp.Compare(caps[a]/weights[a], caps[b]/weights[b]) })
	for _, i := range byFill { // in the order in which they reach their caps
		if s := total / weight; s*weights[i] <= caps[i] {
			return s
		}
		total -= caps[i]
		weight -= weights[i]
	}
	return math.Inf(1)
}

// RangeTimes holds the times of all ranges of a model's blocks at a batch size.
type RangeTimes struct {
	sums   []time.Duration // prefix sums over the blocks, each of at least minBlock
	pieces []MeasuredRange
	// If they are not nil, the time of a range is ends[last] - starts[first]. They are nil if
	// pieces of several sizes were measured.
	starts, ends []time.Duration
}

// rangeTimes prepares the times of all ranges of a model's blocks at this batch size. The time of a range is the sum of its
// blocks, less what the cuts inside it save (see SetPieces) in the smallest piece (a range measured in one run) that
// contains it. If nothing or only the whole model was measured in one run, that is a difference of two prefix sums:
//
//	ends[j] - starts[i],   starts[i] = sums[i] - savedBefore[i],   ends[j] = sums[j] - savedBefore[j-1]
//
// because the cuts inside the range i to j-1 are those before blocks i+1 to j-1. In all other cases starts and ends stay
// nil, and RangeTimes looks for the smallest piece each time, which is slower.
func (c *BatchCost) rangeTimes() RangeTimes {
	n := len(c.Blocks)
	t := RangeTimes{sums: make([]time.Duration, n+1), pieces: c.Pieces}
	for i, d := range c.Blocks {
		t.sums[i+1] = t.sums[i] + max(d, minBlock)
	}

	// The whole model's own time was measured. It equals the difference only if the cuts save all that the whole model
	// saves, which the limits of the cuts may prevent.
	switch {
	case len(c.Pieces) == 0:
		t.starts, t.ends = t.sums, t.sums
	case len(c.Pieces) == 1 && c.Pieces[0].EndBlock-c.Pieces[0].FirstBlock == n && t.sums[n]-c.Pieces[0].savedBefore[n-1] == c.Pieces[0].Time:
		t.starts, t.ends = slices.Clone(t.sums), slices.Clone(t.sums)
		savedBefore := c.Pieces[0].savedBefore
		for i := range n {
			t.starts[i] -= savedBefore[i]
			t.ends[i+1] -= savedBefore[i]
		}
	}
	return t
}

// Time returns the time of a batch through the blocks from firstBlock to endBlock-1.
func (t *RangeTimes) Time(firstBlock, endBlock int) time.Duration {
	if t.ends != nil {
		return t.ends[endBlock] - t.starts[firstBlock]
	}
	return t.timeFromPieces(firstBlock, endBlock)
}

// timeFromPieces returns the time of a batch through a range of blocks. If the range is a piece (measured in one run), it is
// the measured time. Otherwise it is the sum of the times of its blocks, less the time that the cuts inside the range
// save in the smallest piece that contains it. Pieces are sorted by size.
func (t *RangeTimes) timeFromPieces(firstBlock, endBlock int) time.Duration {
	sum := t.sums[endBlock] - t.sums[firstBlock]
	for i := range t.pieces {
		p := &t.pieces[i]
		switch {
		case p.FirstBlock == firstBlock && p.EndBlock == endBlock:
			return p.Time
		case endBlock-firstBlock > 1 && p.FirstBlock <= firstBlock && endBlock <= p.EndBlock:
			// The cuts inside the range are those before blocks firstBlock+1 to endBlock-1.
			savedToLast := p.savedBefore[endBlock-1-p.FirstBlock]
			savedToFirst := p.savedBefore[firstBlock-p.FirstBlock]
			return sum - (savedToLast - savedToFirst)
		}
	}
	return sum
}

// IsMonotone reports whether no range takes longer than a range that contains it.
func (t *RangeTimes) IsMonotone() bool { return t.ends != nil }

// IsEstimated reports whether the time of a range is an estimate: some piece of the model was
// measured, but not this range.
func (c *BatchCost) IsEstimated(firstBlock, endBlock int) bool {
	return endBlock-firstBlock > 1 && len(c.Pieces) > 0 && !slices.ContainsFunc(c.Pieces, func(p MeasuredRange) bool { return p.FirstBlock == firstBlock && p.EndBlock == endBlock })
}

// MaxTime returns the time that a batch takes through blocks [first, last) at most: that of the next
// larger measured batch size.
func MaxTime(s *ShareCosts, batch, firstBlock, endBlock int) time.Duration {
	t := s.CostAt(batch).rangeTimes()
	return t.Time(firstBlock, endBlock)
}

// IsEstimated returns whether the time of a range of blocks was not measured in one piece but estimated, at some
// batch size up to the given one.
func IsEstimated(s *ShareCosts, batch, firstBlock, endBlock int) bool {
	for i := range s.Batches {
		if s.Batches[i].IsEstimated(firstBlock, endBlock) {
			return true
		}
		if s.Batches[i].Batch >= batch {
			break
		}
	}
	return false
}
