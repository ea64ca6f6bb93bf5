package flow

import "time"

// SessionState is the state that a service keeps of a request from one task to the next, as a language model keeps keys
// and values. The state of a task is the one that it continued, plus its own part. All figures are of the part of a task
// of the usual work, and grow with the work.
type Session struct {
	Bytes     int64
	Recompute time.Duration // time to compute it anew
	Near, Far time.Duration // time to move it within the node, and across nodes
}

// SessionStateOf returns the session state of a service. If it keeps none, Bytes is 0.
func (w *Workflows) SessionOf(service int32) Session {
	if w == nil || int(service) >= len(w.Sessions) {
		return Session{}
	}
	return w.Sessions[service]
}

// ScaleByWork returns a figure of a session state at a work in millionths. A work of 0 is the usual one.
func Part(usual, work int64) int64 {
	if work <= 0 || work == millionths {
		return usual
	}
	return usual/millionths*work + usual%millionths*work/millionths
}

// ContinuedTask returns the task whose state a new task continues: of the tasks of its own service that it reads, the
// first one whose state no task continues yet, otherwise the last one. If there is none, it returns -1. Numbers below 0
// are the client's input.
func Continued(reads []int32, own, free func(task int32) bool) int32 {
	last := int32(-1)
	for _, t := range reads {
		if t < 0 || !own(t) {
			continue
		}
		if free(t) {
			return t
		}
		last = t
	}
	return last
}
