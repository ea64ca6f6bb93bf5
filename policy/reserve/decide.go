package reserve

import (
	"math"
	"time"

	"inferplan/policy"
	"inferplan/policy/waiting"
)

// decide is Algorithm 1 for one model: it serves, drops or keeps waiting the head of the queue, until there is
// nothing more to do now.
func (p *Policy) decide(m int32, now time.Duration, out *policy.Actions) {
	mo := &p.models[m]
	mo.wake, mo.held = never, false
	dispatched := false
	p.gentle = false
	for mo.queue.Len > 0 {
		head := mo.queue.At(0)

		// Check without a search whether the head waits on as before.
		if p.waitsOn(m, now) {
			break
		}

		// Choose the pipeline that waits least.
		best := p.choose(m, now)
		if best == nil {
			if now < head.Deadline {
				mo.wake = head.Deadline // until then a device may come back
				break
			}
			p.drop(m, mo.queue.Pop().Req, policy.ReasonWorkerLost, out)
			continue
		}

		// Find the largest batch in time: on that pipeline, on another one, or without the guard.
		found := p.fit(best, head, now)
		if found == nil {
			found = p.elsewhere(m, best.pipeline, head, now)
		}
		if found == nil && head.Looked && p.guarded() {
			found = p.spendGuard(m, head, now)
		}

		// Drop the head if there is none.
		if found == nil || p.hopeless(found, head) {
			p.shed(m, out)
			p.gentle = false
			continue
		}

		// If fewer requests wait than the batch takes, decide whether to wait for more, and until when.
		head.Looked = true
		if int32(mo.queue.Len) < found.batch {
			at := p.lastMoment(found, mo, now)
			mo.wake = at - p.early(found.pipeline, min(int32(mo.queue.Len)+1, found.batch))
			switch {
			case mo.wake <= now:
				// The wake came, early by the guard's wakeLead: the waiting requests go now.
				p.probe(found.pipeline, int32(mo.queue.Len), now, found)
				if found.finish > p.limit(head.Deadline, found.pipeline, found.batch) {
					mo.wake = at
				} else {
					mo.wake = never
				}

			// Wait for a fuller batch, as in the paper.
			case !p.opt.Eager:
				p.remember(m, found)

			// Everything is free: send the waiting requests.
			case p.idle(found.pipeline, mo, head, now):
				found, mo.wake = &p.retry, never

			// Wait until a device is free.
			default:
				p.remember(m, &p.retry)
				mo.held = len(mo.shares) > 0 || p.retry.hold > 0
				if wait := p.retry.wait - p.ahead(mo); wait > 0 {
					mo.wake = min(mo.wake, now+wait)
				}
			}
			if mo.wake != never {
				break
			}
		}

		// With sharing models, wait until shortly before the device becomes free.
		if start := found.hops[0].Start; p.opt.Eager && len(mo.shares) > 0 && start > now+p.opt.Ahead {
			// Then the most urgent head is served, in the batch that waits by then.
			mo.wake, mo.held = start-p.opt.Ahead, true
			break
		}

		// Wait for work that must go first, or for a device with fewer reservations.
		if found.hold > 0 {
			mo.wake, mo.held = now+found.hold, true
			break
		}
		if p.deep(found) {
			mo.held = true // until some work has ended there
			p.shedLast(m, found, out)
			break
		}

		// Dispatch, unless a more urgent model goes first.
		dispatched, mo.waits = true, mo.waits[:0]
		if p.yield(m, found, now, out) {
			continue
		}
		// If the path moves reservations that may not move, look for one that moves none.
		p.gentle = !p.dispatch(m, found, now, out)
	}

	// Set the wake, and let sharing models decide again after a dispatch.
	p.arm(m, mo.wake, out)
	if dispatched {
		for _, o := range mo.shares {
			if p.models[o].queue.Len > 0 {
				p.again(o)
			}
		}
	}
}

