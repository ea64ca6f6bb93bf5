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
	places := []int{0}
	for i, b := range bytes {
		if b >= 0 {
			places = append(places, i+1)
		}
	}
	places = append(places, len(timeBefore)-1)
	n = min(n, len(places)-1)
	limit := shortestLimit(timeBefore, places, n) * (1 + 1e-9)
	return cheapestCuts(timeBefore, bytes, places, n, limit)
}

// shortestLimit returns the smallest time of a part with which n parts suffice, by bisection. places has the
// ends of parts: 0, the allowed cuts, and the end of the model.
func shortestLimit(timeBefore []float64, places []int, n int) float64 {
	low, high := 0.0, 1.0+1e-9
	for range 50 {
		if mid := (low + high) / 2; partsNeeded(timeBefore, places, mid) <= n {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}

// partsNeeded returns the number of parts of at most the given time into which a model can be divided. A
// greedy walk finds it. If there is no such division, it returns math.MaxInt.
func partsNeeded(timeBefore []float64, places []int, limit float64) int {
	last := len(places) - 1
	count, start := 0, 0
	for start < last {
		end := start + 1
		for end < last && timeBefore[places[end+1]]-timeBefore[places[start]] <= limit {
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

// cheapestCuts returns the cuts into at most n parts within a limit of their time that the fewest bytes cross.
// It is a dynamic program: minBytes[k][j] is the least number of bytes that cross if k parts end at place j.
func cheapestCuts(timeBefore []float64, bytes []int64, places []int, n int, limit float64) []int {
	const unreachable = math.MaxInt64
	last := len(places) - 1
	minBytes, previous := make([][]int64, n+1), make([][]int, n+1)
	for k := range minBytes {
		minBytes[k], previous[k] = slices.Repeat([]int64{unreachable}, last+1), make([]int, last+1)
	}
	minBytes[0][0] = 0
	for k := 1; k <= n; k++ {
		for j := k; j <= last; j++ {
			crossingBytes := int64(0)
			if j < last {
				crossingBytes = bytes[places[j]-1]
			}
			for i := j - 1; i >= k-1 && timeBefore[places[j]]-timeBefore[places[i]] <= limit; i-- {
				if minBytes[k-1][i] != unreachable && minBytes[k-1][i]+crossingBytes < minBytes[k][j] {
					minBytes[k][j], previous[k][j] = minBytes[k-1][i]+crossingBytes, i
				}
			}
		}
	}

	// Follow the choices back from the end. If n parts are impossible, there are as many as possible.
	k := n
	for minBytes[k][last] == unreachable {
		k--
	}
	var cuts []int
	for j := last; k > 1; k-- {
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
