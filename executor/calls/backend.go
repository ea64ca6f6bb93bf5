package calls

import (
	"cmp"
	"errors"
	"time"

	"inferplan/formats/calls"
)

// Backend runs the tasks of requests.
type Backend interface {
	// MaxMessageBytes returns the length of the longest message that can bring the inputs of an application or of a
	// model as JSON.
	MaxMessageBytes() int64
	// BeginRequest accepts a request and returns the time until its deadline. If the request is refused, the error is
	// a *RefusedError.
	BeginRequest(request string, open *calls.Open) (budget time.Duration, err error)
	// Enqueue accepts tasks that become known together. It does not wait for them. news is called with their ends,
	// from any goroutine.
	Enqueue(request string, tasks []Task, news TaskListener) error
	// EndRequest ends a request. It does not wait for tasks that still run.
	EndRequest(request string)
}

// Task is a task with its handle. It runs once the tasks that it reads have ended; their outputs stay in the store
// until the request ends.
type Task struct {
	Handle calls.Handle
	calls.Call
}

// TaskListener is called when tasks end.
type TaskListener interface {
	// TaskEnded is called with the output of a task, or with its error.
	TaskEnded(task calls.Handle, outputs calls.Outputs, err error)
}

// RefusedError is the error of a request or task that is refused.
type RefusedError struct {
	Reason     string        // the policy's word for it
	RetryAfter time.Duration // time after which to try again; 0 if it is unknown
}

// Error implements error.
func (r *RefusedError) Error() string { return "refused: " + r.Reason }

// ErrDraining is returned when the server accepts no new requests.
var ErrDraining = errors.New("the server ends")

// Limits bound what a handler holds. Each field's comment says what 0 stands for.
type Limits struct {
	MaxRequests  int           // open at once; 0 stands for 1024
	MaxPerClient int           // open at once of one key, else of one address; 0 stands for 256
	MaxBodyBytes int64         // bytes of a message, even if the plan's tensors are larger; 0 stands for 64 MiB
	IdleTimeout  time.Duration // time without a call after which a client counts as gone; 0 stands for a minute
	MaxWait      time.Duration // longest wait of one question for a result; 0 stands for 30 s
}

// withDefaults returns the limits of the handler of programs (clients that send the tasks of a workflow over HTTP) with
// defaults in place of zeros: open requests in all and for each client, bytes of a message, time until an idle request
// expires, and the longest wait for a result.
func (l Limits) withDefaults() Limits {
	l.MaxRequests = cmp.Or(l.MaxRequests, 1024)
	l.MaxPerClient = cmp.Or(l.MaxPerClient, 256)
	l.MaxBodyBytes = cmp.Or(l.MaxBodyBytes, 64<<20)
	l.IdleTimeout = cmp.Or(l.IdleTimeout, time.Minute)
	l.MaxWait = cmp.Or(l.MaxWait, 30*time.Second)
	return l
}
