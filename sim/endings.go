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
type endingRule interface {
	// batchRan is called after the last hop of a batch on a device, which has taken its
	// next batch already. The policy hears of BatchFinished later.
	batchRan(slot, device int32)
	// completeRequest answers a request with its latest answer.
	completeRequest(req int32) error
	// switchMode makes a mode effective from now on.
	switchMode(tag int32) error
	// addResult adds the figures of the rule to the result of the run.
	addResult(r *Result)
}

// endings lists the constructors of all rules but the direct one. Each returns nil for a run of another kind.
var endings = []func(l *loop) endingRule{newCascadeEnding, newFlowEnding, newTokenEnding}

// endingOf returns the ending rule of a run, which says what the end of a batch means to its requests: the first rule
// of endings that fits the plan of the run. If none does, it returns the direct rule: a request has one task and is
// answered when that ends.
func endingOf(loop *loop) endingRule {
	for _, newEnding := range endings {
		if rule := newEnding(loop); rule != nil {
			return rule
		}
	}
	return directEnding{loop}
}

// directEnding answers a request when the batch of its only task ends.
type directEnding struct{ loop *loop }

// batchRan answers the requests of a batch that has ended. They have one task each, in the slot of the same number. The
// answer reaches the client later by Egress. Requests that were dropped while they ran only free their slots. It
// implements endingRule. The second parameter, the device on which the batch ended, is not needed.
func (e directEnding) batchRan(batchSlot, _ int32) {
	loop := e.loop
	answeredAt := loop.agenda.now + loop.cfg.Egress
	for _, task := range loop.batches.members(batchSlot) {
		request := &loop.ledger.requests[task]
		if request.state == requestOpen {
			loop.ledger.recordAnswer(request, answeredAt)
			if loop.cfg.OnCompleted != nil {
				loop.cfg.OnCompleted(request.arrivedAt, answeredAt)
			}
		}
		loop.ledger.tasks.List[task].State, request.batchedTasks = policy.TaskUnused, 0
		loop.ledger.freeSlot(task)
	}
}

// completeRequest returns an error, because such requests end with their batch and not by an action of the policy. It
// implements endingRule.
func (directEnding) completeRequest(req int32) error {
	return fmt.Errorf("the policy completes request slot %d, which the end of its batch answers", req)
}

// switchMode returns an error, because plans of this kind have no modes, such as gears, to switch to. It implements endingRule.
func (directEnding) switchMode(tag int32) error {
	return fmt.Errorf("the policy switches to mode %d, which the plan does not have", tag)
}

// addResult adds nothing: the report has all figures of such runs. It implements endingRule.
func (directEnding) addResult(*Result) {}

// answerRequest answers the request in a slot now, and closes it. The client gets the answer later by Egress, which
// counts for its latency.
func (l *loop) answerRequest(req int32) {
	request := &l.ledger.requests[req]
	answeredAt := l.agenda.now + l.cfg.Egress
	l.ledger.recordAnswer(request, answeredAt)
	if l.cfg.OnCompleted != nil {
		l.cfg.OnCompleted(request.arrivedAt, answeredAt)
	}
	l.ledger.closeRequest(req)
}
