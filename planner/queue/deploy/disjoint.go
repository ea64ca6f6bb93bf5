package deploy

import (
	"cmp"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/sim/llm"
)

// Span is the time from a request's arrival to its deadline, and the iterations that
// it takes part in: one for each token of its answer.
type Span struct {
	From, To   time.Duration
	Iterations int32
}

// Disjoint marks requests of one model whose spans do not overlap, with the most
// iterations in all. No iteration serves two of them in time, so their model has at
// least so many.
func Disjoint(list []Span) []bool {
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

// EachIteration is what an iteration takes at least beside what LeastWork counts per
// token, in seconds: LeastWork has one for every sequences tokens.
func EachIteration(it *formats.Iteration) float64 {
	return max(0, it.BaseNS+it.CPUNS-hidden(it)*it.HingeTokens) / 1e9
}

// hidden is the price of a token of a prompt at which more iterations do not pay, or
// its own.
func hidden(it *formats.Iteration) float64 {
	if it.HingeTokens > 0 {
		return min(it.PromptNS, (it.BaseNS+it.CPUNS)/it.HingeTokens)
	}
	return it.PromptNS
}

// decoded is the iterations that LeastWork counts for a request.
func decoded(sequences int, r llm.Request) float64 {
	return float64(max(r.Output-1, 0)) / float64(max(sequences, 1))
}

// Apart is LeastWork where a model's iterations are counted by requests with disjoint
// spans, of which this may be one.
func Apart(it *formats.Iteration, sequences int, r llm.Request, disjoint bool) float64 {
	work := LeastWork(it, sequences, r, false) - EachIteration(it)*decoded(sequences, r)
	if disjoint {
		work += EachIteration(it) * float64(r.Output)
	}
	return work
}
