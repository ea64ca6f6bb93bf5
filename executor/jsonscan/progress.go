package jsonscan

import (
	"context"

	"inferplan/executor/httplimit"
)

// LookEvery is after how many bytes a decoder looks whether its client is still
// there.
const LookEvery = 1 << 20

// Progress counts what a decoder has read, so that it stops when nobody waits
// for the answer, and books the memory that it takes beside the body.
type Progress struct {
	Ctx  context.Context // nil: somebody always waits
	Hold *httplimit.Hold // nil: nothing is booked
	seen int             // bytes since the last look
}

// Read notes n bytes; an error says that the client is gone.
func (p *Progress) Read(n int) *httplimit.Error {
	if p.seen += n; p.seen < LookEvery {
		return nil
	}
	return p.Look()
}

func (p *Progress) Look() *httplimit.Error {
	p.seen = 0
	if p.Ctx == nil || p.Ctx.Err() == nil {
		return nil
	}
	return httplimit.AsError(p.Ctx.Err())
}

// Book takes n bytes from the memory for requests.
func (p *Progress) Book(n int) *httplimit.Error {
	if p.Hold == nil {
		return nil
	}
	return p.Hold.Grow(int64(n))
}
