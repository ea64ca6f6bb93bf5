package text

import (
	"cmp"
	"maps"
	"slices"
	"sync"
)

// agentRuns holds the runs of an agent's process, and the updates about them that were not sent yet.
type agentRuns struct {
	updatesPending chan struct{} // has an element while updates wait

	mu             sync.Mutex
	term           uint64
	byRequest      map[string]*agentRun // by id: the last run that was ordered of a request
	serving        map[string]*agentRun // by id: the run that has the request now
	byNumber       map[uint64]*agentRun // runs of this term; nil if the run has ended
	pendingUpdates map[uint64]RunUpdate // by number, of this term
}

// newAgentRuns returns an empty table of runs: the attempts to answer requests that this process has under way.
func newAgentRuns() *agentRuns {
	return &agentRuns{
		updatesPending: make(chan struct{}, 1),
		byRequest:      map[string]*agentRun{}, serving: map[string]*agentRun{}, byNumber: map[uint64]*agentRun{}, pendingUpdates: map[uint64]RunUpdate{},
	}
}

// currentTerm returns the term whose orders count.
func (t *agentRuns) currentTerm() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.term
}

// startTerm makes a later term (period in which one process plans, counted) the current one and returns true. All runs
// of the earlier term are cancelled, because the process that plans now orders them again, with numbers of its own. If
// the term is not later, it changes nothing and returns false.
func (t *agentRuns) startTerm(term uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if term <= t.term {
		return false
	}
	t.term = term
	for _, r := range t.byRequest {
		r.cancel(errTakenOver)
	}
	clear(t.byNumber)
	clear(t.pendingUpdates)
	return true
}

// maxKnownRuns bounds the numbers of ended runs that are known, to recognise orders that are sent again. When there
// are more, only the later half is kept. An order is repeated within seconds.
const maxKnownRuns = 1 << 16

// add adds a run under the number of its order, and returns the last run of the same request if that is under way, so
// that the caller ends it first. If the number is there already (the order was sent again), it adds nothing, and isKnown
// is true. Numbers of ended runs stay, with a nil run; when there are more than maxKnownRuns, the older half is
// forgotten.
func (t *agentRuns) add(r *agentRun) (earlier *agentRun, isKnown bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, isKnown = t.byNumber[r.number]
	earlier = t.byRequest[r.id]
	if !isKnown {
		t.byNumber[r.number], t.byRequest[r.id] = r, r
	}
	if len(t.byNumber) > maxKnownRuns {
		maps.DeleteFunc(t.byNumber, func(n uint64, known *agentRun) bool { return known == nil && n+maxKnownRuns/2 < r.number })
	}
	return earlier, isKnown
}

// remove forgets a run that has ended, but remembers its number, so that the same order, sent again, does not start
// it a second time.
func (t *agentRuns) remove(r *agentRun) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.term == t.term { // otherwise the number belongs to another run
		t.byNumber[r.number] = nil
	}
	delete(t.serving, r.id)
	if t.byRequest[r.id] == r {
		delete(t.byRequest, r.id)
	}
}

// setServing says that a run has its request now. A later run of the request waits for the end of this one.
func (t *agentRuns) setServing(r *agentRun) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.serving[r.id] = r
}

// servingRun returns the run that has a request. If there is none, it returns nil.
func (t *agentRuns) servingRun(id string) *agentRun {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.serving[id]
}

// find returns the run with a number of this term. If it has ended or is not known, it returns nil.
func (t *agentRuns) find(number uint64) *agentRun {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byNumber[number]
}

// runsOf returns the runs (requests being answered) of an instance that have not ended, in no order.
func (t *agentRuns) runsOf(instance *servedInstance) []*agentRun {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []*agentRun
	for _, r := range t.byRequest {
		if r.instance == instance {
			out = append(out, r)
		}
	}
	return out
}

// count returns how many runs (requests being answered) an instance has under way.
func (t *agentRuns) count(instance *servedInstance) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.byRequest {
		if r.instance == instance {
			n++
		}
	}
	return n
}

// queueUpdate adds an update n of a run (its progress or its end) to those to be sent to the process that plans, in
// place of an earlier one of the same run that was not sent yet, and wakes the sender. Updates of an earlier term
// (period in which one process plans) are dropped: nobody waits for them.
func (t *agentRuns) queueUpdate(term uint64, n RunUpdate) {
	t.mu.Lock()
	if term == t.term {
		t.pendingUpdates[n.Number] = n
	}
	t.mu.Unlock()
	select {
	case t.updatesPending <- struct{}{}:
	default:
	}
}

// pendingMessage returns a message with all pending updates, in the order of their numbers.
func (t *agentRuns) pendingMessage() AgentMessage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return AgentMessage{Term: t.term, Runs: slices.SortedFunc(maps.Values(t.pendingUpdates), func(a, b RunUpdate) int { return cmp.Compare(a.Number, b.Number) })}
}

// confirmUpdates removes the updates of a message that the planner has received, unless later ones of the same runs
// have replaced them. It reports whether some remain to be sent.
func (t *agentRuns) confirmUpdates(message *AgentMessage) (hasRemaining bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range message.Runs {
		if latest, ok := t.pendingUpdates[r.Number]; ok && latest == r {
			delete(t.pendingUpdates, r.Number)
		}
	}
	return len(t.pendingUpdates) > 0
}
