package deploy

import (
	"context"
	"time"

	"inferplan/policy"
)

// hopeless watches a run of a policy and ends it once so many more requests are late
// than may be that its layout cannot hold.
type hopeless struct {
	policy.Policy
	stop    context.CancelFunc
	figure  []int // by served model: the figure that it is judged by
	slo     []time.Duration
	allowed []float64 // late requests by figure
	arrived []int64
	late    []int64
	due     []pending // by request
	batch   []int32   // by batch: its request
	ended   bool
}

type pending struct {
	model int32
	at    time.Duration
}

// give is how many times the late requests that are allowed a run may have.
const give = 4

// Handle implements policy.Policy.
func (h *hopeless) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.Arrival:
		for int(ev.Req) >= len(h.due) {
			h.due = append(h.due, pending{})
		}
		h.due[ev.Req] = pending{ev.Model, ev.Arrived + h.slo[ev.Model]}
		h.arrived[h.figure[ev.Model]]++
	case policy.BatchFinished:
		if r := &h.due[h.batch[ev.Batch]]; now > r.at {
			j := h.figure[r.model]
			if h.late[j]++; float64(h.late[j]) > h.allowed[j] {
				h.ended = true
				h.stop()
			}
		}
	}
	before := len(out.List)
	h.Policy.Handle(now, ev, out)
	for i := before; i < len(out.List); i++ {
		if a := &out.List[i]; a.Kind == policy.Dispatch {
			for int(a.Batch) >= len(h.batch) {
				h.batch = append(h.batch, 0)
			}
			h.batch[a.Batch] = out.Tasks[a.TaskFirst]
		}
	}
}

// Unwrap implements policy.Wrapper.
func (h *hopeless) Unwrap() policy.Policy { return h.Policy }

// score is what a run that was ended counts: more of what comes later is late, too.
func (h *hopeless) score(totals []int64) Score {
	s := Score{Requests: totals, Missed: make([]int64, len(totals))}
	for j := range totals {
		part := max(float64(h.arrived[j])/max(float64(totals[j]), 1), 1e-3)
		s.Missed[j] = min(totals[j], int64(float64(h.late[j])/min(part, 1)))
	}
	return s
}
