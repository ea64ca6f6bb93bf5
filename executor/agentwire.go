package executor

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
	orderLook    = "look"
	orderPrepare = "prepare" // answered while it is under way, too
	orderLoad    = "load"    // likewise
	orderUnload  = "unload"  // likewise
	orderRun     = "run"
	orderLeave   = "leave" // the run with the number ends
)

// orderKinds are all of them.
var orderKinds = []string{orderLook, orderPrepare, orderLoad, orderUnload, orderRun, orderLeave}

// agentOrder is such a message. Term is that of the process that plans.
type agentOrder struct {
	Term   uint64   `json:"term"`
	What   string   `json:"what"`
	Number uint64   `json:"number,omitempty"`
	Model  string   `json:"model,omitempty"`
	Others []string `json:"others,omitempty"`
	ID     string   `json:"id,omitempty"`
	Ticket string   `json:"ticket,omitempty"`
}

// agentAnswer is the answer. Boot tells one process from the next.
type agentAnswer struct {
	Boot  string     `json:"boot"`
	Done  bool       `json:"done,omitempty"`
	Sight sight      `json:"sight,omitzero"`
	Error *wireError `json:"error,omitempty"`
}

// runNews is what an agent tells of a run.
type runNews struct {
	Number uint64   `json:"number"`
	Tokens int      `json:"tokens"`
	Added  bool     `json:"added,omitempty"`
	End    *wireEnd `json:"end,omitempty"`
}

// agentNews is what it tells of several.
type agentNews struct {
	Term uint64    `json:"term"`
	Runs []runNews `json:"runs,omitempty"`
	// Ask asks whether a request may come in.
	Ask *completions.Request `json:"ask,omitempty"`
}

// newsAnswer is the answer of the process that plans.
type newsAnswer struct {
	Refused *completions.Refusal `json:"refused,omitempty"`
}

// wireEnd is how a run ended.
type wireEnd struct {
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
var wireKinds = []error{nil, errUnseen, errOldTerm, errEvicted, errLeft, errOver, errDiverged, llm.ErrNotResumed,
	llm.ErrFull, llm.ErrUnknownModel, llm.ErrUnauthorized, llm.ErrRefused, llm.ErrNoStream, llm.ErrBroken, llm.ErrGone, llm.ErrNoSuchPath, llm.ErrNoAdapter}

// llmKind is the first of those that an *llm.Error has.
const llmKind = 8

// errOldTerm: another process plans.
var errOldTerm = errors.New("another process plans")

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

func (w *wireError) err() error {
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

// nameOfAgent is under which name the agent of an instance answers; planner that of the
// process that plans.
func nameOfAgent(instance int) string { return "agent-" + strconv.Itoa(instance) }

const planner = "planner"

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // they are plain values
	}
	return data
}
