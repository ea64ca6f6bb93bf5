package flow

import "time"

// SessionState is the state that a service keeps of a request from one task to the next, as a language model keeps keys
// and values. The state of a task is the one that it continued, plus its own part. All figures are of the part of a task
// of the usual work, and grow with the work.
type SessionState struct {
	Bytes               int64
	Recompute           time.Duration // time to compute it anew
	SameNode, OtherNode time.Duration // time to move it within the node, and across nodes
}

// SessionStateOf returns what a service keeps of a request for the request's next task (as a KV cache). If it keeps
// nothing, Bytes is 0.
func (workflows *WorkflowTables) SessionStateOf(service int32) SessionState {
	if workflows == nil || int(service) >= len(workflows.SessionStates) {
		return SessionState{}
	}
	return workflows.SessionStates[service]
}

// ScaleByWork returns a figure of the usual task scaled by a work in millionths of the usual. A work of 0 is the
// usual one. Dividing before multiplying keeps large figures from overflowing.
func ScaleByWork(usual, work int64) int64 {
	if work <= 0 || work == millionths {
		return usual
	}
	return usual/millionths*work + usual%millionths*work/millionths
}

// ContinuedTask returns the task whose session state (what a service keeps of a request on a device) a new task
// continues. reads has the tasks that it reads; numbers below 0 are the client's input. Of those of its own service
// (sameService) it is the first one whose state no task continues yet (isUnclaimed), otherwise the last one. If there is
// none, it returns -1.
func ContinuedTask(reads []int32, sameService, isUnclaimed func(task int32) bool) int32 {
	lastOfService := int32(-1)
	for _, task := range reads {
		if task < 0 || !sameService(task) {
			continue
		}
		if isUnclaimed(task) {
			return task
		}
		lastOfService = task
	}
	return lastOfService
}
