package workflow

import "slices"

// givesUp returns true if a request that has just been placed is given up, by the rule of the options, because it will
// end after its deadline.
func (p *placement) late(now int64, q *request) bool {
	switch p.opt.GiveUp {
	case Never:
		return false
	case Hopeless:
		return p.soonest(now, q) > q.deadline
	}
	ends := func(id int32) bool { return p.tasks[id].end > q.deadline }
	return slices.ContainsFunc(q.tasks, ends) || slices.ContainsFunc(q.ahead, ends)
}

// earliestRequestEnd returns the earliest possible end of the revealed part of a request: waiting tasks run in batches
// of one and wait for nothing but their inputs.
func (p *placement) soonest(now int64, q *request) (last int64) {
	for _, id := range q.tasks {
		k := &p.tasks[id]
		if k.soonest = k.end; k.state == queued || k.state == known {
			k.soonest = now
			for _, in := range k.inputs {
				if in >= 0 {
					k.soonest = max(k.soonest, p.tasks[in].soonest)
				}
			}
			k.soonest += scaled(p.fleet.services[k.service].least, k.work)
		}
		last = max(last, k.soonest)
	}
	return last
}
