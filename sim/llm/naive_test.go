package llm

import (
	"cmp"
	"slices"
	"time"
)

// naive is the same instance, with every sequence looked at in every iteration and
// no cache of prefixes: what the sums of Instance are held against.
type naive struct {
	o       Options
	m       Model
	wait    []*naiveSeq
	run     []*naiveSeq // in the order of admission
	owed    time.Duration
	left    int64
	mostUse int64
}

type naiveSeq struct {
	id                     int
	r                      Request
	made, need, done, held int32
	rank                   int32
	swapped, started       bool
	chunk                  int32
}

func (n *naive) of(tokens int32) int64 {
	return (int64(tokens) + int64(n.o.Block) - 1) / int64(n.o.Block)
}

func (n *naive) blocks(q *naiveSeq) int64 {
	switch {
	case n.o.Reserve:
		return n.of(q.r.Prompt + q.r.Output)
	case q.done < q.need:
		return n.of(q.need)
	}
	return n.of(q.held)
}

func (n *naive) used() (sum int64) {
	for _, q := range n.run {
		sum += n.blocks(q)
	}
	return sum
}

func (n *naive) queue() {
	slices.SortStableFunc(n.wait, func(a, b *naiveSeq) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.id, b.id)) })
}

func (n *naive) swap(tokens int32, hidden float64) {
	if n.o.SwapRate > 0 {
		n.owed += time.Duration(float64(int64(tokens)*n.m.KVBytes) / n.o.SwapRate * (1 - hidden) * 1e9)
	}
}

// evict has the last one admitted, or the least urgent, wait again.
func (n *naive) evict() {
	victim := 0
	for i, q := range n.run {
		if q.rank >= n.run[victim].rank {
			victim = i
		}
	}
	q := n.run[victim]
	n.run = slices.Delete(n.run, victim, victim+1)
	if n.o.Swap && q.done == q.need {
		q.swapped = true
		n.swap(q.held, n.o.Hidden)
	}
	q.need, q.done, q.held = q.r.Prompt+q.made, 0, 0
	n.wait = append(n.wait, q)
	n.queue()
	n.left++
}

// serve is Serve.
func (n *naive) serve(requests []Request) []Outcome {
	total := n.m.KV / int64(n.o.Block)
	out := make([]Outcome, len(requests))
	now, next := time.Duration(0), 0
	for {
		for ; next < len(requests) && requests[next].At <= now; next++ {
			q := &naiveSeq{id: next, r: requests[next], need: requests[next].Prompt}
			if n.o.Priority {
				q.rank = requests[next].Priority
			}
			n.wait = append(n.wait, q)
		}
		n.queue()
		left := n.left
		for !n.o.Reserve { // every decoding sequence writes a token
			need := int64(0)
			for _, q := range n.run {
				if q.done == q.need {
					need += n.of(q.held+1) - n.of(q.held)
				}
			}
			if n.used()+need <= total {
				break
			}
			n.evict()
		}
		took, ok := n.iterate(total, n.left == left, now, out)
		if !ok {
			if next == len(requests) {
				return out
			}
			now = requests[next].At
			continue
		}
		now += took
		n.end(now, out)
	}
}

func (n *naive) iterate(total int64, room bool, now time.Duration, out []Outcome) (time.Duration, bool) {
	work, budget := n.work(), n.o.Budget
	budget -= work.Decoding
	give := func(q *naiveSeq) {
		q.chunk = max(0, min(q.need-q.done, budget))
		budget -= q.chunk
		if q.chunk > 0 {
			work.Prefill++
			work.Prompt += q.chunk
			work.Pairs += float64(q.chunk) * (float64(q.done) + float64(q.chunk)/2)
		}
	}
	for _, q := range n.run {
		if q.done < q.need {
			give(q)
		}
	}
	grown := int64(0)
	for _, q := range n.run {
		if q.done == q.need && !n.o.Reserve {
			grown += n.of(q.held+1) - n.of(q.held)
		}
	}
	for room && budget > 0 && len(n.wait) > 0 && len(n.run) < int(n.m.Sequences) {
		q := n.wait[0]
		if n.used()+grown+n.blocks(q) > total {
			break
		}
		n.wait = n.wait[1:]
		if q.swapped {
			q.done, q.swapped = q.need-1, false
			n.swap(q.need, 0)
		}
		n.run = append(n.run, q)
		if !q.started {
			q.started = true
			out[q.id].Start = now
		}
		give(q)
	}
	n.mostUse = max(n.mostUse, n.used()+grown)
	if len(n.run) == 0 {
		return 0, false
	}
	took := n.m.Iteration.Time(work) + n.owed
	n.owed = 0
	return took, true
}

func (n *naive) end(now time.Duration, out []Outcome) {
	for _, q := range slices.Clone(n.run) {
		switch {
		case q.done == q.need: // decodes
			q.held++
			q.made++
		case q.done+q.chunk == q.need:
			q.done, q.held = q.need, q.need
			if q.made++; q.made == 1 {
				out[q.id].First = now
			}
		default:
			q.done += q.chunk
			continue
		}
		if q.made == q.r.Output {
			out[q.id].End = now
			n.run = slices.DeleteFunc(n.run, func(o *naiveSeq) bool { return o == q })
		}
	}
}
