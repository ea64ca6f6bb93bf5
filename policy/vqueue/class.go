package vqueue

import (
	"time"

	"inferplan/formats"
	"inferplan/policy"
)

// milestone is a point on a request's way.
type milestone uint8

const (
	answered  milestone = iota // it has its answer
	answering                  // it has its first token
	started                    // it is in the running batch
)

// patience is after which a request whose SLO says nothing of when it starts is due
// to start. An SLO on the time per token is kept by how many run at once.
const patience = 10 * time.Minute

// class is what the SLO of a served model asks of the order of requests.
type class struct {
	milestone milestone     // that has a time
	after     time.Duration // of the arrival; 0: the request's own deadline
	priority  int32         // lower goes first
}

// newClass takes the milestone whose time asks for the earliest start: that of the SLO's
// figure, or the start itself where there is an SLO on waiting (appendix A.3).
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

// newClasses has the class of every served model.
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

// due is when a request has to be at its class's milestone.
func (c *class) due(ev *policy.Event) time.Duration {
	if c.after > 0 {
		return ev.Arrived + c.after
	}
	return ev.Deadline
}

// passed tells whether a request that runs is past its class's milestone.
func (c *class) passed(r *request) bool {
	return c.milestone == started || c.milestone == answering && r.made > 0
}
