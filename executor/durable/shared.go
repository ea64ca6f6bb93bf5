package durable

import (
	"context"
	"errors"
)

// Shared is a store that several processes use at once. They talk over it, too: who
// plans, who serves which request, and what becomes of it.
type Shared interface {
	Store
	// Hand says how another process takes over a record that this one has claimed. The
	// claim stays: the record comes again only when both are gone. From then on the
	// caller stores no text of it, and its end counts whatever text there is.
	Hand(id string) (ticket string, err error)
	// Adopt takes over a record that another process handed on. ErrFinished: it has ended.
	Adopt(ctx context.Context, id, ticket string) (*State, error)
	// Follow tells of the text and the end of a record once they are durable, in their
	// order, from now on until stop is called. What it tells may get lost: who follows
	// asks Get from time to time.
	Follow(id string, tell func(Change)) (stop func(), err error)
	// Ends tells which records have ended, once that is durable, from now on until ctx
	// ends. Nothing gets lost. It may be told twice.
	Ends(ctx context.Context, tell func(id string)) error
	// Lead waits until no other process leads and calls lead. That context ends when
	// another process may lead. Terms grow from leader to leader. Lead returns when ctx
	// has ended, and lead.
	Lead(ctx context.Context, lead func(ctx context.Context, term uint64)) error
	// Term is that of the process that leads; 0: none does, as far as is known.
	Term(ctx context.Context) (uint64, error)
	// Refused is how many messages came here that were none of ours.
	Refused() uint64
	// Ask sends a message to the process that answers under a name, and waits for its
	// answer. Both may get lost: ctx bounds the wait. ErrNobody: no process answers.
	Ask(ctx context.Context, name string, message []byte) ([]byte, error)
	// Answer has take called for each message to a name, in their order. It answers with
	// reply, then or later. stop ends it.
	Answer(name string, take func(message []byte, reply func(answer []byte))) (stop func(), err error)
}

// Change is what has become of a record.
type Change struct {
	ID     string
	At     int // bytes of text before Text
	Text   []byte
	Tokens int    // of Text
	End    []byte // with Ended
	Ended  bool
}

// ErrNobody: there is no process that answers.
var ErrNobody = errors.New("no process answers")
