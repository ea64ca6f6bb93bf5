package completions

import (
	"time"

	"inferplan/executor/tracing"
)

// Request is a stored request for text, as servers get it.
type Request struct {
	ID    string // the store's id; stable over restarts
	Model string // as the client named it
	Class string // SLO class; if empty, the model's default
	Chat  bool   // the body holds messages, not a prompt
	// Body is the client's JSON object without the fields that only the front end reads: stream, stream_options and
	// class. It contains model and max_tokens.
	Body []byte
	// Partial is the text that was generated before and is to be continued, and PartialTokens its number of tokens.
	// The server's text follows it.
	Partial       string
	PartialTokens int
	PromptTokens  int // estimated from bytes until a server reports it
	MaxTokens     int // of each choice; 0 if the client named no bound
	Choices       int // number of answers that the client wants
	// Events says that the answer is more than one text: Partial and what follows are lines of a log of package
	// deltas. Shown says that a client may have seen what is in Partial.
	Events, PartialShown bool
	Client               string // the sender: the name of its key, else its address; empty if unknown
	// Session is a number that the request shares with those whose tokens its prompt repeats; 0 if it has none.
	Session  int64
	Accepted time.Time
	Deadline time.Time // zero: the class's SLO decides
	// Parent is the span below which it runs; empty if there is none.
	Parent tracing.Parent
}

// Result is how a request ended. If Err is set, the text so far is still part of the answer.
type Result struct {
	Finish       string // OpenAI's finish_reason: stop, length, content_filter
	PromptTokens int    // 0 if unknown
	OutputTokens int    // including those of Partial; 0: the number that Text counted
	Err          error  // *Refusal, *ServerError or another error
}

// Model is a model that clients may name.
type Model struct {
	ID      string
	OwnedBy string
	Created time.Time
	Classes []string // SLO classes that a request may name, the default first; nil allows any
}

// Server decides about requests and has them answered. Its methods never wait long, and several goroutines may call
// them at once.
type Server interface {
	Models() []Model
	// Admit decides whether a request may come in now, before it is stored. An error refuses it: a *Refusal asks the
	// client to retry, any other error is a failure. retryAfter is the time after which the client should try again,
	// or 0 if it is unknown.
	Admit(r *Request) (retryAfter time.Duration, err error)
	// Serve takes over a stored request and calls out, now or later, possibly before Serve returns. The server may
	// keep the request.
	Serve(r *Request, out Output)
	// Forget reports that nobody wants the result any more. The server stops the request and may call Done. Whatever
	// it calls later is ignored.
	Forget(id string)
}

// Output receives the answer to a request. One goroutine at a time calls it. No call waits for a client.
type Output interface {
	// Text adds the next piece of the answer, which has the given number of tokens.
	Text(delta string, tokens int)
	// Partial stores the text so far, because the request was evicted or its server is gone. It returns when the text
	// is stored or storing has failed.
	Partial() error
	// Done ends the request. It is called once.
	Done(r Result)
}

// Refusal is the reason why a request is not accepted, or is given up. Nothing is broken, and the same request may
// succeed later. Clients see status 429.
type Refusal struct {
	Reason     string        // a word for programs, such as overload or deadline
	Msg        string        // for people
	RetryAfter time.Duration // from now on; 0 if unknown
}

func (r *Refusal) Error() string { return r.Msg }

// ServerError is an error of a server that repeats if it is asked again, such as 400 for a prompt that exceeds the
// context.
type ServerError struct {
	Status            int // of HTTP
	Type, Code, Param string
	Msg               string
}

func (e *ServerError) Error() string { return e.Msg }
