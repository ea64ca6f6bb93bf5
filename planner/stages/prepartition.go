package stages

import (
	"math"
	"slices"
)

// CutRule says how PrePartition chooses cuts.
type CutRule int8

const (
	// ByTime makes the slowest part as fast as possible. Among such cuts it takes those that
	// the fewest bytes cross.
	ByTime CutRule = iota
	// ByBytes takes, near each cut of an even split, the cut that the fewest bytes
	// cross.
	ByBytes
)

// PrePartition leaves each model at most n-1 places to cut, so that there are fewer templates to search (PPipe,
// section 5.2: ten blocks lose little against hundreds of layers). rule chooses them by even times or fewest
// bytes. The blocks keep the numbers of the profile.
func (p *Problem) PrePartition(n int, rule CutRule) {
	for d := range p.Models {
		m := &p.Models[d]
		if n < 1 || m.NumBlocks() <= n {
			continue
		}
		timeBefore := m.timeBefore(p)
		var keptCuts []int
		if rule == ByBytes {
			keptCuts = thinCuts(timeBefore, m.CutBytes, n)
		} else {
			keptCuts = evenCuts(timeBefore, m.CutBytes, n)
		}
		cuts := slices.Repeat([]int64{-1}, len(m.CutBytes))
		for _, i := range keptCuts {
			cuts[i] = m.CutBytes[i]
		}
		m.CutBytes = cuts
	}
}

// timeBefore returns, at each boundary between a model's blocks, the part of the model's time that lies before it,
// as the mean over device kinds. Times are those of the smallest measured batch on whole devices.
func (m *Model) timeBefore(p *Problem) []float64 {
	timeBefore := make([]float64, m.NumBlocks()+1)
	kinds := 0.0
	for k := range m.ShareCosts {
		if p.Pools[k].Count == 0 || len(m.ShareCosts[k]) == 0 || len(m.ShareCosts[k][0].Batches) == 0 {
			continue
		}
		blocks := m.ShareCosts[k][0].Batches[0].Blocks
		total := 0.0
		for _, t := range blocks {
			total += float64(max(t, minBlock))
		}
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

// evenCuts returns at most n-1 blocks after which to cut, so that the longest part is as short as possible and,
// with that limit, the cuts are crossed by the fewest bytes. timeBefore has the part of the model's time before
// each boundary. Negative bytes allow no cut.
func evenCuts(timeBefore []float64, bytes []int64, n int) []int {
	// places holds the ends of parts: the allowed cuts, and the end of the model.
	places := []int{0}
	for i, b := range bytes {
		if b >= 0 {
			places = append(places, i+1)
		}
	}
	places = append(places, len(timeBefore)-1)
	lastPlace := len(places) - 1
	n = min(n, lastPlace)

	// Find the smallest limit of a part's time with which a greedy walk needs at most n parts.
	partsNeeded := func(limit float64) int {
		count, start := 0, 0
		for start < lastPlace {
			end := start + 1
			for end < lastPlace && timeBefore[places[end+1]]-timeBefore[places[start]] <= limit {
				end++
			}
			if timeBefore[places[end]]-timeBefore[places[start]] > limit {
				return math.MaxInt
			}
			start = end
			count++
		}
		return count
	}
	low, high := 0.0, 1.0+1e-9
	for range 50 { // bisection, to far below rounding
		if mid := (low + high) / 2; partsNeeded(mid) <= n {
			high = mid
		} else {
			low = mid
		}
	}
	limit := high * (1 + 1e-9)

	// Dynamic program: minBytes[k][j] is the least number of bytes that cross if k parts end at
	// place j. If n parts are impossible, take as many as possible.
	const unreachable = math.MaxInt64
	minBytes, previous := make([][]int64, n+1), make([][]int, n+1)
	for k := range minBytes {
		minBytes[k], previous[k] = slices.Repeat([]int64{unreachable}, lastPlace+1), make([]int, lastPlace+1)
	}
	minBytes[0][0] = 0
	for k := 1; k <= n; k++ {
		for j := k; j <= lastPlace; j++ {
			for i := j - 1; i >= k-1 && timeBefore[places[j]]-timeBefore[places[i]] <= limit; i-- {
				crossingBytes := int64(0)
				if j < lastPlace {
					crossingBytes = bytes[places[j]-1]
				}
				if minBytes[k-1][i] != unreachable && minBytes[k-1][i]+crossingBytes < minBytes[k][j] {
					minBytes[k][j], previous[k][j] = minBytes[k-1][i]+crossingBytes, i
				}
			}
		}
	}

	// Follow the choices back from the end.
	k := n
	for minBytes[k][lastPlace] == unreachable {
		k--
	}
	var cuts []int
	for j := lastPlace; k > 1; k-- {
		j = previous[k][j]
		cuts = append(cuts, places[j]-1)
	}
	slices.Reverse(cuts)
	return cuts
}

// thinCuts returns the blocks after which a model is cut into about n parts: in every window of one n-th of the
// time, around the cuts of an even split, the cut with the fewest bytes. Negative bytes allow no cut.
func thinCuts(timeBefore []float64, bytes []int64, n int) []int {
	var cuts []int
	for k := 1; k < n; k++ {
		fewest := -1
		for i, b := range bytes {
			if position := timeBefore[i+1] * float64(n); b >= 0 && position >= float64(k)-0.5 && position < float64(k)+0.5 && (fewest < 0 || b < bytes[fewest]) {
				fewest = i
			}
		}
		if fewest >= 0 {
			cuts = append(cuts, fewest)
		}
	}
	return cuts
}
