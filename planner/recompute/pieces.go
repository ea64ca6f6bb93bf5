package recompute

import (
	"math"
	"time"

	"inferplan/formats"
)

// RangeTime returns the time of a batch through blocks [first, last): measured in one piece, or else
// estimated (docs/methods.md, "Times of ranges").
func Inference(m *formats.ProfileModel, ms *formats.Measurement, first, last int) time.Duration {
	us := time.Microsecond

	// A measured range has its own time.
	if last-first == len(ms.Blocks) && ms.Whole != nil {
		return max(ms.Whole.WallUS.D(), us)
	}
	for _, r := range ms.Ranges {
		if r.Blocks == [2]int{first, last} {
			return max(r.Latency.WallUS.D(), us)
		}
	}

	// Otherwise it is the sum of the blocks, less the costs of the inner cuts.
	total := time.Duration(0)
	for b := first; b < last; b++ {
		total += blockTime(ms, b)
	}
	if a, z, whole := holder(ms, first, last); z > a && last-first > 1 {
		cost := cutCosts(m, ms, a, z, whole)
		saved := 0.0
		for cut := first + 1; cut < last; cut++ {
			saved += cost[cut-a-1]
		}
		total -= time.Duration(math.Round(saved))
	}
	return total
}

// MinLatency returns the least time of a batch through a model, in any stages on some device kinds. It
// returns 0 if the model was measured on none of them.
func Fastest(m *formats.ProfileModel, kinds []string, batch int) time.Duration {
	n := len(m.Blocks)
	to := make([]time.Duration, n+1) // by block: least time from the first block
	for last := 1; last <= n; last++ {
		for _, kind := range kinds {
			ms := Measured(m, kind, 1, batch)
			if ms == nil || len(ms.Blocks) != n {
				continue
			}
			for first := range last {
				if t := to[first] + Inference(m, ms, first, last); to[last] == 0 || t < to[last] {
					to[last] = t
				}
			}
		}
		if to[last] == 0 {
			return 0
		}
	}
	return to[n]
}

// blockTime returns the time of a block, at least a microsecond.
func blockTime(ms *formats.Measurement, b int) time.Duration {
	return max(ms.Blocks[b].WallUS.D(), time.Microsecond)
}

// smallestPiece returns the measured piece with the fewest blocks that contains a range, the first of
// several. If there is none, the returned range is empty.
func holder(ms *formats.Measurement, first, last int) (a, z int, took time.Duration) {
	if ms.Whole != nil {
		a, z, took = 0, len(ms.Blocks), ms.Whole.WallUS.D()
	}
	for _, r := range ms.Ranges {
		i, j := r.Blocks[0], r.Blocks[1]
		if i > first || j < last {
			continue
		}
		if smaller := z == a || j-i < z-a || j-i == z-a && i < a; smaller {
			a, z, took = i, j, r.Latency.WallUS.D()
		}
	}
	return a, z, took
}

// cutCosts returns the costs of the inner cuts of a measured piece, in nanoseconds. Each is in proportion
// to the bytes that cross it, but no more than an adjacent block, and together they are the difference
// between the sum of the blocks and the piece. Cuts are filled in rounds: those that reach their
// largest cost leave the rest to the others.
func cutCosts(m *formats.ProfileModel, ms *formats.Measurement, a, z int, took time.Duration) []float64 {
	left := -float64(max(took, time.Microsecond))
	for b := a; b < z; b++ {
		left += float64(blockTime(ms, b))
	}
	n := z - a - 1
	cost, full := make([]float64, n), make([]bool, n)
	weights := crossingWeights(m)
	most := func(i int) float64 {
		return float64(min(blockTime(ms, a+i), blockTime(ms, a+i+1)))
	}

	// Divide the remaining time by weight, until no further cut reaches its largest cost.
	for {
		weight := 0.0
		for i := range n {
			if !full[i] {
				weight += weights[a+i]
			}
		}
		if weight == 0 {
			return cost
		}
		again, rest := false, left
		for i := range n {
			if full[i] {
				continue
			}
			if cost[i] = left * weights[a+i] / weight; cost[i] > most(i) {
				cost[i], full[i], again = most(i), true, true
				rest -= cost[i]
			}
		}
		if left = rest; !again {
			return cost
		}
	}
}

// crossingWeights returns the bytes after each block but the last. If some are unknown or all are 0, it
// returns ones.
func crossingWeights(m *formats.ProfileModel) []float64 {
	n := len(m.Blocks) - 1
	out, ones := make([]float64, n), make([]float64, n)
	known, any := true, false
	for i := range n {
		b := &m.Blocks[i]
		ones[i] = 1
		out[i] = float64(b.CutBytesFP32.Bytes())
		if !b.CutBytesFP32.Known() {
			out[i] = 2 * float64(b.CutBytesFP16.Bytes())
			known = known && b.CutBytesFP16.Known()
		}
		any = any || out[i] > 0
	}
	if known && any {
		return out
	}
	return ones
}
