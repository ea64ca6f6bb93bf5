package arrivals

import (
	"io"
	"time"
)

// Request is one request of a stream.
type Request struct {
	ArrivedAt    time.Duration // since the start of the stream
	Model        int32         // index into the caller's models
	SLO          time.Duration // 0 means the model's
	ID           string
	PromptTokens int32
	OutputTokens int32
	Session      int64 // the session of a request that repeats earlier tokens; 0 if it has none
	Class        string
	Client       string // the client that sends it, or "" if it is not known
}

// Source yields requests in nondecreasing order of ArrivedAt. Next overwrites *r and
// returns false at the end; it is called by one goroutine.
type Source interface {
	Next(r *Request) bool
}

// Err returns the error that stopped the source early, if it is a source that can fail.
func Err(s Source) error {
	if e, ok := s.(interface{ Err() error }); ok {
		return e.Err()
	}
	return nil
}

// Close closes the files behind the source, if it has any.
func Close(s Source) error {
	if c, ok := s.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// Slice returns a source that yields the given requests, which are in order.
func Slice(requests []Request) Source { return &sliceSource{remaining: requests} }

type sliceSource struct{ remaining []Request }

// Next sets r to the first request left in the slice, and takes it out. It returns false when none is left.
func (s *sliceSource) Next(r *Request) bool {
	if len(s.remaining) == 0 {
		return false
	}
	*r, s.remaining = s.remaining[0], s.remaining[1:]
	return true
}

// Collect takes all requests of a source, at most limit of them when limit is
// positive.
func Collect(s Source, limit int) ([]Request, error) {
	var out []Request
	var r Request
	for (limit <= 0 || len(out) < limit) && s.Next(&r) {
		out = append(out, r)
	}
	return out, Err(s)
}

// mappedSource is a source whose requests are those of another, after a function.
type mappedSource struct {
	Source
	transform func(r *Request) bool
}

func (c *mappedSource) Next(r *Request) bool { return c.transform(r) }
func (c *mappedSource) Err() error           { return Err(c.Source) }
func (c *mappedSource) Close() error         { return Close(c.Source) }

// OnlyModels returns a source with only those requests of s whose models are wanted. isWanted is by the index of the
// model.
func OnlyModels(s Source, isWanted []bool) Source {
	return &mappedSource{s, func(r *Request) bool {
		for s.Next(r) {
			if int(r.Model) < len(isWanted) && isWanted[r.Model] {
				return true
			}
		}
		return false
	}}
}

// OfClass returns a source whose requests are those of s, all in one class.
func OfClass(s Source, class string) Source {
	return &mappedSource{s, func(r *Request) bool {
		ok := s.Next(r)
		r.Class = class
		return ok
	}}
}

// EndAt ends a source before the first request at or after end.
func EndAt(s Source, end time.Duration) Source {
	return &mappedSource{s, func(r *Request) bool { return s.Next(r) && r.ArrivedAt < end }}
}
