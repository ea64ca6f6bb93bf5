package stages

import (
	"math"
	"slices"
)

// CutRule says how PrePartition chooses cuts.
type Rule int8

const (
	// ByTime makes the slowest part as fast as possible. Among such cuts it takes those that
	// the fewest bytes cross.
	ByTime Rule = iota
	// ByBytes takes, near each cut of an even split, the cut that the fewest bytes
	// cross.
	ByBytes
)

// PrePartition leaves a model at most n-1 places to cut, so that it counts as n blocks (PPipe, section
// 5.2: ten blocks lose little against hundreds of layers). The numbers of the blocks stay those of
// the profile. Times are those of batch size 1, or the smallest measured one, on whole devices, as
// parts of the model's time on the kind.
func (p *Problem) PrePartition(n int, by Rule) {
	for d := range p.Models {
		m := &p.Models[d]
		if n < 1 || m.NumBlocks() <= n {
			continue
		}
		at := m.parts(p)
		var keep []int
		if by == ByBytes {
			keep = thinnest(at, m.CutBytes, n)
		} else {
			keep = evenest(at, m.CutBytes, n)
		}
		cuts := slices.Repeat([]int64{-1}, len(m.CutBytes))
		for _, i := range keep {
			cuts[i] = m.CutBytes[i]
		}
		m.CutBytes = cuts
	}
}

// timeBefore returns prefix sums over the blocks of their part of the model's time, as the mean over
// device kinds.
func (m *Model) parts(p *Problem) []float64 {
	at := make([]float64, m.NumBlocks()+1)
	kinds := 0.0
	for k := range m.Costs {
		if p.Pools[k].Count == 0 || len(m.Costs[k]) == 0 || len(m.Costs[k][0].Batches) == 0 {
			continue
		}
		blocks := m.Costs[k][0].Batches[0].Blocks
		whole := 0.0
		for _, t := range blocks {
			whole += float64(max(t, minBlock))
		}
		sum := 0.0
		for i, t := range blocks {
			sum += float64(max(t, minBlock)) / whole
			at[i+1] += sum
		}
		kinds++
	}

	// Without measurements all blocks count the same.
	for i := range at {
		if kinds > 0 {
			at[i] /= kinds
		} else {
			at[i] = float64(i) / float64(len(at)-1)
		}
	}
	return at
}

// evenCuts returns at most n-1 cuts that make the longest part as short as possible and, with that
// limit, are crossed by the fewest bytes. Negative bytes allow no cut.
func evenest(at []float64, bytes []int64, n int) []int {
	// places holds the ends of parts: the allowed cuts, and the end of the model.
	places := []int{0}
	for i, b := range bytes {
		if b >= 0 {
			places = append(places, i+1)
		}
	}
	places = append(places, len(at)-1)
	l := len(places) - 1
	n = min(n, l)
	// Find the smallest limit with which a greedy walk needs at most n parts.
	runs := func(limit float64) int {
		count, start := 0, 0
		for start < l {
			end := start + 1
			for end < l && at[places[end+1]]-at[places[start]] <= limit {
				end++
			}
			if at[places[end]]-at[places[start]] > limit {
				return math.MaxInt
			}
			start = end
			count++
		}
		return count
	}
	lo, hi := 0.0, 1.0+1e-9
	for range 50 {
		if mid := (lo + hi) / 2; runs(mid) <= n {
			hi = mid
		} else {
			lo = mid
		}
	}
	limit := hi * (1 + 1e-9)
	// Dynamic program: minBytes[k][j] is the least number of bytes that cross if k parts end at
	// place j. If n parts are impossible, take as many as possible.
	const far = math.MaxInt64
	best, from := make([][]int64, n+1), make([][]int, n+1)
	for k := range best {
		best[k], from[k] = slices.Repeat([]int64{far}, l+1), make([]int, l+1)
	}
	best[0][0] = 0
	for k := 1; k <= n; k++ {
		for j := k; j <= l; j++ {
			for i := j - 1; i >= k-1 && at[places[j]]-at[places[i]] <= limit; i-- {
				cross := int64(0)
				if j < l {
					cross = bytes[places[j]-1]
				}
				if best[k-1][i] != far && best[k-1][i]+cross < best[k][j] {
					best[k][j], from[k][j] = best[k-1][i]+cross, i
				}
			}
		}
	}

	// Follow the choices back from the end.
	k := n
	for best[k][l] == far {
		k--
	}
	var out []int
	for j := l; k > 1; k-- {
		j = from[k][j]
		out = append(out, places[j]-1)
	}
	slices.Reverse(out)
	return out
}

// thinCuts returns the cut with the fewest bytes in every window with the width of one n-th of the
// time, around the cuts of an even split. Negative bytes allow no cut.
func thinnest(at []float64, bytes []int64, n int) []int {
	var out []int
	for k := 1; k < n; k++ {
		best := -1
		for i, b := range bytes {
			if where := at[i+1] * float64(n); b >= 0 && where >= float64(k)-0.5 && where < float64(k)+0.5 && (best < 0 || b < bytes[best]) {
				best = i
			}
		}
		if best >= 0 {
			out = append(out, best)
		}
	}
	return out
}