// maxDepth is the most reservations on a device. Work that deviates from its plan moves everything reserved behind
// it, so that with an SLO of thousands of service times every event of an overload would cost thousands of steps.
// A decision about so late a start is also better made later. Plans whose SLO is a few times the latency stay far
// below the limit.
const maxDepth = 64

// atMaxDepth reports whether some device of a path has so many reservations that no more are to be added yet.
func (f *finder) deep(pa *path) bool {
	for i := range pa.hops {
		if f.tl.depths[pa.hops[i].Device] >= f.maxDepth {
			return true
		}
	}
	return false
}

// dropHopelessTail drops requests from the end of a queue whose head waits for devices at maxDepth: those that
// could not be in time even if the model had all of its devices at full rate from the head on. So their clients
// know earlier.
func (p *Policy) shedLast(m int32, head *path, out *policy.Actions) {
	q := &p.models[m].queue
	for q.Len > 1 {
		soonest := head.finish + time.Duration(max(int32(q.Len)-head.batch, 0))*p.pace[m]
		if soonest <= p.limit(q.At(q.Len-1).Deadline, head.pipeline, head.batch) {
			return
		}
		p.drop(m, q.PopLast().Req, policy.ReasonDeadline, out)
	}
}

// rememberPath stores the devices of the path that a head waits for, if keepsWaiting can follow that path.
func (c *chooser) remember(m int32, pa *path) {
	mo := &c.models[m]
	mo.waits = mo.waits[:0]
	if first, last := c.t.PipelinesOf(m); last != first+1 || !c.monotone[first] || c.sameNode || c.opt.Eager && (len(mo.shares) > 0 || pa.hold > 0) {
		return
	}
	for i := range pa.hops {
		mo.waits = append(mo.waits, pa.hops[i].Device)
	}
}

// keepsWaiting reports, without a search, that a head continues to wait for a fuller batch: its path would still
// do for one request more and, with SendWhenFree, the waiting requests could not go through it without waiting. It
// sets the next wake. It returns false also if it cannot know, and a search has to decide.
func (c *chooser) waitsOn(m int32, now time.Duration) bool {
	mo := &c.models[m]
	if len(mo.waits) == 0 {
		return false
	}
	head, pl := mo.queue.At(0), c.t.Models[m].FirstPipeline
	more := int32(mo.queue.Len) + 1
	if !head.Looked || more > c.t.Pipelines[pl].Batch || c.along(pl, more, mo.waits, now) > c.limit(head.Deadline, pl, more) {
		return false
	}

	// Wake at the last moment, or when the path is free.
	wake := c.limit(head.Deadline, pl, more) - c.least[pl][more-1] + 1 - c.early(pl, more)
	if c.opt.Eager {
		wake = min(wake, c.along(pl, more-1, mo.waits, now)-c.least[pl][more-2])
	}
	if wake <= now {
		return false
	}
	mo.wake = wake
	return true
}

// finishAlong returns the completion of a batch on given devices, behind everything that is reserved there. If the
// batch would have to stand in front of other work, it returns farFuture.
func (f *finder) along(pipeline, batch int32, devices []int32, now time.Duration) time.Duration {
	first := f.t.Pipelines[pipeline].FirstStage
	t := now
	for h, d := range devices {
		st := &f.t.Stages[first+int32(h)]

		// Add the transfer, behind the last reservation of both links.
		if h > 0 && st.Xfer != nil && st.Xfer[batch-1] > 0 {
			for _, link := range [2]int32{f.uplinks[devices[h-1]], f.downlinks[d]} {
				if link < 0 {
					continue
				}
				if t < f.tl.spans[link].lastReady {
					return never
				}
				t = max(t, f.tl.spans[link].tail)
			}
			t += st.Xfer[batch-1]
		}

		// Add the run, behind the last reservation of the device.
		sp := &f.tl.spans[d]
		if t <= sp.lastReady || sp.tail < now && sp.head >= 0 {
			return never
		}
		t = max(t, sp.tail) + st.Infer[batch-1]
	}
	return t
}

