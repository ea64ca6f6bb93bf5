package text

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"inferplan/engine/llm"
	"inferplan/executor/completions"
)

// What the process that plans tells that of an agent. An order that is sent again means
// the same one: its number says so.
const (
	OrderLook    = "look"
	OrderPrepare = "prepare" // answered while it is under way, too
	OrderLoad    = "load"    // likewise
	OrderUnload  = "unload"  // likewise
	OrderRun     = "run"
	OrderLeave   = "leave" // the run with the number ends
)

// orderKinds are all of them.
var orderKinds = []string{OrderLook, OrderPrepare, OrderLoad, OrderUnload, OrderRun, OrderLeave}

// AgentOrder is such a message. Term is that of the process that plans.
type AgentOrder struct {
	Term   uint64   `json:"term"`
	What   string   `json:"what"`
	Number uint64   `json:"number,omitempty"`
	Model  string   `json:"model,omitempty"`
	Others []string `json:"others,omitempty"`
	ID     string   `json:"id,omitempty"`
	Ticket string   `json:"ticket,omitempty"`
}

// AgentAnswer is the answer. Boot tells one process from the next.
type AgentAnswer struct {
	Boot  string     `json:"boot"`
	Done  bool       `json:"done,omitempty"`
	Sight sight      `json:"sight,omitzero"`
	Error *wireError `json:"error,omitempty"`
}

// RunNews is what an agent tells of a run.
type RunNews struct {
	Number uint64   `json:"number"`
	Tokens int      `json:"tokens"`
	Added  bool     `json:"added,omitempty"`
	End    *WireEnd `json:"end,omitempty"`
}

// AgentNews is what it tells of several.
type AgentNews struct {
	Term uint64    `json:"term"`
	Runs []RunNews `json:"runs,omitempty"`
	// Ask asks whether a request may come in.
	Ask *completions.Request `json:"ask,omitempty"`
}

// NewsAnswer is the answer of the process that plans.
type NewsAnswer struct {
	Refused *completions.Refusal `json:"refused,omitempty"`
}

// WireEnd says how a run ended.
type WireEnd struct {
	Error  *wireError `json:"error,omitempty"`
	Finish string     `json:"finish,omitempty"`
	Prompt int        `json:"prompt,omitempty"`
	Output int        `json:"output,omitempty"`
}

// wireError is an error between processes: which of those that callers tell apart, and
// what it says.
type wireError struct {
	Kind   int    `json:"kind"`
	Status int    `json:"status,omitempty"`
	Text   string `json:"text"`
}

// wireKinds are the errors that callers tell apart. Of an error that is several of them
// the first counts. Others, of kind 0, have their text alone. Processes of several
// versions talk to each other: the places stay.
var wireKinds = []error{nil, errUnseen, ErrOldTerm, errEvicted, errLeft, errOver, errDiverged, llm.ErrNotResumed,
	llm.ErrFull, llm.ErrUnknownModel, llm.ErrUnauthorized, llm.ErrRefused, llm.ErrNoStream, llm.ErrBroken, llm.ErrGone, llm.ErrNoSuchPath, llm.ErrNoAdapter}

// llmKind is the first of those that an *llm.Error has.
const llmKind = 8

// ErrOldTerm: another process plans.
var ErrOldTerm = errors.New("another process plans")

func toWire(err error) *wireError {
	if err == nil {
		return nil
	}
	w := &wireError{Text: err.Error()}
	for kind, e := range wireKinds {
		if kind > 0 && errors.Is(err, e) {
			w.Kind = kind
			break
		}
	}
	var said *llm.Error
	if errors.As(err, &said) {
		w.Status, w.Text = said.Status, said.Text
	}
	return w
}

func (w *wireError) Err() error {
	switch {
	case w == nil:
		return nil
	case w.Kind <= 0 || w.Kind >= len(wireKinds):
		return errors.New(w.Text)
	}
	if w.Kind < llmKind {
		return fmt.Errorf("%w (%s)", wireKinds[w.Kind], w.Text)
	}
	return &llm.Error{Kind: wireKinds[w.Kind], Status: w.Status, Text: w.Text}
}

// NameOfAgent is under which name the agent of an instance answers; planner that of the
// process that plans.
func NameOfAgent(instance int) string { return "agent-" + strconv.Itoa(instance) }

const Planner = "planner"

func Encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // they are plain values
	}
	return data
}
