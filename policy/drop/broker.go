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
	if !p.keep(now, start, w, e, t) {
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

// keep is the test of a task that could enter a batch that starts at start.
func (p *Policy) keep(now, start time.Duration, w *worker, e *flow.Entry, t *flow.Task) bool {
	r := &p.book.Requests[e.Req]
	at := r.Model*p.plan.stride + w.module
	switch p.test {
	case ahead:
		return start+w.full+p.plan.behind[at] <= r.Deadline
	case window:
		return p.fits(start+w.full, r, at)
	case elapsed:
		if p.toStart {
			now = start
		}
		return now-t.Revealed <= p.plan.parts[at]
	case part, worst:
		return start+w.full-t.Revealed <= p.plan.parts[at]
	}
	return true
}

// fits tells whether an end of a module is in time (Nexus): within the SLO, or
// within the parts of it up to the module.
func (p *Policy) fits(end time.Duration, r *flow.Request, at int32) bool {
	if p.sums {
		return end-r.Arrived <= p.plan.upTo[at]
	}
	return end <= r.Deadline
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
	high := p.high(w, start)
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

// high tells whether the queue is served from the greatest remaining budget.
func (p *Policy) high(w *worker, start time.Duration) bool {
	switch p.order {
	case most:
		return true
	case adaptive:
		return p.plan.load[w.module].hbf
	case feasible:
		return !p.feasible(w, start)
	}
	return false
}

// purge drops what could not be in time even alone in every batch to come:
// under HBF it would wait until the order changes.
func (p *Policy) purge(start time.Duration, w *worker, out *policy.Actions) {
	for w.queue.len() > 0 {
		e := w.queue.min()
		if p.book.Wanted(e) {
			r := &p.book.Requests[e.Req]
			if start+w.infer[0]+p.plan.alone[r.Model*p.plan.stride+w.module] <= r.Deadline {
				return
			}
			p.drop(e.Req, e.Task, policy.ReasonDeadline, out)
		}
		w.queue.popMin()
	}
}

// feasible tells whether the queue can be served earliest deadline first: its
// i-th task would be in the batch that starts i/batch full batches after start.
// That holds if, for every j, at most (j+1) batches of tasks have to be in the
// first j+1 batches. No order is needed to count them.
func (p *Policy) feasible(w *worker, start time.Duration) bool {
	n, batch := w.queue.len(), int(w.batch)
	for ; n > 0 && !p.book.Wanted(w.queue.min()); n-- {
		w.queue.popMin()
	}
	if n == 0 {
		return true
	}
	from, first := start+w.full, p.plan.behind[w.module]
	if len(p.fleet.own.Apps) == 1 { // then the order of keys is that of slacks
		least, most := w.queue.min().Key-from-first, w.queue.max().Key-from-first
		switch {
		case least < 0 || n > (int(most/w.full)+1)*batch:
			return false
		case n <= (int(least/w.full)+1)*batch, w.proof.holds(from + first):
			return true
		}
	}
	batches := (n-1)/batch + 1
	if batches > len(p.plan.counts) {
		p.plan.counts = make([]int32, 2*batches)
	}
	counts := p.plan.counts[:batches]
	clear(counts)
	w.proof.void()
	if !p.count(w, from, counts) {
		return false
	}
	sum, f := 0, proof{from: from + first, spare: n, early: n}
	for j, c := range counts {
		if sum += int(c); sum > (j+1)*batch {
			return false
		}
		if f.early = min(f.early, (j+1)*batch-sum); j >= batches/2 {
			f.spare = min(f.spare, (j+1)*batch-sum)
		}
	}
	f.late = f.from + time.Duration(batches/2)*w.full
	w.proof = f
	return true
}

// proof says that a queue could be served earliest deadline first from a time
// on, with so many tasks more: of any deadline, and of late ones. Each full batch
// that is taken from the low end moves the time on by a run, so that what is left
// is as early as before. The queue has to be counted again only after many tasks.
type proof struct {
	from         time.Duration // start, run and what is behind; with several applications not used
	late         time.Duration // deadlines that only concern the later half of the batches
	early, spare int
}

func (f *proof) holds(from time.Duration) bool { return f.early >= 0 && f.spare >= 0 && from <= f.from }

func (f *proof) void() { f.spare = -1 }

// add takes in a further task.
func (f *proof) add(deadline time.Duration) {
	f.spare--
	if deadline < f.late {
		f.early--
	}
}

// count counts how many tasks have to be in each batch at the latest; false: one
// is late in any. A product instead of a quotient is off by less than a
// nanosecond of slack.
func (p *Policy) count(w *worker, from time.Duration, counts []int32) bool {
	per, one, behind := 1/float64(w.full), len(p.fleet.own.Apps) == 1, p.plan.behind[w.module]
	for i := range w.queue.list {
		e := &w.queue.list[i]
		if !one {
			behind = p.plan.behind[p.book.Requests[e.Req].Model*p.plan.stride+w.module]
		}
		slack := e.Key - from - behind
		if slack < 0 {
			return false
		}
		if j := int(float64(slack) * per); j < len(counts) {
			counts[j]++
		}
	}
	return true
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
			fits = !p.book.Wanted(e) || p.fits(end, r, r.Model*p.plan.stride+w.module)
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
