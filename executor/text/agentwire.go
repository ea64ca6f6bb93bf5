package text

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"inferplan/engine/llm"
	"inferplan/executor/completions"
)

// Kinds of orders to an agent. An order with the same number as one before is the same order, sent again.
const (
	OrderLook    = "look"
	OrderPrepare = "prepare" // long: answered at once, and polled until it is done
	OrderLoad    = "load"    // long
	OrderUnload  = "unload"  // long
	OrderRun     = "run"
	OrderLeave   = "leave" // ends the run with the number
)

// orderKinds are all kinds of orders.
var orderKinds = []string{OrderLook, OrderPrepare, OrderLoad, OrderUnload, OrderRun, OrderLeave}

// AgentOrder is an order of the process that plans in a term.
type AgentOrder struct {
	Term        uint64   `json:"term"`
	Kind        string   `json:"what"`
	Number      uint64   `json:"number,omitempty"`
	Model       string   `json:"model,omitempty"`
	OtherModels []string `json:"others,omitempty"`
	ID          string   `json:"id,omitempty"`
	Ticket      string   `json:"ticket,omitempty"`
}

// AgentAnswer is an agent's answer to an order. BootID differs after a restart of its process.
type AgentAnswer struct {
	BootID string       `json:"boot"`
	Done   bool         `json:"done,omitempty"`
	Status serverStatus `json:"sight,omitzero"`
	Error  *wireError   `json:"error,omitempty"`
}

// RunUpdate reports the progress or the end of a run.
type RunUpdate struct {
	Number      uint64      `json:"number"`
	Tokens      int         `json:"tokens"`
	AddedTokens bool        `json:"added,omitempty"`
	Result      *WireResult `json:"end,omitempty"`
}

// AgentMessage is a message to the process that plans: updates of runs, or a question.
type AgentMessage struct {
	Term uint64      `json:"term"`
	Runs []RunUpdate `json:"runs,omitempty"`
	// Admission asks whether a request may come in.
	Admission *completions.Request `json:"ask,omitempty"`
}

// PlannerAnswer is the answer of the process that plans.
type PlannerAnswer struct {
	Refusal *completions.Refusal `json:"refused,omitempty"`
}

// WireResult is how a run ended, in the form that is sent.
type WireResult struct {
	Error        *wireError `json:"error,omitempty"`
	Finish       string     `json:"finish,omitempty"`
	PromptTokens int        `json:"prompt,omitempty"`
	OutputTokens int        `json:"output,omitempty"`
}

// wireError is an error in the form that is sent: its number in wireErrors, and its text.
type wireError struct {
	Kind   int    `json:"kind"`
	Status int    `json:"status,omitempty"`
	Text   string `json:"text"`
}

// wireErrors are the errors that callers distinguish, by number. If an error matches several, the first counts. All
// others have number 0 and only their text. The numbers never change, because processes of several versions talk to
// each other.
var wireErrors = []error{nil, errStatusUnknown, ErrOldTerm, errEvicted, errTakenOver, errNobodyWaits, errDiverged, llm.ErrNotResumed,
	llm.ErrFull, llm.ErrUnknownModel, llm.ErrUnauthorized, llm.ErrRefused, llm.ErrNoStream, llm.ErrBroken, llm.ErrGone, llm.ErrNoSuchPath, llm.ErrNoAdapter}

// firstLLMKind is the number of the first error that is the kind of an *llm.Error.
const firstLLMKind = 8

// ErrOldTerm is returned when another process plans.
var ErrOldTerm = errors.New("another process plans")

// toWireError converts an error to the form in which it is sent to another process: its text, status, and the
// number of its kind in wireErrors (0 if it has none there). It returns nil for nil.
func toWireError(err error) *wireError {
	if err == nil {
		return nil
	}
	w := &wireError{Text: err.Error()}
	for kind, e := range wireErrors {
		if kind > 0 && errors.Is(err, e) {
			w.Kind = kind
			break
		}
	}
	if serverErr, ok := errors.AsType[*llm.Error](err); ok {
		w.Status, w.Text = serverErr.Status, serverErr.Text
	}
	return w
}

// Err converts an error that another process has sent back, so that errors.Is finds its kind. Kinds from
// firstLLMKind on become an *llm.Error with its status. It returns nil for nil.
func (w *wireError) Err() error {
	switch {
	case w == nil:
		return nil
	case w.Kind <= 0 || w.Kind >= len(wireErrors):
		return errors.New(w.Text)
	}
	if w.Kind < firstLLMKind {
		return fmt.Errorf("%w (%s)", wireErrors[w.Kind], w.Text)
	}
	return &llm.Error{Kind: wireErrors[w.Kind], Status: w.Status, Text: w.Text}
}

// AgentName returns the name under which the agent of an instance can be asked over the store.
func AgentName(instance int) string { return "agent-" + strconv.Itoa(instance) }

// PlannerName is the name under which the process that plans can be asked.
const PlannerName = "planner"

// Encode returns a message as JSON.
func Encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // they are plain values
	}
	return data
}
