package workflow

import (
	"inferplan/policy"
	"inferplan/policy/predict"
)

// placer gives revealed and expected tasks their devices.
type placement struct {
	*cluster
	batches *batches
	loads   *loads
	table   *predict.Table
	sched   *scheduler
	search  search
	job     job
	seq     int64   // tasks placed so far: the order key of the next one
	list    []int32 // tasks to be placed
	jobAt   []int32 // by task: its index in the job; -1 if it is not in it
	tokens  []int32 // scratch: predicted tokens
	offsets []int32 // scratch: inputs of a task, as indexes in the job
}

// newPlacer returns a placer over the cluster of a batch runner.
func newPlacement(b *batches) *placement {
	c := b.cluster
	p := &placement{cluster: c, batches: b, loads: b.loads}
	p.table = predict.New(c.opt.Prediction)
	p.sched = newScheduler(c.fleet, &c.rows)
	p.search = search{c: c, s: p.sched, width: c.opt.Width, limit: maxSteps}
	return p
}

// placeRevealed places the tasks of a request after a segment was revealed. If the segment was expected, its tasks take
// over the places of the expected ones, unless the options place all waiting tasks anew. It returns false if no device
// can take them.
func (p *placement) react(now int64, req int32, out *policy.Actions) bool {
	q := &p.requests[req]
	if !p.opt.Rebind && p.adopt(now, q, out) {
		return true
	}
	p.forgetAhead(q)
	p.list = p.list[:0]
	for _, id := range q.tasks {
		if k := &p.tasks[id]; k.state == queued && p.opt.Rebind {
			p.unqueue(id)
		}
		if p.tasks[id].state == known {
			p.list = append(p.list, id)
		}
	}
	if p.opt.Predict && (!p.opt.Thrift || p.booked(now) < aheadFull) {
		p.expect(q)
	}
	return p.place(now, out)
}

// placeUnplaced places the unplaced tasks of a request. It returns false if no device can take them.
func (p *placement) resume(now int64, q *request, out *policy.Actions) bool {
	p.forgetAhead(q)
	p.list = p.list[:0]
	for _, id := range q.tasks {
		if p.tasks[id].state == known {
			p.list = append(p.list, id)
		}
	}
	return p.place(now, out)
}

// adoptExpected gives the tasks of the latest segment the places of the tasks that were expected in their stead. It
// returns false, and changes nothing, if other tasks were expected.
func (p *placement) adopt(now int64, q *request, out *policy.Actions) bool {
	n := int(q.segment)
	if n > len(q.ahead) {
		return false
	}

	// Compare the segment with what was expected.
	come := q.tasks[len(q.tasks)-n:]
	for i, id := range come {
		if p.tasks[id].token != p.tasks[q.ahead[i]].token || p.tasks[q.ahead[i]].state != queued {
			return false
		}
	}

	// Take over place, queue position and readers of each expected task.
	for i, id := range come {
		k, e := &p.tasks[id], &p.tasks[q.ahead[i]]
		k.place, k.state, k.key, k.end = e.place, queued, e.key, e.end
		d := &p.devices[k.place]
		d.queue[index(d.queue, q.ahead[i])] = id
		d.dirty = true
		for _, later := range q.ahead[i+1:] {
			if p.tasks[later].from == q.ahead[i] {
				p.tasks[later].from = id
			}
			for j, in := range p.tasks[later].inputs {
				if in == q.ahead[i] {
					p.tasks[later].inputs[j] = id
				}
			}
		}
		e.state = known
		p.release(q.ahead[i])
		p.touchDevice(k.place)
	}
	for _, id := range come {
		p.batches.bind(now, id, out)
	}
	q.ahead = q.ahead[:copy(q.ahead, q.ahead[n:])]
	return true
}

// forgetExpected removes the expected tasks of a request from the queues. Loads that they have caused go on.
func (p *placement) forgetAhead(q *request) {
	for _, id := range q.ahead {
		if p.tasks[id].state == queued {
			p.unqueue(id)
		}
		p.release(id)
	}
	q.ahead = q.ahead[:0]
}

