package calls

import (
	"errors"
	"time"

	"inferplan/formats/calls"
)

// Backend runs the tasks of requests.
type Backend interface {
	// MessageBytes is how long a message may be that brings the inputs of an application or
	// of a model, as JSON.
	MessageBytes() int64
	// Begin takes a request in and returns how long it has. Refused is the error of a
	// request that is not.
	Begin(request string, open *calls.Open) (budget time.Duration, err error)
	// Enqueue takes in tasks that are known together. It does not wait for them.
	// What becomes of them is told to news, from any goroutine.
	Enqueue(request string, tasks []Task, news News) error
	// End ends a request. Tasks that still run are not waited for.
	End(request string)
}

// Task is a task with its handle. It runs once those that it reads have ended; their
// outputs are in the store until the request ends.
type Task struct {
	Handle calls.Handle
	calls.Call
}

// News hears of tasks.
type News interface {
	// Ended is the end of a task, with its output or what went wrong.
	Ended(task calls.Handle, outputs calls.Outputs, err error)
}

// Refused is a request or task that is not taken in.
type Refused struct {
	Reason string        // as a policy gives it
	Retry  time.Duration // when asking again is worth it; 0: not known
}

// Error implements error.
func (r *Refused) Error() string { return "refused: " + r.Reason }

// ErrDraining says that the server takes in nothing new.
var ErrDraining = errors.New("the server ends")

// Limits of what a handler keeps.
type Limits struct {
	Requests  int           // open at once; 0: 1024
	PerClient int           // open at once of one key, else address; 0: 256
	Body      int64         // of a message, in bytes, whatever the plan's tensors take; 0: 64 MiB
	Idle      time.Duration // after which a client that is not heard of has gone; 0: a minute
	Wait      time.Duration // of one question for a result, at most; 0: 30 s
}

// withDefaults fills in what was left out.
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
