package calls

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Path is the prefix of all paths of the HTTP form.
const Path = "/v1/workflows"

// MaxTasks bounds the tasks of a request.
const MaxTasks = 4096

// Open begins a request.
type Open struct {
	Application string  `json:"application"`
	TimeoutMS   float64 `json:"timeout_ms,omitempty"` // 0 means the application's SLO
	// Inputs are the inputs that the client sends, by name. Steps before models read them, and tasks that read no
	// other task.
	Inputs map[string]any `json:"inputs,omitempty"`
	// Client is who sends it, as the server knows it.
	Client string `json:"-"`
}

// OpenReply is the answer to Open.
type OpenReply struct {
	Request string `json:"request"`
}

// Enqueue asks for tasks that are known together. A call may read those before it
// in the list as "#0", "#1" and so on.
type Enqueue struct {
	Tasks []Call `json:"tasks"`
}

// EnqueueReply is the answer to Enqueue: the handles, in order.
type EnqueueReply struct {
	Tasks []Handle `json:"tasks"`
}

// States of a task.
const (
	StatusRunning = "running"
	StatusDone    = "done"
	StatusFailed  = "failed"
)

// Result is the state of a task, with its outputs if it has ended.
type Result struct {
	Task    Handle  `json:"task"`
	State   string  `json:"state"`
	Outputs Outputs `json:"outputs,omitempty"`
	Error   string  `json:"error,omitempty"`
}

// Failure is the body of an error.
type Failure struct {
	Error  string `json:"error"`
	Reason string `json:"reason,omitempty"` // the reason that a policy gives
}

// ResultEvent is the name of the event of a stream.
const ResultEvent = "result"

// Check returns an error if the tasks that a program adds to its request are wrong. tasks is how many the request
// has already.
func (e *Enqueue) Check(tasks int) error {
	if len(e.Tasks) == 0 || len(e.Tasks)+tasks > MaxTasks {
		return fmt.Errorf("tasks: found %d beside %d, expected at least one, and at most %d of a request", len(e.Tasks), tasks, MaxTasks)
	}
	for i := range e.Tasks {
		c := &e.Tasks[i]
		if c.Model == "" {
			return fmt.Errorf("tasks[%d].model: found nothing, expected a model", i)
		}
		if !(c.Work >= 0 && c.Work <= 1e3) {
			return fmt.Errorf("tasks[%d].work: found %v, expected a part of the usual work, at most 1000", i, c.Work)
		}
		if len(c.Reads) > MaxTasks {
			return fmt.Errorf("tasks[%d].reads: found %d tasks, expected at most %d", i, len(c.Reads), MaxTasks)
		}
	}
	return nil
}

// Encode returns a message as a line of JSON.
func Encode(message any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(message); err != nil {
		return nil, fmt.Errorf("writing the message: %w", err)
	}
	return b.Bytes(), nil
}
