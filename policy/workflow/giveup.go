package workflow

import "slices"

// givesUp returns true if a request that has just been placed is given up, by the rule of the options, because it will
// end after its deadline.
func (p *placer) givesUp(now int64, q *request) bool {
	switch p.cluster.options.GiveUp {
	case GiveUpNever:
		return false
	case GiveUpHopeless:
		return p.earliestRequestEnd(now, q) > q.deadline
	}
	endsLate := func(id int32) bool { return p.book.tasks[id].endsAt > q.deadline }
	return slices.ContainsFunc(q.revealedTasks, endsLate) || slices.ContainsFunc(q.expectedTasks, endsLate)
}

// earliestRequestEnd returns the earliest possible end in ns of the revealed part of a request: waiting tasks run
// alone on their fastest device and wait for nothing but their inputs. If that is after the deadline, the request
// is hopeless.
func (p *placer) earliestRequestEnd(now int64, q *request) (lastEnd int64) {
	for _, id := range q.revealedTasks {
		k := &p.book.tasks[id]
		if k.earliestEnd = k.endsAt; k.state == taskQueued || k.state == taskUnplaced {
			k.earliestEnd = now
			for _, in := range k.inputs {
				if in >= 0 {
					k.earliestEnd = max(k.earliestEnd, p.book.tasks[in].earliestEnd)
				}
			}
			k.earliestEnd += scaleTime(p.tables.services[k.service].minTaskTime, k.work)
		}
		lastEnd = max(lastEnd, k.earliestEnd)
	}
	return lastEnd
}
