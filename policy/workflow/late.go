package workflow

import "slices"

// late tells whether a request that has just been placed is given up: it will end
// behind its deadline.
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

// soonest is when what is revealed of a request could end: tasks that wait, in batches
// of one that wait for nothing but what they read.
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
