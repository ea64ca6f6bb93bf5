package sim

import (
	"fmt"

	"inferplan/formats/arrivals"
	"inferplan/policy"
)

// Truth is what only reality knows: how certain answers are, which branch a task
// takes, how many tokens it makes. A run has one of its own.
type Truth interface {
	// Arrive hears of every request before the policy does.
	Arrive(req int32, r *arrivals.Request)
	// Outcome is what became of a task that ran along a pipeline, and the level
	// of its answer, where answers have levels.
	Outcome(req, task, pipeline int32) (o policy.Outcome, level int64)
	// Tokens is how many tokens a task makes.
	Tokens(task int32) int32
}

// ending is what the end of a batch means to its requests.
type ending interface {
	// ran follows the last hop of a batch on a device, which has taken its next
	// batch already, before BatchFinished is told.
	ran(slot, device int32)
	// complete takes the last answer of a request as its answer.
	complete(req int32) error
	// mode is in force from now on.
	mode(tag int32) error
	// result adds what the ending knows to that of the run.
	result(r *Result)
}

// endings is the only list of what endings there are beside the direct one. make
// gives nil for a run of another kind, pool adds up runs.
var endings = []struct {
	make func(l *loop) ending
	pool func(out *Result, runs []*Result)
}{
	{make: newCascade, pool: poolCascades},
	{make: newFlow, pool: func(out *Result, runs []*Result) {
		poolFlows(out, runs)
		poolWork(out, runs)
		poolSessions(out, runs)
		poolGenerated(out, runs)
	}},
	{make: newTokens, pool: poolTokens},
}

// endingOf is the ending of a run.
func endingOf(l *loop) ending {
	for _, e := range endings {
		if made := e.make(l); made != nil {
			return made
		}
	}
	return direct{l}
}

// direct ends requests with the batch of their one task.
type direct struct{ l *loop }

// ran answers at once: a request has one task, in its slot, and ends with it.
func (e direct) ran(slot, _ int32) {
	l := e.l
	answered := l.now + l.cfg.Egress
	for _, t := range l.members(slot) {
		q := &l.requests[t]
		if q.state == waiting {
			l.answered(q, answered)
			if l.cfg.Completed != nil {
				l.cfg.Completed(q.arrived, answered)
			}
		}
		l.tasks.List[t].State, q.running = policy.TaskUnused, 0
		l.release(t)
	}
}

func (direct) complete(req int32) error {
	return fmt.Errorf("the policy completes request slot %d, which the end of its batch answers", req)
}

func (direct) mode(tag int32) error {
	return fmt.Errorf("the policy switches to mode %d, which the plan does not have", tag)
}

func (direct) result(*Result) {}

// answer answers a request.
func (l *loop) answer(req int32) {
	q := &l.requests[req]
	answered := l.now + l.cfg.Egress
	l.answered(q, answered)
	if l.cfg.Completed != nil {
		l.cfg.Completed(q.arrived, answered)
	}
	l.end(req)
}
