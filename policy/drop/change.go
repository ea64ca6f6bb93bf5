package drop

import (
	"time"

	"inferplan/policy"
)

// change takes in what is rare: workers that come, go or fail.
func (p *Policy) change(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.NetworkLoaded:
		p.fleet.loaded(&p.fleet.workers[ev.Device], ev.Value == 0, out)
	case policy.WorkerLost:
		p.lose(now, &p.fleet.workers[ev.Device], out)
	case policy.WorkerBack:
		p.fleet.back(&p.fleet.workers[ev.Device], out)
	case policy.BatchReturned:
		p.returned(now, &p.fleet.workers[ev.Device], policy.Return(ev.Value), out)
	}
}

// lose sends the tasks of a worker that is gone to others.
func (p *Policy) lose(now time.Duration, w *worker, out *policy.Actions) {
	if w.running {
		out.List = append(out.List, policy.Action{Kind: policy.Abort, Batch: w.device})
		p.busy--
		p.again = append(p.again, w.current...)
	}
	w.running, w.up, w.loading, w.lost = false, false, false, true
	p.again = w.empty(p.again)
	p.fleet.enlist(w.module)
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

// returned takes back a batch without a result.
func (p *Policy) returned(now time.Duration, w *worker, why policy.Return, out *policy.Actions) {
	w.running = false
	p.busy--
	p.again = append(p.again, w.current...)
	if why == policy.ReturnNotLoaded && w.up {
		w.up = false
		if w.wanted {
			p.fleet.load(w, out)
		}
		p.again = w.empty(p.again)
		p.fleet.enlist(w.module)
	} else {
		p.serve(now, w, out)
	}
	p.resend(now, w.module, out)
}
