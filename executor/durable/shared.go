package durable

import (
	"context"
	"errors"
)

// Shared is a store that several processes use at once. They also exchange messages over it: which process plans,
// which one serves a request, and how the request goes on.
type Shared interface {
	Store
	// HandOver returns a ticket with which another process can take over a record that this process has claimed. The
	// claim stays: the record can be claimed again only when both processes are gone. From then on the caller stores
	// no text of the record, and its result counts whatever text there is.
	HandOver(id string) (ticket string, err error)
	// Adopt takes over a record that another process has handed over. It returns ErrFinished if the record has ended.
	Adopt(ctx context.Context, id, ticket string) (*State, error)
	// Follow calls notify with the text and the result of a record once they are durable, in their order, until stop
	// is called. Calls may get lost, so the caller also has to call Get from time to time.
	Follow(id string, notify func(Change)) (stop func(), err error)
	// FollowEnds calls notify for each record that ends from now on, once that is durable, until ctx ends. No call
	// gets lost; some may be repeated.
	FollowEnds(ctx context.Context, notify func(id string)) error
	// Lead waits until no other process leads, and then calls lead, with a context that ends when another process may
	// lead. Terms grow from leader to leader. Lead returns when ctx has ended and lead has returned.
	Lead(ctx context.Context, lead func(ctx context.Context, term uint64)) error
	// Term returns the term of the process that leads. If none is known to lead, it returns 0.
	Term(ctx context.Context) (uint64, error)
	// RefusedMessages returns the number of messages that came here and were written by none of our processes.
	RefusedMessages() uint64
	// Ask sends a message to the process that answers under a name, and returns its answer. Either may get lost, so
	// ctx bounds the wait. It returns ErrNoAnswerer if no process answers.
	Ask(ctx context.Context, name string, message []byte) ([]byte, error)
	// Answer calls take for each message to a name, in their order. take answers with reply, at once or later. stop
	// ends it.
	Answer(name string, take func(message []byte, reply func(answer []byte))) (stop func(), err error)
}

// Change is text that was added to a record, or its result.
type Change struct {
	ID     string
	Offset int // length of the text before Text, in bytes
	Text   []byte
	Tokens int    // of Text
	Result []byte // set if Ended
	Ended  bool
}

// ErrNoAnswerer is returned when no process answers under a name.
var ErrNoAnswerer = errors.New("no process answers")
