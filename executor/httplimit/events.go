package httplimit

import (
	"encoding/json"
	"net/http"
	"time"
)

// Events writes server-sent events.
type Events struct {
	w     http.ResponseWriter
	ctl   *http.ResponseController
	stall time.Duration // that a client may take to read an event
	begun bool
}

// NewEvents returns a writer of events. A client that does not read for a time is gone.
func NewEvents(w http.ResponseWriter, stall time.Duration) *Events {
	return &Events{w: w, ctl: http.NewResponseController(w), stall: stall}
}

// Begun returns true if the head of the answer is written: an error can no longer be a status.
func (e *Events) Begun() bool { return e.begun }

// Send writes an event with JSON. If the client is gone, or does not read, it returns an error.
func (e *Events) Send(v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return e.Line("data: ", body)
}

// Line writes a line with a prefix, and an empty one behind it.
func (e *Events) Line(prefix string, body []byte) error {
	if !e.begun {
		e.begun = true
		h := e.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no")
		e.w.WriteHeader(http.StatusOK)
	}
	_ = e.ctl.SetWriteDeadline(time.Now().Add(e.stall)) // a writer of tests has none
	if _, err := e.w.Write(append(append([]byte(prefix), body...), "\n\n"...)); err != nil {
		return err
	}
	return e.ctl.Flush()
}
