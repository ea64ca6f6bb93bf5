package load

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"inferplan/executor/oip"
)

// target is a server behind one protocol.
type target interface {
	// describe asks for a model's inputs and outputs.
	describe(ctx context.Context, m *Model) (*oip.ModelInfo, error)
	// prepare encodes a request but for its id and timeout.
	prepare(m *Model, in Inputs) (payload, error)
	// send sends a request and waits for its answer. The reason is empty when
	// the request was completed. timeout 0 sends none.
	send(ctx context.Context, p payload, id requestID, timeout time.Duration) (reason string)
	close()
}

// passedOver is the parameter of an answer that names the modules that its request did not
// come to.
const passedOver = "passed_over"

// payload is an encoded request; each target knows its own.
type payload any

// requestID numbers the requests of a run. On the wire it is 16 hexadecimal
// digits, so that a prepared request has room for it.
type requestID uint64

const idDigits = 16

func (id requestID) append(b []byte) []byte {
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, "0123456789abcdef"[id>>shift&15])
	}
	return b
}

func (id requestID) is(s string) bool {
	var room [idDigits]byte
	return string(id.append(room[:0])) == s
}

// checkAnswer holds a decoded answer against its request. One without outputs is right where
// it says that the request passed over the modules that have some.
func checkAnswer(resp *oip.Response, id requestID) (reason string) {
	switch {
	case !id.is(resp.ID):
		return errorPrefix + "wrong_id"
	case len(resp.Outputs) == 0 && resp.Params[passedOver] == nil:
		return errorPrefix + "no_outputs"
	}
	return ""
}

// template is the JSON of a request with places for id and timeout, which have
// a fixed width: JSON allows the blanks that fill it up.
type template struct {
	text        []byte
	idAt        int
	timeoutAt   int // 0: no timeout
	timeoutRoom int
}

const (
	idMark      = "ffffffffffffffff"
	timeoutMark = 9_999_999_999_999 * time.Microsecond // 115 days
)

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

// fill appends the text with id and timeout to b; to the protocol a timeout of
// 0 is none.
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
