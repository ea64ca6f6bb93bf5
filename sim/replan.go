package sim

import (
	"fmt"

	"inferplan/policy"
	"inferplan/sim/kernel"
)

// searchWork bounds the work of a search if the configuration does not.
const searchWork = 1 << 20

// policySearch is a search that the policy has asked for (re-plan), in the list by its tag.
type policySearch struct {
	resultEntry kernel.Handle // agenda entry of its result; None if no search is under way
	result      []int32
}

// replan carries out the policy's action Replan: the policy asks for a search for a better plan, which it numbers by a
// tag. The search runs at once, with bounded work, and the policy hears of its result after the time that the search
// would take (SearchTime of the work done; without it, later in this instant). It replaces an earlier search of the tag
// whose result has not been told. An unknown tag ends the run with an error.
func (l *loop) replan(tag int32) {
	if l.searcher == nil || tag < 0 {
		l.failRun(fmt.Errorf("the policy asks for re-plan %d and has no search for it", tag))
		return
	}
	for int(tag) >= len(l.searches) {
		l.searches = append(l.searches, policySearch{resultEntry: kernel.NoEvent})
	}

	// Drop the pending result of an earlier search.
	search := &l.searches[tag]
	if search.resultEntry != kernel.NoEvent {
		l.agenda.heap.Remove(search.resultEntry)
	}

	// Search now, and tell the result later.
	work := l.cfg.SearchWork
	if work == 0 {
		work = searchWork
	}
	var workDone int64
	search.result, workDone = l.searcher.Search(l.agenda.now, tag)(l.ctx, work, search.result[:0])
	doneAt := l.agenda.now
	if l.cfg.SearchTime != nil {
		doneAt += l.cfg.SearchTime(workDone)
	}
	search.resultEntry = l.agenda.schedule(doneAt, policy.ReplanResult, int64(tag), agendaEntry{kind: searchDoneEntry, subject: tag})
}

// tellSearchResult tells the policy the result of a search, once the time that the search takes has passed.
func (l *loop) tellSearchResult(entry *agendaEntry) {
	search := &l.searches[entry.tag()]
	search.resultEntry = kernel.NoEvent
	ev := l.beginEvent(policy.ReplanResult)
	ev.Value, ev.List = int64(entry.tag()), search.result
	l.tellPolicy()
}
