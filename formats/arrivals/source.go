package arrivals

import (
	"io"
	"time"
)

// Request is one request of a stream.
type Request struct {
	At           time.Duration // since the start of the stream
	Model        int32         // index into the caller's models
	SLO          time.Duration // 0: the model's own
	ID           string
	PromptTokens int32
	OutputTokens int32
	Session      int64 // of requests that repeat what was said before; 0: none
	Class        string
}

// Source yields requests in nondecreasing order of At. Next overwrites *r and
// returns false at the end; it is called by one goroutine.
type Source interface {
	Next(r *Request) bool
}

// Err returns what stopped the source early, if it is one that can fail.
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

// Only leaves out the requests of models that are not wanted.
func Only(s Source, wanted []bool) Source { return &only{s, wanted} }

type only struct {
	Source
	wanted []bool
}

func (o *only) Next(r *Request) bool {
	for o.Source.Next(r) {
		if int(r.Model) < len(o.wanted) && o.wanted[r.Model] {
			return true
		}
	}
	return false
}
func (o *only) Err() error   { return Err(o.Source) }
func (o *only) Close() error { return Close(o.Source) }

// OfClass gives all requests of a source one class.
func OfClass(s Source, class string) Source { return &ofClass{s, class} }

type ofClass struct {
	Source
	class string
}

func (o *ofClass) Next(r *Request) bool {
	ok := o.Source.Next(r)
	r.Class = o.class
	return ok
}
func (o *ofClass) Err() error   { return Err(o.Source) }
func (o *ofClass) Close() error { return Close(o.Source) }

// Until ends a source before the first request at or after end.
func Until(s Source, end time.Duration) Source { return &until{s, end} }

type until struct {
	Source
	end time.Duration
}

func (u *until) Next(r *Request) bool { return u.Source.Next(r) && r.At < u.end }
func (u *until) Err() error           { return Err(u.Source) }
func (u *until) Close() error         { return Close(u.Source) }