// addExpected adds the tasks that the prediction expects to a request, and to the tasks to be placed.
func (p *placement) expect(q *request) {
	p.tokens = p.table.Ahead(q.cursor, p.opt.Ahead-len(q.tasks), p.tokens[:0])
	for _, token := range p.tokens {
		t := p.table.Token(token)
		id := p.take(-1, -1, t.Service, workOf(t.Work))
		k := &p.tasks[id]
		k.token = token
		for _, back := range t.Inputs {
			in := int32(-1)
			if at := len(q.tasks) + len(q.ahead) - int(back); back > 0 && at >= 0 {
				if in = p.at(q, at); p.tasks[in].state != ended {
					k.pending++
				}
			}
			k.inputs = append(k.inputs, in)
		}
		p.cluster.memos().continues(id, t.Work)
		q.ahead = append(q.ahead, id)
		p.list = append(p.list, id)
	}
}

// taskAt returns the i-th of the revealed and expected tasks of a request.
func (p *placement) at(q *request, i int) int32 {
	if i < len(q.tasks) {
		return q.tasks[i]
	}
	return q.ahead[i-len(q.tasks)]
}

// placeListed gives the tasks in toPlace their devices. It returns false if no device can take one of them.
func (p *placement) place(now int64, out *policy.Actions) bool {
	if len(p.list) == 0 {
		return true
	}

	// A routing decides task by task.
	if p.route != nil {
		for _, id := range p.list {
			to := p.route.Route(p.tasks[id].service)
			if to < 0 {
				return false
			}
			p.put(now, id, to, now, 0, out)
		}
		return true
	}

	// Otherwise the search places them together, as a job.
	p.refresh(now)
	p.makeJob(now)
	x := &p.search
	x.run(now, &p.job)
	if x.best >= never {
		return false
	}
	for _, id := range p.list {
		i := p.jobAt[id]
		p.put(now, id, x.to[i], x.toEnd[i], x.tails[i], out)
	}
	return true
}

// makeJob writes the tasks to be placed into the job, together with the placed tasks that they read.
func (p *placement) makeJob(now int64) {
	// No task is in the job yet.
	p.job.reset()
	for len(p.jobAt) < len(p.tasks) {
		p.jobAt = append(p.jobAt, -1)
	}
	for _, id := range p.list {
		p.jobAt[id] = -1
		for _, in := range p.tasks[id].inputs {
			if in >= 0 {
				p.jobAt[in] = -1
			}
		}
	}

	// Add each task after its inputs.
	for _, id := range p.list {
		// Placed tasks that it reads come first.
		for _, in := range p.tasks[id].inputs {
			if in < 0 || p.jobAt[in] >= 0 {
				continue
			}
			if u := &p.tasks[in]; u.place >= 0 && u.state != known {
				p.jobAt[in] = p.job.fix(u.service, u.place, u.end)
			}
		}

		// Then the task itself, with its inputs as indexes in the job.
		k := &p.tasks[id]
		p.offsets = p.offsets[:0]
		for _, in := range k.inputs {
			at := int32(-1)
			if in >= 0 {
				at = p.jobAt[in]
			}
			p.offsets = append(p.offsets, at)
		}
		p.jobAt[id] = p.job.add(k.service, k.work, p.offsets...)
		if k.from >= 0 {
			p.carry(now, k, &p.job.tasks[p.jobAt[id]])
		}
	}
}

// setJobState writes into a task of the job where the session state is that it continues.
func (p *placement) carry(now int64, k *task, j *jobTask) {
	u := &p.tasks[k.from]
	if j.price = u.memo.price; u.state == known && p.opt.Keep != None {
		j.from = p.jobAt[k.from]
		return
	}
	j.home, j.homeAt = p.cluster.memos().home(k), now
	if u.state != ended {
		j.homeAt = max(now, u.end)
	}
}

// assignPlace puts a task into the queue of a place. minRemaining is the least time from its end to that of its request.
func (p *placement) put(now int64, id, place int32, end, behind int64, out *policy.Actions) {
	k := &p.tasks[id]
	k.place, k.end, k.state, k.coming = place, end, queued, false
	p.seq++
	switch {
	case p.opt.Rank != nil:
		k.key = p.opt.Rank(p.candidate(now, k, behind))
	case !p.opt.ByDeadline:
		k.key = p.seq
	case k.req < 0:
		k.key = never
	default:
		k.key = p.requests[k.req].deadline - behind
	}
	p.devices[place].enqueue(p.tasks, id)
	p.touchDevice(place)
	if k.slot >= 0 {
		p.batches.bind(now, id, out)
	}
}
