package oip

import (
	"context"

	"inferplan/executor/httplimit"
)

// lookEvery is after how many bytes a decoder looks whether its client is still
// there.
const lookEvery = 1 << 20

// progress counts what a decoder has read, so that it stops when nobody waits
// for the answer, and books the memory that it takes beside the body.
type progress struct {
	ctx  context.Context // nil: somebody always waits
	hold *httplimit.Hold // nil: nothing is booked
	seen int             // bytes since the last look
}

// read notes n bytes; an error says that the client is gone.
func (p *progress) read(n int) *Error {
	if p.seen += n; p.seen < lookEvery {
		return nil
	}
	return p.look()
}

func (p *progress) look() *Error {
	p.seen = 0
	if p.ctx == nil || p.ctx.Err() == nil {
		return nil
	}
	return httplimit.AsError(p.ctx.Err())
}

// book takes n bytes from the memory for requests.
func (p *progress) book(n int) *Error {
	if p.hold == nil {
		return nil
	}
	return p.hold.Grow(int64(n))
}