// canGoAtOnce reports whether the waiting requests could go through a pipeline without waiting for a device or a
// link, and leaves their path in retryPath. Then there is no reason to wait: a fuller batch only costs latency,
// and on a shared device another model may take the place that the wait counted on. Under load some stage is busy,
// and batches fill meanwhile. That the first stage is free is not enough: small batches would reduce the rate of a
// later stage that limits the pipeline.
func (c *chooser) idle(pipeline int32, mo *model, head *waiting.Request, now time.Duration) bool {
	c.probe(pipeline, int32(mo.queue.Len), now, &c.retry)
	return c.retry.wait <= c.ahead(mo) && c.retry.hold == 0 && c.retry.finish <= c.limit(head.Deadline, pipeline, c.retry.batch)
}

// decideAhead returns how long before a device is free a model may be sent to it.
func (c *chooser) ahead(mo *model) time.Duration {
	if len(mo.shares) == 0 {
		return 0
	}
	return c.opt.Ahead
}

// choosePipeline returns the path of the pipeline that waits least at its planned batch. If no pipeline has a
// device left at every stage, it returns nil.
//
// A model with one pipeline has no choice to make. After its first look its head is sought a path at once with the
// largest batch that matters now: one request more than wait. That it could be in time in a larger batch would not
// change the decision.
func (c *chooser) choose(m int32, now time.Duration) *path {
	first, last := c.t.PipelinesOf(m)
	best, other := &c.paths[0], &c.paths[1]

	// With a single pipeline, probe that one.
	if q := &c.models[m].queue; last == first+1 && c.monotone[first] && (!c.opt.Shed || q.At(0).Looked) {
		c.probe(first, min(c.t.Pipelines[first].Batch, int32(q.Len)+1), now, best)
		if best.finish >= never {
			return nil
		}
		return best
	}

	// Otherwise compare all pipelines, up to one that does not wait at all.
	best.wait = never
	for pl := first; pl < last; pl++ {
		c.probe(pl, c.t.Pipelines[pl].Batch, now, other)
		if other.wait < best.wait {
			best, other = other, best
			if best.wait <= 0 {
				break
			}
		}
	}
	if best.wait >= never {
		return nil
	}
	return best
}

// hasGuard reports whether the options keep a guard.
func (c *chooser) guarded() bool { return c.opt.GuardTime > 0 || c.opt.GuardShare > 0 }

// spendGuard looks for a path without the guard, for a head that was to be served in time and no longer can: on a
// real clock a wake comes late, and the guard covers that. The batch is no larger than the queue, so that it
// goes now.
func (c *chooser) spendGuard(m int32, head *waiting.Request, now time.Duration) *path {
	c.spending = true
	defer func() { c.spending = false }()
	first, last := c.t.PipelinesOf(m)
	for pl := first; pl < last; pl++ {
		b := min(c.t.Pipelines[pl].Batch, int32(c.models[m].queue.Len))
		for b > 0 && now+c.least[pl][b-1] > head.Deadline {
			b--
		}
		if b == 0 {
			continue
		}
		c.probe(pl, b, now, &c.retry)
		if found := c.fit(&c.retry, head, now); found != nil {
			return found
		}
	}
	return nil
}

// latestFinish returns the latest completion of a batch that a deadline allows.
func (c *chooser) limit(deadline time.Duration, pipeline, batch int32) time.Duration {
	if c.spending {
		return deadline
	}
	return deadline - c.guard[pipeline][batch-1]
}

// wakeLead returns how long before its last moment a head that waits for a batch is looked at again.
func (c *chooser) early(pipeline, batch int32) time.Duration {
	return min(c.opt.GuardTime, c.guard[pipeline][batch-1])
}

