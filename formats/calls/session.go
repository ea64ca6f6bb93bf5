package calls

import (
	"errors"
	"iter"
)

// Handle names a task of a request.
type Handle string

// Call is what a task does.
type Call struct {
	Model string  `json:"model"`
	Work  float64 `json:"work,omitempty"` // as a part of the model's usual time; 0: as usual
	// Reads are tasks of the request whose outputs this one reads.
	Reads []Handle `json:"reads,omitempty"`
	// Inputs are values of the program's own.
	Inputs map[string]any `json:"inputs,omitempty"`
}

// Outputs are what a task gives, by name, as JSON has it.
type Outputs map[string]any

// Session is a request under way. One goroutine uses it.
type Session interface {
	// Parameters are what the request brought.
	Parameters() map[string]any
	// Enqueue asks for a task, and does not wait for it.
	Enqueue(c Call) (Handle, error)
	// Wait waits until tasks have ended; the first that failed is the error.
	Wait(tasks ...Handle) error
	// Result waits for a task and gives its outputs.
	Result(task Handle) (Outputs, error)
	// Stream gives the pieces of a task's output as they come. The task has ended
	// behind the last of them.
	Stream(task Handle) iter.Seq2[Outputs, error]
}

// Program is a workflow as code. What it returns is the answer to the request.
type Program func(s Session) (Outputs, error)

// ErrEnded says that a request is over: it was cancelled, or refused.
var ErrEnded = errors.New("the request has ended")

// ErrUnknown says that a handle is not of the request.
var ErrUnknown = errors.New("no such task")
