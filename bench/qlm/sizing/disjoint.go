package sizing

import (
	"cmp"
	"slices"
	"time"

	"inferplan/sim/llm"
)

// span is the time from a request's arrival to its deadline, and the iterations that
// it takes part in: one for each token of its answer.
type span struct {
	From, To   time.Duration
	Iterations int32
}

// disjoint marks requests of one model whose spans do not overlap, with the most
// iterations in all. No iteration serves two of them in time, so their model has at
// least so many.
func disjoint(list []span) []bool {
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(list[a].To, list[b].To) })
	before := make([]int, len(order)) // of those that end before this begins, the number
	best := make([]int64, len(order)+1)
	for k, i := range order {
		before[k], _ = slices.BinarySearchFunc(order[:k], list[i].From, func(o int, from time.Duration) int {
			if list[o].To <= from {
				return -1
			}
			return 1
		})
		best[k+1] = max(best[k], best[before[k]]+int64(list[i].Iterations))
	}
	out := make([]bool, len(list))
	for k := len(order); k > 0; {
		if best[k] == best[k-1] {
			k--
			continue
		}
		out[order[k-1]] = true
		k = before[k-1]
	}
	return out
}

// counting is a way to count the iterations of a model by its requests, so that the
// model has at least their sum.
type counting uint8

// The ways: no iteration decodes more than so many sequences, reads more context than
// the KV memory holds, or serves two requests with disjoint spans.
const (
	bySequences counting = iota
	byContext
	byDisjoint
	countings
)

// iterations are those that a request brings. Of disjoint ones it may be one.
func (c counting) iterations(sequences int, kv int64, r llm.Request, disjoint bool) float64 {
	decodes := float64(max(r.Output-1, 0))
	switch c {
	case byContext: // over which the tokens are decoded
		return (decodes*float64(r.Prompt) + decodes*(decodes-1)/2) / float64(max(kv, 1))
	case byDisjoint:
		if disjoint {
			return float64(r.Output)
		}
		return 0
	}
	return decodes / float64(max(sequences, 1))
}
