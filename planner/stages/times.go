package stages

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A stage runs its blocks in one piece, which takes less than the blocks do one
// by one: between two of them nothing is copied, changes its layout or is kept
// from being fused. What was measured in one piece counts as measured. For
// other ranges of blocks there is an estimate:
//
//	time of [i, j) = its blocks, less what its inner cuts cost
//	cost of a cut  = min(either block beside it, s · bytes that cross it)
//
// where s is such that the cuts inside the smallest measured piece that holds the
// range, which may be the whole model, cost what the blocks of that piece take
// more than the piece. Where nothing was measured in one piece, a range takes
// what its blocks do.

// Piece is a range of blocks that was measured in one piece.
type Piece struct {
	First, Last int // half-open
	Time        time.Duration
	Mean        float64         // what it takes on average, over its median; 0: not known
	saved       []time.Duration // what its inner cuts cost together, up to each; see Fit
}

// Fit takes what was measured in one piece for the estimates of a cost: bytes are
// those that cross after each block but the last, below 0 where they are not
// known. Cuts that no bytes are known of count alike.
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

// split shares what a piece's blocks take more than the piece among its inner
// cuts, and returns it added up: entry i is of the cuts before block First+1+i.
func (c *BatchCost) split(p *Piece, weights []float64) []time.Duration {
	n := p.Last - p.First - 1
	caps, w := make([]float64, n), weights[p.First:p.First+n]
	over := -float64(p.Time)
	for i, b := range c.Blocks[p.First:p.Last] {
		b = max(b, minBlock)
		over += float64(b)
		if i < n {
			caps[i] = float64(min(b, max(c.Blocks[p.First+i+1], minBlock)))
		}
	}
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

// level is the s at which the sum of min(cap, s·weight) is a total, infinite where
// no s is enough.
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
	for _, i := range order { // the first to be full
		if s := total / weight; s*weights[i] <= caps[i] {
			return s
		}
		total -= caps[i]
		weight -= weights[i]
	}
	return math.Inf(1)
}

// Times is what the ranges of a model's blocks take at a batch size.
type Times struct {
	sums   []time.Duration // of the blocks before, each at least minBlock
	pieces []Piece
	// starts and ends, where there are any: a range takes the difference between
	// that of its last and that of its first block. Nil where pieces of several
	// sizes were measured.
	starts, ends []time.Duration
}

// times prepares the times of a cost.
func (c *BatchCost) times() Times {
	n := len(c.Blocks)
	t := Times{sums: make([]time.Duration, n+1), pieces: c.Pieces}
	for i, d := range c.Blocks {
		t.sums[i+1] = t.sums[i] + max(d, minBlock)
	}
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

// Of is the time of blocks [first, last).
func (t *Times) Of(first, last int) time.Duration {
	if t.ends != nil {
		return t.ends[last] - t.starts[first]
	}
	return t.byPieces(first, last)
}

// byPieces looks a range up among the pieces, smallest first.
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

// Rises tells whether no range takes longer than one that holds it.
func (t *Times) Rises() bool { return t.ends != nil }

// Estimated tells whether the time of a range is an estimate: something of the
// model was measured in one piece, but not this.
func (c *BatchCost) Estimated(first, last int) bool {
	return last-first > 1 && len(c.Pieces) > 0 && !slices.ContainsFunc(c.Pieces, func(p Piece) bool { return p.First == first && p.Last == last })
}

// Infer is the time that a batch takes through blocks [first, last) at most: that of the
// next larger measured one.
func Infer(s *Share, batch, first, last int) time.Duration {
	t := s.At(batch).times()
	return t.Of(first, last)
}

// Estimated tells whether what a stage takes is an estimate at some batch size up
// to its own.
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
