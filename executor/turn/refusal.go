package turn

import (
	"context"
	"errors"

	"inferplan/executor/httplimit"
	"inferplan/executor/oip"
	"inferplan/policy"
)

var ErrDraining = httplimit.Unavailable(policy.ReasonDraining.String(), "the server is shutting down")

// Wait waits in the client's handler until a job is answered, and returns the response, or the error that the client
// sees; then the handler's hold on the job is released. If ctx ends because the client goes away, it cancels the job,
// which the core then answers at once. After Wait the core no longer reads the memory of the request.
func (j *Job) Wait(ctx context.Context, c *Core) (*oip.Response, error) {
	select {
	case <-j.Done:
	case <-ctx.Done():
		c.Inbox.CancelJob(j)
		<-j.Done
	}
	if j.Outcome == OutcomeServed {
		return j.buildResponse(), nil
	}
	err := j.ClientError()
	j.Release()
	return nil, err
}

// ClientError returns the error that a client sees of a job that was not served: the failure itself if it is the
// client's fault, else a message by the reason of the drop, with a time after which another try makes sense if that
// is known.
func (j *Job) ClientError() error {
	if refusal, ok := errors.AsType[*oip.Error](j.Failure); ok && j.Outcome == OutcomeFailed {
		return refusal
	}
	if j.Outcome == OutcomeFailed {
		return httplimit.Internal(j.Failure, "model %q failed: %v", j.Model.Label, j.Failure)
	}
	switch j.Reason {
	case policy.ReasonCancelled:
		return context.Canceled
	case policy.ReasonDraining:
		return ErrDraining
	case policy.ReasonDeadline:
		return j.addRetry(httplimit.Dropped(j.Reason.String(), "model %q: no batch can meet the deadline of %v any more", j.Model.Label, j.Deadline-j.ArrivedAt))
	case policy.ReasonQueueFull:
		if j.overClientShare {
			return httplimit.Dropped(j.Reason.String(), "model %q: devices are short, and this client has had its share", j.Model.Label)
		}
		return httplimit.Dropped(j.Reason.String(), "model %q: too many requests are waiting", j.Model.Label)
	case policy.ReasonWorkerLost:
		return j.addRetry(httplimit.Dropped(j.Reason.String(), "model %q: the workers that could have run it in time are gone", j.Model.Label))
	}
	return httplimit.Dropped(j.Reason.String(), "model %q: dropped: %s", j.Model.Label, j.Reason)
}

// addRetry adds to an error after what time the client may send the request again, and how long the request would have
// taken: its time to the deadline plus that time. If the policy has not said (RetryAfter is 0), it adds nothing.
func (j *Job) addRetry(e *oip.Error) *oip.Error {
	if j.RetryAfter > 0 {
		e.RetryAfter, e.Estimate = j.RetryAfter, j.Deadline-j.ArrivedAt+j.RetryAfter
	}
	return e
}
