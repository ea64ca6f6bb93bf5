package load

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"inferplan/executor/oip"
)

// target is a server over one protocol.
type target interface {
	// describe asks for a model's inputs and outputs.
	describe(ctx context.Context, m *Model) (*oip.ModelInfo, error)
	// prepare encodes a request except for its id and timeout.
	prepare(m *Model, in Inputs) (payload, error)
	// send sends a request and waits for its answer. If the request was completed, reason is empty. A timeout of 0 is
	// not sent.
	send(ctx context.Context, p payload, id requestID, timeout time.Duration) (reason string)
	close()
}

// skippedParam is the parameter of an answer that names the modules that the request's path has skipped.
const skippedParam = "passed_over"

// payload is an encoded request. Each target has its own type.
type payload any

// requestID is the number of a request in the run. It is sent as 16 hexadecimal digits, so that it has a fixed place
// in a payload.
type requestID uint64

const idDigits = 16

// append appends the id to b as 16 hexadecimal digits.
func (id requestID) append(b []byte) []byte {
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, "0123456789abcdef"[id>>shift&15])
	}
	return b
}

// matches reports whether s is the id.
func (id requestID) matches(s string) bool {
	var buf [idDigits]byte
	return string(id.append(buf[:0])) == s
}

// checkAnswer returns a reason if a decoded answer is not one to the request with this id, and nothing if it is
// good. An answer without outputs is good if it says that the request skipped the modules that have some.
func checkAnswer(resp *oip.Response, id requestID) (reason string) {
	switch {
	case !id.matches(resp.ID):
		return errorPrefix + "wrong_id"
	case len(resp.Outputs) == 0 && resp.Params[skippedParam] == nil:
		return errorPrefix + "no_outputs"
	}
	return ""
}

// requestTemplate is the JSON of a request with places of fixed width for the id and the timeout. JSON allows the
// blanks behind a short timeout.
type requestTemplate struct {
	text          []byte
	idOffset      int
	timeoutOffset int // 0 if there is no timeout
	timeoutWidth  int
}

// Values that mark the places in the JSON.
const (
	idMark      = "ffffffffffffffff"
	timeoutMark = 9_999_999_999_999 * time.Microsecond // 115 days
)

// newTemplate encodes a request once, with marks in place of id and timeout, and returns the text with the
// positions of the marks. binary leaves the tensors out of the text. Without timeout none is sent.
func newTemplate(class string, in Inputs, binary, timeout bool) (*requestTemplate, error) {
	r := &oip.Request{ID: idMark, Class: class, Inputs: in}
	if timeout {
		r.Timeout = timeoutMark
	}
	text, err := oip.EncodeRequest(nil, r, binary, binary)
	if err != nil {
		return nil, fmt.Errorf("encoding a request: %w", err)
	}
	t := &requestTemplate{text: text}
	if t.idOffset = bytes.Index(text, []byte(idMark)); t.idOffset < 0 {
		return nil, fmt.Errorf("encoding a request: its id is not in %q", text)
	}
	if timeout {
		mark := strconv.FormatInt(r.Timeout.Microseconds(), 10)
		t.timeoutWidth = len(mark)
		if t.timeoutOffset = bytes.Index(text, []byte(`"timeout":`+mark)); t.timeoutOffset < 0 {
			return nil, fmt.Errorf("encoding a request: its timeout is not in %q", text)
		}
		t.timeoutOffset += len(`"timeout":`)
	}
	return t, nil
}

// fill appends the template's JSON to b, with an id and a timeout (in us) in the places that the template has for them,
// and returns b. The timeout is padded with spaces to the width of its place, so that all requests have the same length.
func (t *requestTemplate) fill(b []byte, id requestID, timeout time.Duration) []byte {
	start := len(b)
	b = append(b, t.text...)
	text := b[start:]
	id.append(text[t.idOffset:t.idOffset])
	if t.timeoutOffset > 0 {
		field := text[t.timeoutOffset : t.timeoutOffset+t.timeoutWidth]
		n := len(strconv.AppendInt(field[:0], min(timeout, timeoutMark).Microseconds(), 10))
		for i := n; i < len(field); i++ {
			field[i] = ' '
		}
	}
	return b
}
