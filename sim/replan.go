package sim

import (
	"fmt"

	"inferplan/policy"
	"inferplan/sim/kernel"
)

// searchWork bounds the work of a search if the configuration does not.
const searchWork = 1 << 20

// policySearch is the search of a re-plan, by its tag.
type search struct {
	pending kernel.Handle // agenda entry of its result; None if no search is under way
	result  []int32
}

// replan makes the policy search. The search runs at once, with bounded work, and the policy
// hears of its result after the time that the search takes. It replaces an earlier search of the tag.
func (l *loop) replan(tag int32) {
	if l.searcher == nil || tag < 0 {
		l.fail(fmt.Errorf("the policy asks for re-plan %d and has no search for it", tag))
		return
	}
	for int(tag) >= len(l.searches) {
		l.searches = append(l.searches, search{pending: kernel.None})
	}

	// Drop the pending result of an earlier search.
	s := &l.searches[tag]
	if s.pending != kernel.None {
		l.heap.Remove(s.pending)
	}

	// Search now, and tell the result later.
	work := l.cfg.SearchWork
	if work == 0 {
		work = searchWork
	}
	var worked int64
	s.result, worked = l.searcher.Search(l.now, tag)(l.ctx, work, s.result[:0])
	at := l.now
	if l.cfg.SearchTime != nil {
		at += l.cfg.SearchTime(worked)
	}
	s.pending = l.at(at, policy.ReplanResult, int64(tag), item{what: isSearched, batch: tag})
}

// tellSearchResult tells the policy the result of a search.
func (l *loop) searched(it *item) {
	s := &l.searches[it.batch]
	s.pending = kernel.None
	ev := l.begin(policy.ReplanResult)
	ev.Value, ev.List = int64(it.batch), s.result
	l.tell()
}
