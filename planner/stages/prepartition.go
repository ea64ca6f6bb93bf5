package stages

import (
	"slices"

	"inferplan/planner/lists"
)

// PrePartition leaves every model of more than n blocks at most n-1 places to cut, so that there are fewer templates to
// search (PPipe, section 5.2: ten blocks lose little against hundreds of layers). It takes, near each cut of an even
// split by time, the cut that the fewest bytes cross, and sets the bytes of all others in CutBytes to -1, which forbids
// a cut. The blocks themselves and their numbers stay. If n is below 1, it does nothing.
func (p *Problem) PrePartition(n int) {
	for d := range p.Models {
		m := &p.Models[d]
		if n < 1 || m.NumBlocks() <= n {
			continue
		}
		cuts := slices.Repeat([]int64{-1}, len(m.CutBytes))
		for _, i := range thinCuts(m.timeBefore(p), m.CutBytes, n) {
			cuts[i] = m.CutBytes[i]
		}
		m.CutBytes = cuts
	}
}

// timeBefore returns, at each boundary between a model's blocks (0 is before the first), the part of the model's time, 0
// to 1, that lies before it, as the mean over device kinds of the problem. Times are those of the smallest measured
// batch on whole devices.
func (m *Model) timeBefore(p *Problem) []float64 {
	timeBefore := make([]float64, m.NumBlocks()+1)
	kinds := 0.0
	for k := range m.ShareCosts {
		if p.Pools[k].Count == 0 || len(m.ShareCosts[k]) == 0 || len(m.ShareCosts[k][0].Batches) == 0 {
			continue
		}
		blocks := m.ShareCosts[k][0].Batches[0].Blocks
		total := lists.Sum(len(blocks), func(i int) float64 { return float64(max(blocks[i], minBlock)) })
		sum := 0.0
		for i, t := range blocks {
			sum += float64(max(t, minBlock)) / total
			timeBefore[i+1] += sum
		}
		kinds++
	}

	// Without measurements all blocks count the same.
	for i := range timeBefore {
		if kinds > 0 {
			timeBefore[i] /= kinds
		} else {
			timeBefore[i] = float64(i) / float64(len(timeBefore)-1)
		}
	}
	return timeBefore
}

// thinCuts returns the blocks after which a model is cut into about n parts. Around each of the n-1 cuts of an even split
// by time lies a window of one n-th of the time; of the cuts in it, the one with the fewest bytes is taken. bytes[i]
// crosses after block i, negative if no cut is allowed there. A window without a cut adds none. timeBefore[i] is the part
// of the model's time, 0 to 1, that lies before block i.
func thinCuts(timeBefore []float64, bytes []int64, n int) []int {
	var cuts []int
	for k := 1; k < n; k++ {
		thinnest := -1 // block after which the fewest bytes cross; -1 if there is no cut yet
		for i, b := range bytes {
			position := timeBefore[i+1] * float64(n) // of the cut after block i, in n-ths of the time
			isInWindow := position >= float64(k)-0.5 && position < float64(k)+0.5
			if isInWindow && b >= 0 && (thinnest < 0 || b < bytes[thinnest]) {
				thinnest = i
			}
		}
		if thinnest >= 0 {
			cuts = append(cuts, thinnest)
		}
	}
	return cuts
}
