package jsonscan

import (
	"context"

	"inferplan/executor/httplimit"
)

// CheckInterval is the number of bytes after which a decoder checks whether its client is still there.
const CheckInterval = 1 << 20

// Progress counts what a decoder has read, so that the decoder stops when the client has disconnected. It also books
// the memory that decoding takes in addition to the body.
type Progress struct {
	Ctx        context.Context       // the client's context; nil if the client always waits
	MemoryHold *httplimit.MemoryHold // nil if nothing is booked
	unchecked  int                   // bytes since the last check
}

// AddBytes counts n bytes. It returns an error if the client has disconnected.
func (p *Progress) AddBytes(n int) *httplimit.Error {
	if p.unchecked += n; p.unchecked < CheckInterval {
		return nil
	}
	return p.CheckClient()
}

// CheckClient returns an error if the client has disconnected.
func (p *Progress) CheckClient() *httplimit.Error {
	p.unchecked = 0
	if p.Ctx == nil || p.Ctx.Err() == nil {
		return nil
	}
	return httplimit.AsError(p.Ctx.Err())
}

// BookMemory books n bytes of the memory for requests.
func (p *Progress) BookMemory(n int) *httplimit.Error {
	if p.MemoryHold == nil {
		return nil
	}
	return p.MemoryHold.Grow(int64(n))
}
