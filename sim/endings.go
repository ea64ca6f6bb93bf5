package sim

import (
	"fmt"

	"inferplan/formats/arrivals"
	"inferplan/policy"
)

// Truth knows what only reality knows: how certain answers are, which branch a task takes,
// how many tokens it makes. It belongs to one run.
type Truth interface {
	// Arrive is called with every request before the policy hears of it.
	Arrive(req int32, r *arrivals.Request)
	// Outcome returns the outcome of a task that ran along a pipeline, and the level of
	// its answer, if answers have levels.
	Outcome(req, task, pipeline int32) (o policy.Outcome, level int64)
	// Tokens returns how many tokens a task makes.
	Tokens(task int32) int32
}

// endingRule says what the end of a batch means to its requests.
type ending interface {
	// batchRan is called after the last hop of a batch on a device, which has taken its
	// next batch already. The policy hears of BatchFinished later.
	ran(slot, device int32)
	// completeRequest answers a request with its latest answer.
	complete(req int32) error
	// switchMode makes a mode effective from now on.
	mode(tag int32) error
	// addResult adds the figures of the rule to the result of the run.
	result(r *Result)
}

// endings lists the rules beside the direct one. make returns nil if a run is of another
// kind, pool adds up runs.
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

// endingOf returns the ending rule of a run.
func endingOf(l *loop) ending {
	for _, e := range endings {
		if made := e.make(l); made != nil {
			return made
		}
	}
	return direct{l}
}

// directEnding answers a request when the batch of its only task ends.
type direct struct{ l *loop }

// batchRan answers the requests of a batch. Each has one task, in its own slot.
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

// completeRequest implements endingRule. Such requests end with their batch, so it fails.
func (direct) complete(req int32) error {
	return fmt.Errorf("the policy completes request slot %d, which the end of its batch answers", req)
}

// switchMode implements endingRule. Such plans have no modes, so it fails.
func (direct) mode(tag int32) error {
	return fmt.Errorf("the policy switches to mode %d, which the plan does not have", tag)
}

func (direct) result(*Result) {}

// answerRequest answers a request now, and closes it.
func (l *loop) answer(req int32) {
	q := &l.requests[req]
	answered := l.now + l.cfg.Egress
	l.answered(q, answered)
	if l.cfg.Completed != nil {
		l.cfg.Completed(q.arrived, answered)
	}
	l.end(req)
}
