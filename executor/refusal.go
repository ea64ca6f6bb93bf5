package executor

import (
	"context"
	"errors"

	"inferplan/executor/oip"
	"inferplan/policy"
)

var errDraining = oip.Unavailable(policy.ReasonDraining.String(), "the server is shutting down")

// wait waits for the answer. A client that goes away is told to the core,
// whose answer then comes at once: the request's memory is not read after it.
func (j *job) wait(ctx context.Context, c *core) (*oip.Response, error) {
	select {
	case <-j.done:
	case <-ctx.Done():
		c.in.cancelJob(j)
		<-j.done
	}
	if j.outcome == served {
		return j.respond(), nil
	}
	err := j.problem()
	j.release()
	return nil, err
}

// problem is the error that a client sees.
func (j *job) problem() error {
	if refusal, ok := errors.AsType[*oip.Error](j.failure); ok && j.outcome == failed {
		return refusal
	}
	if j.outcome == failed {
		return oip.Internal(j.failure, "model %q failed: %v", j.model.label, j.failure)
	}
	switch j.reason {
	case policy.ReasonCancelled:
		return context.Canceled
	case policy.ReasonDraining:
		return errDraining
	case policy.ReasonDeadline:
		return j.until(oip.Dropped(j.reason.String(), "model %q: no batch can meet the deadline of %v any more", j.model.label, j.deadline-j.arrived))
	case policy.ReasonQueueFull:
		if j.refused {
			return oip.Dropped(j.reason.String(), "model %q: devices are short, and this client has had its share", j.model.label)
		}
		return oip.Dropped(j.reason.String(), "model %q: too many requests are waiting", j.model.label)
	case policy.ReasonWorkerLost:
		return j.until(oip.Dropped(j.reason.String(), "model %q: the workers that could have run it in time are gone", j.model.label))
	}
	return oip.Dropped(j.reason.String(), "model %q: dropped: %s", j.model.label, j.reason)
}

// until adds to a refusal when asking again is worth it, and how long the request
// would have taken, as far as the policy says so.
func (j *job) until(e *oip.Error) *oip.Error {
	if j.again > 0 {
		e.RetryAfter, e.Estimate = j.again, j.deadline-j.arrived+j.again
	}
	return e
}
