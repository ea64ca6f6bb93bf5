package vqueue

import (
	"time"

	"inferplan/formats"
	"inferplan/policy"
)

// milestone is a point in the service of a request to which its SLO applies.
type milestone uint8

const (
	atAnswer     milestone = iota // the whole answer
	atFirstToken                  // the first token of the answer
	atStart                       // the start: the request is in the running batch
)

// String returns the milestone in words for clients.
func (m milestone) String() string {
	switch m {
	case atFirstToken:
		return "the first token"
	case atStart:
		return "the start"
	}
	return "the answer"
}

// defaultStartLimit is the time from the arrival within which a request is due to start if its SLO does not limit
// the start. An SLO on the time per token is kept by the number of requests that run at once.
const defaultStartLimit = 10 * time.Minute

// sloClass has the requirements of a served model's SLO on the order of requests.
type sloClass struct {
	milestone milestone     // point that has a deadline
	dueAfter  time.Duration // from the arrival to the deadline; 0 means the request's own deadline
	priority  int32         // lower is served first
}

// newSLOClass returns the SLO class of a served model. Its milestone is the point of a request that has a deadline:
//
//   - the whole answer, if the SLO names no figure,
//   - the first token, for an SLO on the time to it (TTFT),
//   - the start, for an SLO on the time per token (TPOT). Such an SLO is met by a limit on the requests that run at once, so
//     that only a default limit on the start remains here.
//
// If the model also has an SLO on waiting (WaitSLO), and that asks for an earlier start, the milestone is the start (QLM's
// appendix A.3). The estimator gives the time from the start to a milestone.
func newSLOClass(model *policy.Model, estimator *RCT) sloClass {
	class := sloClass{priority: model.Priority, milestone: atAnswer} // dueAfter 0: the deadline of the request, which follows from model.SLO
	switch model.SLOFigure {
	case formats.FigureTTFT:
		class.milestone = atFirstToken
	case formats.FigureTPOT:
		class.milestone, class.dueAfter = atStart, defaultStartLimit
	}

	// Compare the two SLOs by the latest start that they allow, in seconds from the arrival. The first allows, for the time to
	// the milestone, dueAfter in a TPOT class (whose model.SLO, a time per token, is far less) and model.SLO in all others.
	milestoneTime, _ := estimator.timeToMilestone(class.milestone)
	latestStart := toSeconds(max(model.SLO, class.dueAfter)) - milestoneTime
	if model.WaitSLO > 0 && toSeconds(model.WaitSLO) < latestStart {
		class.milestone, class.dueAfter = atStart, model.WaitSLO
	}
	return class
}

// newSLOClasses returns, by served model, the SLO class: which point of a request (milestone) is due, when, and its priority.
// To compare milestones it needs a model's times; it takes them from the first kind of device that has an estimator (Batch above 0).
func newSLOClasses(planTables *policy.Tables, queueTables *Tables) []sloClass {
	classes := make([]sloClass, len(planTables.Models))
	for model := range classes {
		estimator := &RCT{} // all times are 0 if no kind has one
		for kind := range planTables.Kinds {
			if candidate := queueTables.Estimator(len(planTables.Kinds), int32(model), regularRequest, int32(kind)); candidate.Batch > 0 {
				estimator = candidate
				break
			}
		}
		classes[model] = newSLOClass(&planTables.Models[model], estimator)
	}
	return classes
}

// dueAt returns when an arriving request has to reach its class's milestone (the point to which the SLO applies): some time after its
// arrival, or its deadline.
func (c *sloClass) dueAt(event *policy.Event) time.Duration {
	if c.dueAfter > 0 {
		return event.ArrivedAt + c.dueAfter
	}
	return event.Deadline
}

// milestonePassed reports whether a running request has reached its class's milestone (the point to which the SLO applies), so that its SLO
// can no longer be missed.
func (c *sloClass) milestonePassed(request *Request) bool {
	return c.milestone == atStart || c.milestone == atFirstToken && request.producedTokens > 0
}
