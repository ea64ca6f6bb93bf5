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

// Counting is a way to count the iterations of a model by its requests, so that the
// model has at least their sum.
type Counting uint8

// The ways: no iteration decodes more than so many sequences, reads more context than
// the KV memory holds, or serves two requests with disjoint spans.
const (
	BySequences Counting = iota
	ByContext
	ByDisjoint
	Countings
)

// Iterations are those that a request brings. Of disjoint ones it may be one.
func (c Counting) Iterations(sequences int, kv int64, r llm.Request, disjoint bool) float64 {
	switch c {
	case ByContext:
		return read(r) / float64(max(kv, 1))
	case ByDisjoint:
		if disjoint {
			return float64(r.Output)
		}
		return 0
	}
	return decoded(sequences, r)
}

// read is the context that a request's tokens are decoded over.
func read(r llm.Request) float64 {
	d := float64(max(r.Output-1, 0))
	return d*float64(r.Prompt) + d*(d-1)/2
}

// Part is LeastWork of a request that brings so many iterations. Prompts cost as in
// LeastWork, where iterations hide as much of them as they can, or else nothing, and
// iterations cost all of their base. Both are below every run: an instance takes
// base for each iteration, and the price of what these do not hide.
func Part(it *formats.Iteration, r llm.Request, iterations float64, prompts bool) float64 {
	d, n := float64(max(r.Output-1, 0)), float64(r.Prompt)
	ns, each := (it.SequenceNS+it.CPUSequenceNS)*d+it.ContextNS*read(r)+it.AttentionNS*n*n/2, max(0, it.BaseNS+it.CPUNS)/1e9
	if prompts {
		ns, each = ns+hidden(it)*n, EachIteration(it)
	}
	return each*iterations + max(ns, 0)/1e9
}
