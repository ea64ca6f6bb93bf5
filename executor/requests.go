package executor

import "inferplan/policy"

func (c *core) arrive(j *job) {
	c.open++
	c.stats.seen(j)
	if c.stopping {
		j.open = 0
		c.refuse(j, policy.ReasonDraining)
		j.release()
		return
	}
	if len(c.reqs)-len(c.freeReqs)+j.n > c.opt.MaxQueue {
		j.open = 0
		c.refuse(j, policy.ReasonQueueFull)
		j.release()
		return
	}
	m := j.model
	c.loop.Tick() // the policy's now is then no earlier than the arrival
	for k := range j.n {
		slot := c.newRequest(j, k)
		j.slots[k] = slot
		m.waiting.Add(1)
	}
	c.answers.arrive(j)
	// The core's hold on the job lasts until its last slot is settled, which is
	// not before the last round of this loop.
	for k, n := 0, j.n; k < n; k++ {
		if j.answered { // a sample before this one was dropped
			c.settle(j.slots[k])
			continue
		}
		c.handle(policy.Event{Kind: policy.Arrival, Model: m.index, Service: m.index, Req: j.slots[k], Task: j.slots[k], Arrived: j.arrived, Deadline: j.deadline})
	}
}

func (c *core) newRequest(j *job, sample int) int32 {
	var slot int32
	if n := len(c.freeReqs); n > 0 {
		slot = c.freeReqs[n-1]
		c.freeReqs = c.freeReqs[:n-1]
	} else {
		slot = int32(len(c.reqs))
		c.reqs = append(c.reqs, request{})
	}
	c.reqs[slot] = request{job: j, sample: int32(sample), batch: -1}
	return slot
}

// settle ends a request slot: the policy no longer names it.
func (c *core) settle(slot int32) {
	q := &c.reqs[slot]
	j := q.job
	if j == nil {
		return
	}
	if q.batch >= 0 {
		j.model.running.Add(-1)
	} else {
		j.model.waiting.Add(-1)
	}
	j.slots[q.sample] = -1
	*q = request{batch: -1}
	c.freeReqs = append(c.freeReqs, slot)
	if j.open--; j.open == 0 {
		j.release()
	}
}

// refuse answers a job with a drop.
func (c *core) refuse(j *job, reason policy.Reason) {
	if j.answered {
		return
	}
	j.outcome, j.reason = dropped, reason
	c.answer(j)
	c.forsake(j)
}

// forsake tells the policy that nobody waits for what is left of a job.
func (c *core) forsake(j *job) {
	if j.open == 0 {
		return
	}
	for _, slot := range j.slots {
		if slot >= 0 {
			c.forsaken = append(c.forsaken, slot)
		}
	}
}

func (c *core) answer(j *job) {
	j.answered = true
	c.open--
	c.stats.answered(j, c.now())
	j.done <- struct{}{}
}

// clientGone: nobody waits for the job any more.
func (c *core) clientGone(j *job) {
	if j.answered {
		return
	}
	c.refuse(j, policy.ReasonCancelled)
}
