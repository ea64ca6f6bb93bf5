package arrivals

import (
	"io"
	"time"
)

// Request is one request of a stream.
type Request struct {
	At           time.Duration // since the start of the stream
	Model        int32         // index into the caller's models
	SLO          time.Duration // 0 means the model's
	ID           string
	PromptTokens int32
	OutputTokens int32
	Session      int64 // the session of a request that repeats earlier tokens; 0 if it has none
	Class        string
	Client       string // the client that sends it, or "" if it is not known
}

// Source yields requests in nondecreasing order of At. Next overwrites *r and
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
func Slice(requests []Request) Source { return &slice{rest: requests} }

type slice struct{ rest []Request }

func (s *slice) Next(r *Request) bool {
	if len(s.rest) == 0 {
		return false
	}
	*r, s.rest = s.rest[0], s.rest[1:]
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

// changed is a source whose requests are those of another, after a function.
type changed struct {
	Source
	next func(r *Request) bool
}

func (c *changed) Next(r *Request) bool { return c.next(r) }
func (c *changed) Err() error           { return Err(c.Source) }
func (c *changed) Close() error         { return Close(c.Source) }

// Only leaves out the requests of models that are not wanted.
func Only(s Source, wanted []bool) Source {
	return &changed{s, func(r *Request) bool {
		for s.Next(r) {
			if int(r.Model) < len(wanted) && wanted[r.Model] {
				return true
			}
		}
		return false
	}}
}

// OfClass gives all requests of a source one class.
func OfClass(s Source, class string) Source {
	return &changed{s, func(r *Request) bool {
		ok := s.Next(r)
		r.Class = class
		return ok
	}}
}

// Until ends a source before the first request at or after end.
func Until(s Source, end time.Duration) Source {
	return &changed{s, func(r *Request) bool { return s.Next(r) && r.At < end }}
}
