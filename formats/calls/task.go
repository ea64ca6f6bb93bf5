package calls

import "errors"

// Handle names a task of a request.
type Handle string

// Call asks for one task.
type Call struct {
	Model string  `json:"model"`
	Work  float64 `json:"work,omitempty"` // work as a part of the model's usual time; 0 means 1
	// Reads are tasks of the request whose outputs this one reads.
	Reads []Handle `json:"reads,omitempty"`
	// Inputs are values of the program's own.
	Inputs map[string]any `json:"inputs,omitempty"`
}

// Outputs are the outputs of a task by name, as decoded from JSON.
type Outputs map[string]any

// ErrEnded says that a request is over: it was cancelled, or refused.
var ErrEnded = errors.New("the request has ended")

// ErrUnknown says that a handle is not of the request.
var ErrUnknown = errors.New("no such task")
