package turn

import (
	"context"
	"errors"

	"inferplan/executor/oip"
	"inferplan/policy"
)

var ErrDraining = oip.Unavailable(policy.ReasonDraining.String(), "the server is shutting down")

// Wait waits for the answer. A client that goes away is told to the core,
// whose answer then comes at once: the request's memory is not read after it.
func (j *Job) Wait(ctx context.Context, c *Core) (*oip.Response, error) {
	select {
	case <-j.Done:
	case <-ctx.Done():
		c.Cancel(j)
		<-j.Done
	}
	if j.Outcome == Served {
		return j.respond(), nil
	}
	err := j.Problem()
	j.Release()
	return nil, err
}

// Problem is the error that a client sees.
func (j *Job) Problem() error {
	if refusal, ok := errors.AsType[*oip.Error](j.Failure); ok && j.Outcome == Failed {
		return refusal
	}
	if j.Outcome == Failed {
		return oip.Internal(j.Failure, "model %q failed: %v", j.Model.Label, j.Failure)
	}
	switch j.Reason {
	case policy.ReasonCancelled:
		return context.Canceled
	case policy.ReasonDraining:
		return ErrDraining
	case policy.ReasonDeadline:
		return j.until(oip.Dropped(j.Reason.String(), "model %q: no batch can meet the deadline of %v any more", j.Model.Label, j.Deadline-j.Arrived))
	case policy.ReasonQueueFull:
		if j.refused {
			return oip.Dropped(j.Reason.String(), "model %q: devices are short, and this client has had its share", j.Model.Label)
		}
		return oip.Dropped(j.Reason.String(), "model %q: too many requests are waiting", j.Model.Label)
	case policy.ReasonWorkerLost:
		return j.until(oip.Dropped(j.Reason.String(), "model %q: the workers that could have run it in time are gone", j.Model.Label))
	}
	return oip.Dropped(j.Reason.String(), "model %q: dropped: %s", j.Model.Label, j.Reason)
}

// until adds to a refusal when asking again is worth it, and how long the request
// would have taken, as far as the policy says so.
func (j *Job) until(e *oip.Error) *oip.Error {
	if j.RetryAfter > 0 {
		e.RetryAfter, e.Estimate = j.RetryAfter, j.Deadline-j.Arrived+j.RetryAfter
	}
	return e
}
