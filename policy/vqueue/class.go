package vqueue

import (
	"time"

	"inferplan/formats"
	"inferplan/policy"
)

// milestone is a point in the service of a request to which its SLO applies.
type milestone uint8

const (
	answered  milestone = iota // the whole answer
	answering                  // the first token of the answer
	started                    // the start: the request is in the running batch
)

// defaultStartLimit is the time from the arrival within which a request is due to start if its SLO does not limit
// the start. An SLO on the time per token is kept by the number of requests that run at once.
const patience = 10 * time.Minute

// sloClass has the requirements of a served model's SLO on the order of requests.
type class struct {
	milestone milestone     // point that has a deadline
	after     time.Duration // from the arrival to the deadline; 0 means the request's own deadline
	priority  int32         // lower is served first
}

// newSLOClass returns the class with the milestone that requires the earliest start: that of the SLO's figure or,
// if there is an SLO on waiting, the start itself (appendix A.3).
func newClass(m *policy.Model, r *RCT) class {
	c := class{priority: m.Priority}
	switch m.Of {
	case formats.OfTTFT:
		c.milestone = answering
	case formats.OfTPOT:
		c.milestone, c.after = started, patience
	}
	reach, _ := r.reach(c.milestone)
	if latest := seconds(max(m.SLO, c.after)) - reach; m.Waiting > 0 && seconds(m.Waiting) < latest {
		c.milestone, c.after = started, m.Waiting
	}
	return c
}

// newSLOClasses returns the class of every served model.
func newClasses(t *policy.Tables, own *Tables) []class {
	out := make([]class, len(t.Models))
	for m := range out {
		r := &RCT{}
		for k := range t.Kinds {
			if e := own.Estimator(len(t.Kinds), int32(m), false, int32(k)); e.Batch > 0 {
				r = e
				break
			}
		}
		out[m] = newClass(&t.Models[m], r)
	}
	return out
}

// dueAt returns when the request of an arrival has to reach its class's milestone.
func (c *class) due(ev *policy.Event) time.Duration {
	if c.after > 0 {
		return ev.Arrived + c.after
	}
	return ev.Deadline
}

// milestonePassed reports whether a running request has reached its class's milestone.
func (c *class) passed(r *request) bool {
	return c.milestone == started || c.milestone == answering && r.made > 0
}
