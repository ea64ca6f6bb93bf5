package sim

import (
	"fmt"

	"inferplan/policy"
	"inferplan/sim/kernel"
)

// searchWork bounds the work of a search if the configuration does not.
const searchWork = 1 << 20

// policySearch is the search of a re-plan, by its tag.
type policySearch struct {
	resultEntry kernel.Handle // agenda entry of its result; None if no search is under way
	result      []int32
}

// replan carries out the policy's action to search for a better plan of its own. The search runs at once, with
// bounded work, and the policy hears of its result after the time that the search takes. It replaces an earlier
// search of the tag that has not been told.
func (l *loop) replan(tag int32) {
	if l.searcher == nil || tag < 0 {
		l.failRun(fmt.Errorf("the policy asks for re-plan %d and has no search for it", tag))
		return
	}
	for int(tag) >= len(l.searches) {
		l.searches = append(l.searches, policySearch{resultEntry: kernel.NoEvent})
	}

	// Drop the pending result of an earlier search.
	s := &l.searches[tag]
	if s.resultEntry != kernel.NoEvent {
		l.agenda.heap.Remove(s.resultEntry)
	}

	// Search now, and tell the result later.
	work := l.cfg.SearchWork
	if work == 0 {
		work = searchWork
	}
	var workDone int64
	s.result, workDone = l.searcher.Search(l.agenda.now, tag)(l.ctx, work, s.result[:0])
	doneAt := l.agenda.now
	if l.cfg.SearchTime != nil {
		doneAt += l.cfg.SearchTime(workDone)
	}
	s.resultEntry = l.agenda.schedule(doneAt, policy.ReplanResult, int64(tag), agendaEntry{kind: isSearchDone, batch: tag})
}

// tellSearchResult tells the policy the result of a search, once the time that the search takes has passed.
func (l *loop) tellSearchResult(entry *agendaEntry) {
	s := &l.searches[entry.batch]
	s.resultEntry = kernel.NoEvent
	ev := l.beginEvent(policy.ReplanResult)
	ev.Value, ev.List = int64(entry.batch), s.result
	l.tellPolicy()
}
