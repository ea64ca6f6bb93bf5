package flow

import "time"

// Session is the state that a service keeps of a request from one task to the
// next, as a language model keeps keys and values. The state of a task is that
// which it went on with, and its own part. All figures are of the part of a task
// of the usual work, and grow with the work.
type Session struct {
	Bytes     int64
	Recompute time.Duration // of a task that goes on without it
	Near, Far time.Duration // to another device of the node, and to one of another
}

// SessionOf is the state of a service; its Bytes are 0 where it keeps none.
func (w *Workflows) SessionOf(service int32) Session {
	if w == nil || int(service) >= len(w.Sessions) {
		return Session{}
	}
	return w.Sessions[service]
}

// Part is a figure of a session at a work in millionths, 0 the usual one.
func Part(usual, work int64) int64 {
	if work <= 0 || work == millionths {
		return usual
	}
	return usual/millionths*work + usual%millionths*work/millionths
}

// Continued is the task whose state a new one goes on with: of those that it reads
// of its own service the first one whose state no task goes on with yet, else the
// last one. -1: there is none. Tasks below 0 are the client's input.
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
