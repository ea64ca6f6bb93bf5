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
const passedOver = "passed_over"

// payload is an encoded request. Each target has its own type.
type payload any

// requestID is the number of a request in the run. It is sent as 16 hexadecimal digits, so that it has a fixed place
// in a payload.
type requestID uint64

const idDigits = 16

// append appends the digits of the id.
func (id requestID) append(b []byte) []byte {
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, "0123456789abcdef"[id>>shift&15])
	}
	return b
}

// matches reports whether s is the id.
func (id requestID) is(s string) bool {
	var room [idDigits]byte
	return string(id.append(room[:0])) == s
}

// checkAnswer compares a decoded answer with its request, and returns a reason if they differ. An answer without
// outputs is correct if it says that the request skipped the modules that have some.
func checkAnswer(resp *oip.Response, id requestID) (reason string) {
	switch {
	case !id.is(resp.ID):
		return errorPrefix + "wrong_id"
	case len(resp.Outputs) == 0 && resp.Params[passedOver] == nil:
		return errorPrefix + "no_outputs"
	}
	return ""
}

// requestTemplate is the JSON of a request with places of fixed width for the id and the timeout. JSON allows the
// blanks behind a short timeout.
type template struct {
	text        []byte
	idAt        int
	timeoutAt   int // 0 if there is no timeout
	timeoutRoom int
}

// Values that mark the places in the JSON.
const (
	idMark      = "ffffffffffffffff"
	timeoutMark = 9_999_999_999_999 * time.Microsecond // 115 days
)

// newTemplate encodes a request and finds the places of its id and timeout.
func newTemplate(class string, in Inputs, binary, timeout bool) (*template, error) {
	r := &oip.Request{ID: idMark, Class: class, Inputs: in}
	if timeout {
		r.Timeout = timeoutMark
	}
	text, err := oip.EncodeRequest(nil, r, binary, binary)
	if err != nil {
		return nil, fmt.Errorf("encoding a request: %w", err)
	}
	t := &template{text: text}
	if t.idAt = bytes.Index(text, []byte(idMark)); t.idAt < 0 {
		return nil, fmt.Errorf("encoding a request: its id is not in %q", text)
	}
	if timeout {
		mark := strconv.FormatInt(r.Timeout.Microseconds(), 10)
		t.timeoutRoom = len(mark)
		if t.timeoutAt = bytes.Index(text, []byte(`"timeout":`+mark)); t.timeoutAt < 0 {
			return nil, fmt.Errorf("encoding a request: its timeout is not in %q", text)
		}
		t.timeoutAt += len(`"timeout":`)
	}
	return t, nil
}

// fill appends the JSON with an id and a timeout to b.
func (t *template) fill(b []byte, id requestID, timeout time.Duration) []byte {
	start := len(b)
	b = append(b, t.text...)
	text := b[start:]
	id.append(text[t.idAt:t.idAt])
	if t.timeoutAt > 0 {
		place := text[t.timeoutAt : t.timeoutAt+t.timeoutRoom]
		n := len(strconv.AppendInt(place[:0], min(timeout, timeoutMark).Microseconds(), 10))
		for i := n; i < len(place); i++ {
			place[i] = ' '
		}
	}
	return b
}
