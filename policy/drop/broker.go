package drop

import (
	"time"

	"inferplan/policy"
	"inferplan/policy/flow"
)

// send gives a task to a worker of its module.
func (p *Policy) send(now time.Duration, m int32, e flow.Entry, out *policy.Actions) {
	w := p.fleet.takes(m)
	if w == nil {
		p.drop(e.Req, e.Task, policy.ReasonWorkerLost, out)
		return
	}
	switch {
	case !w.running:
		w.end = now
		if p.enter(now, now, w, &e, out) {
			p.serve(now, w, out)
		}
		return
	case w.waiting() == 0 && w.room():
		if !p.enter(now, max(w.end, now), w, &e, out) {
			return
		}
	case p.order == arrival:
		w.line.push(e)
	default:
		w.queue.push(e)
		w.proof.add(e.Key)
	}
	p.fleet.moved(w)
}

// enter puts a task into a worker's forming batch, which starts at start, if it
// passes the test; else its request is dropped.
func (p *Policy) enter(now, start time.Duration, w *worker, e *flow.Entry, out *policy.Actions) bool {
	t := &p.book.Tasks[e.Task]
	if !p.judge.keep(now, start, w, e, t) {
		p.drop(e.Req, e.Task, policy.ReasonDeadline, out)
		return false
	}
	p.admit(now, start, w, e, t)
	return true
}

// admit puts a task into the forming batch, whatever the test says.
func (p *Policy) admit(now, start time.Duration, w *worker, e *flow.Entry, t *flow.Task) {
	w.forming = append(w.forming, *e)
	queued, waits := now-t.Revealed, start-now
	p.plan.admitted(w.module, now, queued, waits)
}

// serve starts the forming batch of a worker that is free and collects the next.
func (p *Policy) serve(now time.Duration, w *worker, out *policy.Actions) {
	for {
		w.forget(&p.book)
		if len(w.forming) > 0 {
			break
		}
		w.end = now
		if w.waiting() == 0 {
			p.fleet.moved(w)
			if !w.wanted && w.up {
				p.fleet.retire(w, out)
			}
			return
		}
		p.collect(now, now, w, out)
	}
	n := len(w.forming)
	w.current, w.forming = w.forming, w.current[:0]
	w.running, w.end = true, now+w.infer[n-1]
	p.busy++
	first := int32(len(out.Tasks))
	for i := range w.current {
		out.Tasks = append(out.Tasks, w.current[i].Task)
	}
	if p.test == worst {
		p.plan.ended(&p.book, w, now)
	}
	out.List = append(out.List, policy.Action{Kind: policy.Dispatch, Pipeline: w.pipeline, Model: -1, Batch: w.device, Size: int32(n), Device: w.device,
		TaskFirst: first, HopFirst: int32(len(out.Hops)), HopCount: 1})
	out.Hops = append(out.Hops, policy.Hop{Stage: w.stage, Device: w.device, Uplink: -1, Downlink: -1, XferStart: now, XferEnd: now, Start: now, End: w.end})
	if w.waiting() > 0 {
		p.collect(now, w.end, w, out)
	}
	p.fleet.moved(w)
}

// collect fills the forming batch, which starts at start, from the queue.
func (p *Policy) collect(now, start time.Duration, w *worker, out *policy.Actions) {
	switch {
	case p.test == window:
		p.slide(now, start, w, out)
		return
	case p.order == arrival:
		for w.line.len() > 0 && w.room() {
			if e := w.line.pop(); p.book.Wanted(&e) {
				p.enter(now, start, w, &e, out)
			}
		}
		return
	}
	high := p.judge.high(w, start)
	for w.queue.len() > 0 && w.room() {
		var e flow.Entry
		if high {
			e = w.queue.popMax()
		} else {
			e = w.queue.popMin()
		}
		if p.book.Wanted(&e) {
			p.enter(now, start, w, &e, out)
		}
	}
	switch {
	case high:
		w.proof.void()
		p.purge(start, w, out)
	case !w.room():
		w.proof.from += w.full
	default:
		w.proof.void()
	}
}

// purge drops what could not be in time even alone in every batch to come:
// under HBF it would wait until the order changes.
func (p *Policy) purge(start time.Duration, w *worker, out *policy.Actions) {
	for w.queue.len() > 0 {
		e := w.queue.min()
		if p.book.Wanted(e) {
			if !p.judge.hopeless(start, w, e) {
				return
			}
			p.drop(e.Req, e.Task, policy.ReasonDeadline, out)
		}
		w.queue.popMin()
	}
}

// slide finds the first window of the line that fits (Nexus §6.3), and drops
// what stands before it.
func (p *Policy) slide(now, start time.Duration, w *worker, out *policy.Actions) {
	n, first := w.line.len(), 0
	for ; first < n; first++ {
		size := min(int(w.batch), n-first)
		end := start + w.infer[size-1]
		fits := true
		for i := first; i < first+size && fits; i++ {
			e := w.line.at(i)
			r := &p.book.Requests[e.Req]
			fits = !p.book.Wanted(e) || p.judge.fits(end, r, r.Model*p.plan.stride+w.module)
		}
		if fits {
			break
		}
	}
	for range first {
		if e := w.line.pop(); p.book.Wanted(&e) {
			p.drop(e.Req, e.Task, policy.ReasonDeadline, out)
		}
	}
	for w.line.len() > 0 && w.room() {
		if e := w.line.pop(); p.book.Wanted(&e) {
			p.admit(now, start, w, &e, &p.book.Tasks[e.Task])
		}
	}
}
