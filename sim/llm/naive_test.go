package llm

import (
	"cmp"
	"slices"
	"time"
)

// naiveInstance is the same instance, with every sequence looked at in every iteration and
// no cache of prefixes: what the sums of Instance are held against.
type naiveInstance struct {
	o         Options
	m         Model
	waiting   []*naiveSequence
	running   []*naiveSequence // in the order of admission
	swapDelay time.Duration
	preempted int64
	maxUsed   int64
}

type naiveSequence struct {
	id                                                int
	r                                                 Request
	generated, contextNeeded, contextDone, heldTokens int32
	rank                                              int32
	inHostMemory, started                             bool
	chunk                                             int32
}

func (n *naiveInstance) blocksFor(tokens int32) int64 {
	return (int64(tokens) + int64(n.o.BlockTokens) - 1) / int64(n.o.BlockTokens)
}

func (n *naiveInstance) blocksOf(q *naiveSequence) int64 {
	switch {
	case n.o.ReserveAnswer:
		return n.blocksFor(q.r.Prompt + q.r.Output)
	case q.contextDone < q.contextNeeded:
		return n.blocksFor(q.contextNeeded)
	}
	return n.blocksFor(q.heldTokens)
}

func (n *naiveInstance) usedBlocks() (sum int64) {
	for _, q := range n.running {
		sum += n.blocksOf(q)
	}
	return sum
}

func (n *naiveInstance) sortWaiting() {
	slices.SortStableFunc(n.waiting, func(a, b *naiveSequence) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.id, b.id)) })
}

func (n *naiveInstance) swapTokens(tokens int32, hidden float64) {
	if n.o.SwapBytesPerSecond > 0 {
		n.swapDelay += time.Duration(float64(int64(tokens)*n.m.TokenBytes) / n.o.SwapBytesPerSecond * (1 - hidden) * 1e9)
	}
}

// preempt has the last one admitted, or the least urgent, wait again.
func (n *naiveInstance) preempt() {
	victim := 0
	for i, q := range n.running {
		if q.rank >= n.running[victim].rank {
			victim = i
		}
	}
	q := n.running[victim]
	n.running = slices.Delete(n.running, victim, victim+1)
	if n.o.SwapOut && q.contextDone == q.contextNeeded {
		q.inHostMemory = true
		n.swapTokens(q.heldTokens, n.o.HiddenShare)
	}
	q.contextNeeded, q.contextDone, q.heldTokens = q.r.Prompt+q.generated, 0, 0
	n.waiting = append(n.waiting, q)
	n.sortWaiting()
	n.preempted++
}

// serveAll does what ServeAll does.
func (n *naiveInstance) serveAll(requests []Request) []Outcome {
	total := n.m.KVTokens / int64(n.o.BlockTokens)
	out := make([]Outcome, len(requests))
	now, next := time.Duration(0), 0
	for {
		for ; next < len(requests) && requests[next].ArrivedAt <= now; next++ {
			q := &naiveSequence{id: next, r: requests[next], contextNeeded: requests[next].Prompt}
			if n.o.ByPriority {
				q.rank = requests[next].Priority
			}
			n.waiting = append(n.waiting, q)
		}
		n.sortWaiting()
		left := n.preempted
		for !n.o.ReserveAnswer { // every decoding sequence writes a token
			need := int64(0)
			for _, q := range n.running {
				if q.contextDone == q.contextNeeded {
					need += n.blocksFor(q.heldTokens+1) - n.blocksFor(q.heldTokens)
				}
			}
			if n.usedBlocks()+need <= total {
				break
			}
			n.preempt()
		}
		took, ok := n.iterate(total, n.preempted == left, now, out)
		if !ok {
			if next == len(requests) {
				return out
			}
			now = requests[next].ArrivedAt
			continue
		}
		now += took
		n.endIteration(now, out)
	}
}

func (n *naiveInstance) iterate(total int64, room bool, now time.Duration, out []Outcome) (time.Duration, bool) {
	work, budget := n.work(), n.o.TokenBudget
	budget -= work.DecodingSequences
	give := func(q *naiveSequence) {
		q.chunk = max(0, min(q.contextNeeded-q.contextDone, budget))
		budget -= q.chunk
		if q.chunk > 0 {
			work.PrefillSequences++
			work.PromptTokens += q.chunk
			work.AttentionPairs += float64(q.chunk) * (float64(q.contextDone) + float64(q.chunk)/2)
		}
	}
	for _, q := range n.running {
		if q.contextDone < q.contextNeeded {
			give(q)
		}
	}
	grown := int64(0)
	for _, q := range n.running {
		if q.contextDone == q.contextNeeded && !n.o.ReserveAnswer {
			grown += n.blocksFor(q.heldTokens+1) - n.blocksFor(q.heldTokens)
		}
	}
	for room && budget > 0 && len(n.waiting) > 0 && len(n.running) < int(n.m.MaxSequences) {
		q := n.waiting[0]
		if n.usedBlocks()+grown+n.blocksOf(q) > total {
			break
		}
		n.waiting = n.waiting[1:]
		if q.inHostMemory {
			q.contextDone, q.inHostMemory = q.contextNeeded-1, false
			n.swapTokens(q.contextNeeded, 0)
		}
		n.running = append(n.running, q)
		if !q.started {
			q.started = true
			out[q.id].FirstIteration = now
		}
		give(q)
	}
	n.maxUsed = max(n.maxUsed, n.usedBlocks()+grown)
	if len(n.running) == 0 {
		return 0, false
	}
	took := n.m.Iteration.Duration(work) + n.swapDelay
	n.swapDelay = 0
	return took, true
}

func (n *naiveInstance) endIteration(now time.Duration, out []Outcome) {
	for _, q := range slices.Clone(n.running) {
		switch {
		case q.contextDone == q.contextNeeded: // decodes
			q.heldTokens++
			q.generated++
		case q.contextDone+q.chunk == q.contextNeeded:
			q.contextDone, q.heldTokens = q.contextNeeded, q.contextNeeded
			if q.generated++; q.generated == 1 {
				out[q.id].FirstToken = now
			}
		default:
			q.contextDone += q.chunk
			continue
		}
		if q.generated == q.r.Output {
			out[q.id].LastToken = now
			n.running = slices.DeleteFunc(n.running, func(o *naiveSequence) bool { return o == q })
		}
	}
}
