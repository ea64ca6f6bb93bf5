package calls

import (
	"errors"
	"time"

	"inferplan/formats/calls"
)

// Backend runs the tasks of requests.
type Backend interface {
	// MaxMessageBytes returns the length of the longest message that can bring the inputs of an application or of a
	// model as JSON.
	MessageBytes() int64
	// BeginRequest accepts a request and returns the time until its deadline. If the request is refused, the error is
	// a *RefusedError.
	Begin(request string, open *calls.Open) (budget time.Duration, err error)
	// Enqueue accepts tasks that become known together. It does not wait for them. news is called with their ends,
	// from any goroutine.
	Enqueue(request string, tasks []Task, news News) error
	// EndRequest ends a request. It does not wait for tasks that still run.
	End(request string)
}

// Task is a task with its handle. It runs once the tasks that it reads have ended; their outputs stay in the store
// until the request ends.
type Task struct {
	Handle calls.Handle
	calls.Call
}

// TaskListener is called when tasks end.
type News interface {
	// TaskEnded is called with the output of a task, or with its error.
	Ended(task calls.Handle, outputs calls.Outputs, err error)
}

// RefusedError is the error of a request or task that is refused.
type Refused struct {
	Reason string        // the policy's word for it
	Retry  time.Duration // time after which to try again; 0 if it is unknown
}

// Error implements error.
func (r *Refused) Error() string { return "refused: " + r.Reason }

// ErrDraining is returned when the server accepts no new requests.
var ErrDraining = errors.New("the server ends")

// Limits bound what a handler holds. Each field's comment says what 0 stands for.
type Limits struct {
	Requests  int           // open at once; 0: 1024
	PerClient int           // open at once of one key, else of one address; 0: 256
	Body      int64         // bytes of a message, even if the plan's tensors are larger; 0: 64 MiB
	Idle      time.Duration // time without a call after which a client counts as gone; 0: a minute
	Wait      time.Duration // longest wait of one question for a result; 0: 30 s
}

// withDefaults returns the limits with defaults in place of zeros.
func (l Limits) withDefaults() Limits {
	if l.Requests == 0 {
		l.Requests = 1024
	}
	if l.PerClient == 0 {
		l.PerClient = 256
	}
	if l.Body == 0 {
		l.Body = 64 << 20
	}
	if l.Idle == 0 {
		l.Idle = time.Minute
	}
	if l.Wait == 0 {
		l.Wait = 30 * time.Second
	}
	return l
}