// fitBatch finds the largest batch on a path's pipeline that meets the head's deadline, at most as large as the
// path's. If there is none, it returns nil.
func (c *chooser) fit(pa *path, head *waiting.Request, now time.Duration) *path {
	pl := pa.pipeline
	for {
		if pa.finish <= c.limit(head.Deadline, pl, pa.batch) {
			return pa
		}

		// Skip the batches that would be late even without waiting.
		b := pa.batch - 1
		for b > 0 && now+c.least[pl][b-1] > c.limit(head.Deadline, pl, b) {
			b--
		}
		if b == 0 {
			return nil
		}
		c.probe(pl, b, now, pa)
	}
}

// fitOtherPipeline looks for a batch on the model's other pipelines, if the one that waits least cannot serve the
// head: their stages may be faster.
func (c *chooser) elsewhere(m, but int32, head *waiting.Request, now time.Duration) *path {
	first, last := c.t.PipelinesOf(m)
	for pl := first; pl < last; pl++ {
		b := c.t.Pipelines[pl].Batch
		for b > 0 && now+c.least[pl][b-1] > c.limit(head.Deadline, pl, b) {
			b--
		}
		if pl == but || b == 0 {
			continue
		}
		c.probe(pl, b, now, &c.retry)
		if found := c.fit(&c.retry, head, now); found != nil {
			return found
		}
	}
	return nil
}

// shouldDropHead reports whether a head is to be dropped at its first look, because only a batch well below the
// planned size would still be in time.
func (c *chooser) hopeless(found *path, head *waiting.Request) bool {
	if !c.opt.Shed || head.Looked {
		return false
	}
	planned := c.t.Pipelines[found.pipeline].Batch
	return found.batch < int32(math.Round(0.95*float64(planned)))
}

// dropHead drops the head of a model's queue.
func (p *Policy) shed(m int32, out *policy.Actions) {
	r := p.models[m].queue.Pop()
	reason := policy.ReasonDeadline
	if r.Lost {
		reason = policy.ReasonWorkerLost
	}
	p.drop(m, r.Req, reason, out)
}

// lastMoment returns the time at which a head that waits for a fuller batch must go as it is: just after the time
// from which a batch of one request more would be late. Until then a further arrival could still join. Waiting for
// resources passes as time does, so it is no reason to go earlier.
//
// If a path's work does not depend on its devices, no search is needed: one request more is then in time whenever
// the batch that was found is.
func (c *chooser) lastMoment(found *path, mo *model, now time.Duration) time.Duration {
	deadline, pl := mo.queue.At(0).Deadline, found.pipeline
	more := min(int32(mo.queue.Len)+1, found.batch)
	if c.monotone[pl] && !c.sameNode {
		return c.limit(deadline, pl, more) - c.least[pl][more-1] + 1
	}
	pa := found
	if more < found.batch {
		c.probe(pl, more, now, &c.fuller)
		if c.fuller.finish <= c.limit(deadline, pl, more) {
			pa = &c.fuller
		}
	}
	return now + c.limit(deadline, pl, pa.batch) - pa.finish + pa.wait + 1
}

// dispatch sends the first requests of the queue along a path. If the path moves reservations that it may not
// move, it returns false.
func (p *Policy) dispatch(m int32, pa *path, now time.Duration, out *policy.Actions) bool {
	limit := p.models[m].queue.At(0).Deadline
	if kept := p.limit(limit, pa.pipeline, pa.batch); pa.finish <= kept {
		limit = kept
	}
	slot := p.enter(pa, limit, now)
	if slot < 0 {
		return false
	}
	out.Hops = append(out.Hops, pa.hops...)
	p.batches.Dispatch(&p.models[m].queue, m, pa.pipeline, pa.batch, 0, len(pa.hops), out)
	p.batches.At(slot).Limit = limit
	return true
}

// setWake sets the model's wake, unless the pending one is at the same time.
func (p *Policy) arm(m int32, at time.Duration, out *policy.Actions) {
	mo := &p.models[m]
	if at == mo.armed {
		return
	}
	mo.armed = at
	if at >= never {
		at = -1
	}
	out.List = append(out.List, policy.Action{Kind: policy.Wake, Model: m, Tag: m, At: at})
}
