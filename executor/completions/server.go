package completions

import "time"

// Request is a request for text that the store holds.
type Request struct {
	ID    string // of the store; stable over restarts
	Model string // as the client named it
	Class string // SLO class; empty: the model's default
	Chat  bool   // messages, not a prompt
	// Body is the client's JSON object without the fields that are the front end's:
	// stream, stream_options and class. Model and max_tokens are in it.
	Body []byte
	// Partial is text that was made before and is to be continued; PartialTokens is how
	// many tokens it has. Text that comes is what follows it.
	Partial       string
	PartialTokens int
	PromptTokens  int // estimated from bytes until a server says it
	MaxTokens     int // of a choice; 0: the client named no bound
	Choices       int // answers that are asked for
	// Events: the answer is more than a text. Partial and what comes are lines of the log
	// of package deltas. Shown: a client may have seen what is in Partial.
	Events, Shown bool
	Client        string // who sends it: the name of its key, else its address; empty: not known
	Accepted      time.Time
	Deadline      time.Time // zero: the class's SLO
}

// Result is how a request ended. With an error the text so far is part of it.
type Result struct {
	Finish       string // OpenAI's finish_reason: stop, length, content_filter
	PromptTokens int    // 0: not known
	OutputTokens int    // with those of Partial; 0: those that Text counted
	Err          error  // *Refusal, *ServerError or another error
}

// Model is a model that clients may name.
type Model struct {
	ID            string
	OwnedBy       string
	Created       time.Time
	ContextTokens int      // 0: not known
	Classes       []string // SLO classes that a request may name, the default first; nil: any
}

// Server decides about requests and has them answered. Its calls never wait long, and
// may come from several goroutines at once.
type Server interface {
	Models() []Model
	// Admit says whether a request may come in now, before it is stored. An error refuses
	// it: a *Refusal, else a failure. retryAfter says when to come again; 0: not known.
	Admit(r *Request) (retryAfter time.Duration, err error)
	// Serve takes a stored request over and calls out, now or later, also before it
	// returns. The request is the server's to keep.
	Serve(r *Request, out Output)
	// Forget says that nobody wants the result any more. The server stops the request
	// and may call Done; what it calls later is ignored.
	Forget(id string)
}

// Output takes what becomes of a request. One goroutine at a time calls it. No call
// waits for a client.
type Output interface {
	// Text is what came next, with its number of tokens.
	Text(delta string, tokens int)
	// Partial has the text so far stored, because the request was evicted or its
	// server is gone. It returns when that is done or has failed.
	Partial() error
	// Done ends the request. It is called once.
	Done(r Result)
}

// Refusal is why a request is not taken, or is given up: nothing is broken, and the
// same request may succeed later. Clients see 429.
type Refusal struct {
	Reason     string        // a word for machines, such as overload or deadline
	Msg        string        // for people
	RetryAfter time.Duration // from now on; 0: not known
}

func (r *Refusal) Error() string { return r.Msg }

// ServerError is the answer of a server that will not change when it is asked again,
// such as 400 for a prompt beyond the context.
type ServerError struct {
	Status            int // of HTTP
	Type, Code, Param string
	Msg               string
}

func (e *ServerError) Error() string { return e.Msg }
