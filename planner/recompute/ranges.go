package recompute

import (
	"math"
	"time"

	"inferplan/formats"
)

// RangeTime returns the time of a batch through the blocks of model m from firstBlock to endBlock-1, by measurement ms: as measured in
// one run or, if it was not, the sum of the blocks measured alone less the time that is saved where they are not cut (docs/methods/pool.md,
// "Times and rates"). It is at least a microsecond.
func RangeTime(m *formats.ProfileModel, ms *formats.Measurement, firstBlock, endBlock int) time.Duration {
	minimum := time.Microsecond

	// A measured range has its own time.
	if endBlock-firstBlock == len(ms.Blocks) && ms.WholeModel != nil {
		return max(ms.WholeModel.WallUS.D(), minimum)
	}
	for _, r := range ms.Ranges {
		if r.Blocks == [2]int{firstBlock, endBlock} {
			return max(r.Latency.WallUS.D(), minimum)
		}
	}

	// Otherwise it is the sum of the blocks, less the costs of the inner cuts.
	total := time.Duration(0)
	for b := firstBlock; b < endBlock; b++ {
		total += blockTime(ms, b)
	}
	if pieceFirst, pieceEnd, pieceTime := smallestPiece(ms, firstBlock, endBlock); pieceEnd > pieceFirst && endBlock-firstBlock > 1 {
		// The smallest measured range that contains this one says how much its inner cuts cost.
		cost := cutCosts(m, ms, pieceFirst, pieceEnd, pieceTime)
		saved := 0.0
		for cut := firstBlock + 1; cut < endBlock; cut++ {
			saved += cost[cut-pieceFirst-1] // the cut before block cut is the one after block cut-1
		}
		total -= time.Duration(math.Round(saved))
	}
	return total
}

// MinLatency returns the least time of a batch through a model that may be cut into any stages on devices of some kinds, without
// transfers: no pipeline is faster. If the model was not measured on any of them, it returns 0.
func MinLatency(m *formats.ProfileModel, kinds []string, batch int) time.Duration {
	n := len(m.Blocks)
	minTime := make([]time.Duration, n+1) // by block: least time from the first block
	for endBlock := 1; endBlock <= n; endBlock++ {
		for _, kind := range kinds {
			measurement := MeasurementFor(m, kind, 1, batch)
			if measurement == nil || len(measurement.Blocks) != n {
				continue
			}

			// The last stage runs from firstBlock to endBlock-1.
			for firstBlock := range endBlock {
				if t := minTime[firstBlock] + RangeTime(m, measurement, firstBlock, endBlock); minTime[endBlock] == 0 || t < minTime[endBlock] {
					minTime[endBlock] = t
				}
			}
		}
		if minTime[endBlock] == 0 {
			return 0
		}
	}
	return minTime[n]
}

// blockTime returns the time of a block, at least a microsecond.
func blockTime(ms *formats.Measurement, b int) time.Duration {
	return max(ms.Blocks[b].WallUS.D(), time.Microsecond)
}

// smallestPiece returns the piece (a range of blocks that was measured in one run) with the fewest blocks that contains the range from
// firstBlock to endBlock-1, the first of several, with its time. If there is none, the returned range is empty.
func smallestPiece(ms *formats.Measurement, firstBlock, endBlock int) (pieceFirst, pieceEnd int, duration time.Duration) {
	if ms.WholeModel != nil {
		pieceFirst, pieceEnd, duration = 0, len(ms.Blocks), ms.WholeModel.WallUS.D()
	}
	for _, r := range ms.Ranges {
		i, j := r.Blocks[0], r.Blocks[1]
		if i > firstBlock || j < endBlock {
			continue
		}
		if smaller := pieceEnd == pieceFirst || j-i < pieceEnd-pieceFirst || j-i == pieceEnd-pieceFirst && i < pieceFirst; smaller {
			pieceFirst, pieceEnd, duration = i, j, r.Latency.WallUS.D()
		}
	}
	return pieceFirst, pieceEnd, duration
}

// cutCosts returns, in nanoseconds, how much each cut inside a measured piece (blocks pieceFirst to pieceEnd-1, which take duration in
// one run) costs. Blocks that run one by one take longer than the piece, and the difference is divided among the cuts between them, in
// proportion to the bytes that cross each, but no more than the faster adjacent block takes. Cuts are filled in rounds: those that reach
// their largest cost leave the rest to the others. Entry i belongs to the cut after block pieceFirst+i. If the blocks take less time than
// the piece, the costs are negative.
func cutCosts(m *formats.ProfileModel, ms *formats.Measurement, pieceFirst, pieceEnd int, duration time.Duration) []float64 {
	// remaining is the difference that is not yet divided: the time of the blocks less that of the piece.
	remaining := -float64(max(duration, time.Microsecond))
	for b := pieceFirst; b < pieceEnd; b++ {
		remaining += float64(blockTime(ms, b))
	}
	n := pieceEnd - pieceFirst - 1
	cost, isFull := make([]float64, n), make([]bool, n)
	weights := crossingWeights(m)
	maxCost := func(i int) float64 {
		return float64(min(blockTime(ms, pieceFirst+i), blockTime(ms, pieceFirst+i+1)))
	}

	// In each round, divide what the cuts at their largest cost leave among all others, by their weights in crossingWeights. The costs of
	// these others are computed anew, so only cuts that reach their largest cost lower what remains. The rounds end when none does.
	for {
		weight := 0.0
		for i := range n {
			if !isFull[i] {
				weight += weights[pieceFirst+i]
			}
		}
		if weight == 0 {
			return cost
		}
		anyFilled, nextRemaining := false, remaining
		for i := range n {
			if isFull[i] {
				continue
			}
			if cost[i] = remaining * weights[pieceFirst+i] / weight; cost[i] > maxCost(i) {
				cost[i], isFull[i], anyFilled = maxCost(i), true, true
				nextRemaining -= cost[i]
			}
		}
		remaining = nextRemaining
		if !anyFilled {
			return cost
		}
	}
}

// crossingWeights returns the weights with which a time is distributed over the cuts of a model: for each block but the last the bytes that
// cross after it, as 32-bit numbers or, if only those of 16-bit numbers are known, twice these. If neither are known for some cut, or
// all are 0, all weights are 1.
func crossingWeights(m *formats.ProfileModel) []float64 {
	n := len(m.Blocks) - 1
	weights, equalWeights := make([]float64, n), make([]float64, n)
	allKnown, anyCrosses := true, false
	for i := range n {
		b := &m.Blocks[i]
		equalWeights[i] = 1
		weights[i] = float64(b.CutBytesFP32.Bytes())
		if !b.CutBytesFP32.IsKnown() {
			weights[i] = 2 * float64(b.CutBytesFP16.Bytes())
			allKnown = allKnown && b.CutBytesFP16.IsKnown()
		}
		anyCrosses = anyCrosses || weights[i] > 0
	}
	if allKnown && anyCrosses {
		return weights
	}
	return equalWeights
}
