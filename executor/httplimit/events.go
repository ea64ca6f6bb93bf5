package httplimit

import (
	"encoding/json"
	"net/http"
	"time"
)

// Events writes server-sent events.
type Events struct {
	w            http.ResponseWriter
	ctl          *http.ResponseController
	stallTimeout time.Duration // time that a client may take to read an event
	begun        bool
}

// NewEvents returns a writer of events. A client that does not read for the stall timeout is cut off.
func NewEvents(w http.ResponseWriter, stall time.Duration) *Events {
	return &Events{w: w, ctl: http.NewResponseController(w), stallTimeout: stall}
}

// HasBegun reports whether the head of the answer is written. Then an error can no longer have its own status.
func (e *Events) HasBegun() bool { return e.begun }

// Send writes an event with a value as JSON. It returns an error if the client has disconnected or does not read.
func (e *Events) Send(v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return e.SendLine("data: ", body)
}

// SendLine writes one server-sent event (a line with a prefix such as "data: ", and an empty line after it) and sends it
// at once. The first call also writes the headers. It returns an error if the client is gone, or does not read within
// stallTimeout.
func (e *Events) SendLine(prefix string, body []byte) error {
	if !e.begun {
		e.begun = true
		h := e.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no")
		e.w.WriteHeader(http.StatusOK)
	}
	_ = e.ctl.SetWriteDeadline(time.Now().Add(e.stallTimeout)) // the writer of a test has no deadlines
	if _, err := e.w.Write(append(append([]byte(prefix), body...), "\n\n"...)); err != nil {
		return err
	}
	return e.ctl.Flush()
}
