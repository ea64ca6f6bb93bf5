package jsonscan

import (
	"context"

	"inferplan/executor/httplimit"
)

// CheckInterval is the number of bytes after which a decoder checks whether its client is still there.
const LookEvery = 1 << 20

// Progress counts what a decoder has read, so that the decoder stops when the client has disconnected. It also books
// the memory that decoding takes in addition to the body.
type Progress struct {
	Ctx  context.Context // the client's context; nil if the client always waits
	Hold *httplimit.Hold // nil if nothing is booked
	seen int             // bytes since the last check
}

// AddBytes counts n bytes. It returns an error if the client has disconnected.
func (p *Progress) Read(n int) *httplimit.Error {
	if p.seen += n; p.seen < LookEvery {
		return nil
	}
	return p.Look()
}

// CheckClient returns an error if the client has disconnected.
func (p *Progress) Look() *httplimit.Error {
	p.seen = 0
	if p.Ctx == nil || p.Ctx.Err() == nil {
		return nil
	}
	return httplimit.AsError(p.Ctx.Err())
}

// BookMemory books n bytes of the memory for requests.
func (p *Progress) Book(n int) *httplimit.Error {
	if p.Hold == nil {
		return nil
	}
	return p.Hold.Grow(int64(n))
}
