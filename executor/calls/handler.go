package calls

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"strconv"
	"time"

	"inferplan/formats/calls"
)

// Handler serves the HTTP form over a backend.
type Handler struct {
	store
	mux *http.ServeMux
}

// NewHandler makes a handler. Mount it at calls.Path and below.
func NewHandler(b Backend, limits Limits) *Handler {
	h := &Handler{store: store{limits: limits.withDefaults(), backend: b, requests: map[string]*request{}, clients: map[string]int{}}, mux: http.NewServeMux()}
	h.mux.HandleFunc("POST "+calls.Path, h.begin)
	h.mux.HandleFunc("POST "+calls.Path+"/{request}/tasks", h.enqueue)
	h.mux.HandleFunc("GET "+calls.Path+"/{request}/tasks/{task}", h.result)
	h.mux.HandleFunc("GET "+calls.Path+"/{request}/tasks/{task}/stream", h.stream)
	h.mux.HandleFunc("DELETE "+calls.Path+"/{request}", h.delete)
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// Open is the number of requests that are open.
func (h *Handler) Open() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.requests)
}

// Drain takes in no request any more, waits until those that are open have ended, and
// ends what is left when ctx does.
func (h *Handler) Drain(ctx context.Context) { h.drain(ctx) }

func (h *Handler) begin(w http.ResponseWriter, r *http.Request) {
	var o calls.Open
	if !h.read(w, r, &o) {
		return
	}
	if !(o.TimeoutMS >= 0 && o.TimeoutMS <= 1e9) {
		fail(w, fmt.Errorf("timeout_ms: found %v, expected 0 to 1e9", o.TimeoutMS))
		return
	}
	client, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		client = r.RemoteAddr
	}
	q, err := h.open(&o, client)
	if err != nil {
		fail(w, err)
		return
	}
	write(w, http.StatusCreated, calls.Opened{Request: q.name})
}

func (h *Handler) enqueue(w http.ResponseWriter, r *http.Request) {
	q := h.find(w, r)
	if q == nil {
		return
	}
	defer h.release(q)
	var e calls.Enqueue
	if !h.read(w, r, &e) {
		return
	}
	tasks, err := q.add(&e)
	if err == nil {
		if err = h.backend.Enqueue(q.name, tasks, q); err != nil {
			q.undo(len(tasks))
		}
	}
	if err != nil {
		fail(w, err)
		return
	}
	out := calls.Enqueued{}
	for i := range tasks {
		out.Tasks = append(out.Tasks, tasks[i].Handle)
	}
	write(w, http.StatusCreated, out)
}

// find is the request of a path; nil: it was answered that there is none.
func (h *Handler) find(w http.ResponseWriter, r *http.Request) *request {
	q := h.use(r.PathValue("request"))
	if q == nil {
		write(w, http.StatusNotFound, calls.Failure{Error: "no such request: it was never opened, or has ended"})
	}
	return q
}

func (h *Handler) result(w http.ResponseWriter, r *http.Request) {
	q := h.find(w, r)
	if q == nil {
		return
	}
	defer h.release(q)
	wait := time.Duration(0)
	if text := r.URL.Query().Get("wait"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			fail(w, fmt.Errorf("wait: found %q, expected a duration such as 5s", text))
			return
		}
		wait = min(d, h.limits.Wait)
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	for {
		res, _, changed, err := q.look(calls.Handle(r.PathValue("task")), 0)
		if err != nil {
			fail(w, err)
			return
		}
		if res.State != calls.Running || ctx.Err() != nil {
			write(w, http.StatusOK, res)
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// stream sends pieces as they come.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request) {
	q := h.find(w, r)
	if q == nil {
		return
	}
	defer h.release(q)
	sent, begun := 0, false
	// A stream lasts as long as its task. Each of its events has to be taken in time.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // a server may have none
	for {
		_ = control.SetWriteDeadline(time.Now().Add(h.limits.Wait))
		res, pieces, changed, err := q.look(calls.Handle(r.PathValue("task")), sent)
		if err != nil && !begun {
			fail(w, err)
			return
		}
		if err != nil {
			return
		}
		if !begun {
			begun = true
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Cache-Control", "no-store")
		}
		for _, p := range pieces {
			if !event(w, calls.PieceEvent, p) {
				return
			}
		}
		if sent += len(pieces); res.State != calls.Running {
			event(w, calls.ResultEvent, res)
			return
		}
		if control.Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// event writes an event of a stream.
func event(w http.ResponseWriter, name string, message any) bool {
	data, err := calls.Encode(message)
	if err != nil {
		return false
	}
	_, err = fmt.Fprintf(w, "event: %s\ndata: %s\n", name, data)
	return err == nil
}

func (h *Handler) delete(w http.ResponseWriter, r *http.Request) {
	q := h.find(w, r)
	if q == nil {
		return
	}
	h.end(q)
	h.release(q)
	w.WriteHeader(http.StatusNoContent)
}

// read reads a message; false: it was answered what is wrong.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, into any) bool {
	if err := calls.Decode(http.MaxBytesReader(w, r.Body, h.limits.Body), into); err != nil {
		fail(w, err)
		return false
	}
	return true
}

// fail answers an error.
func fail(w http.ResponseWriter, err error) {
	status, f := http.StatusBadRequest, calls.Failure{Error: err.Error()}
	if refused, ok := errors.AsType[*Refused](err); ok {
		status, f.Reason = http.StatusTooManyRequests, refused.Reason
		if refused.Retry > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(refused.Retry.Seconds()))))
		}
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		status = http.StatusRequestEntityTooLarge
	}
	switch {
	case errors.Is(err, calls.ErrUnknown):
		status = http.StatusNotFound
	case errors.Is(err, calls.ErrEnded):
		status = http.StatusConflict
	case errors.Is(err, ErrDraining):
		status = http.StatusServiceUnavailable
	}
	write(w, status, f)
}

// write answers a message.
func write(w http.ResponseWriter, status int, message any) {
	data, err := calls.Encode(message)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"error":"an output that JSON cannot hold"}`+"\n")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data)
}
