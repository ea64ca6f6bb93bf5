package drop

import (
	"slices"
	"time"

	"inferplan/policy"
)

// change takes in what is rare: workers that come, go or fail.
func (p *Policy) change(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.NetworkLoaded:
		p.loaded(&p.workers[ev.Device], ev.Value == 0, out)
	case policy.WorkerLost:
		p.lose(now, &p.workers[ev.Device], out)
	case policy.WorkerBack:
		p.back(&p.workers[ev.Device], out)
	case policy.BatchReturned:
		p.returned(now, &p.workers[ev.Device], policy.Return(ev.Value), out)
	}
}

func (p *Policy) loaded(w *worker, ok bool, out *policy.Actions) {
	switch {
	case !w.loading || w.lost:
		return
	case !ok:
		p.load(w, out) // again
		return
	}
	w.loading, w.up = false, true
	p.enlist(w.module)
}

// lose sends the tasks of a worker that is gone to others.
func (p *Policy) lose(now time.Duration, w *worker, out *policy.Actions) {
	if w.running {
		out.List = append(out.List, policy.Action{Kind: policy.Abort, Batch: w.device})
		p.busy--
		p.again = append(p.again, w.current...)
	}
	w.running, w.up, w.loading, w.lost = false, false, false, true
	p.again = append(append(p.again, w.forming...), w.queue.list...)
	p.again = append(p.again, w.line.list[w.line.head:]...)
	w.forming, w.queue.list, w.line = w.forming[:0], w.queue.list[:0], line{list: w.line.list[:0]}
	p.enlist(w.module)
	p.resend(now, w.module, out)
}

// resend sends tasks that wait again.
func (p *Policy) resend(now time.Duration, m int32, out *policy.Actions) {
	for i := range p.again {
		if p.book.Wanted(&p.again[i]) {
			p.send(now, m, p.again[i], out)
		}
	}
	p.again = p.again[:0]
}

// back takes a worker that is empty: what the plan put on it is there.
func (p *Policy) back(w *worker, out *policy.Actions) {
	w.lost = false
	w.up = slices.Contains(p.t.Resident[w.device], p.network(w))
	switch {
	case !w.wanted && w.up:
		p.retire(w, out)
	case w.wanted && !w.up:
		p.load(w, out)
	}
	p.enlist(w.module)
}

// returned takes back a batch without a result.
func (p *Policy) returned(now time.Duration, w *worker, why policy.Return, out *policy.Actions) {
	w.running = false
	p.busy--
	p.again = append(p.again, w.current...)
	if why == policy.ReturnNotLoaded && w.up {
		w.up = false
		if w.wanted {
			p.load(w, out)
		}
		p.again = append(append(p.again, w.forming...), w.queue.list...)
		p.again = append(p.again, w.line.list[w.line.head:]...)
		w.forming, w.queue.list, w.line = w.forming[:0], w.queue.list[:0], line{list: w.line.list[:0]}
		p.enlist(w.module)
	} else {
		p.serve(now, w, out)
	}
	p.resend(now, w.module, out)
}
