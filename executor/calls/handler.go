package calls

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"inferplan/executor/httplimit"
	"inferplan/executor/jsonscan"
	"inferplan/formats/calls"
)

// Handler serves the HTTP form over a backend.
type Handler struct {
	store
	door *httplimit.Door
	mux  *http.ServeMux
}

// NewHandler makes a handler behind a door (nil: one that asks for nothing). Mount it at
// calls.Path and below.
func NewHandler(b Backend, door *httplimit.Door, limits Limits) *Handler {
	h := &Handler{store: store{limits: limits.withDefaults(), backend: b, requests: map[string]*request{}, clients: map[string]int{}}, door: door.Open(), mux: http.NewServeMux()}
	for pattern, serve := range map[string]httplimit.Serving{
		"POST " + calls.Path:                                   h.begin,
		"POST " + calls.Path + "/{request}/tasks":              h.enqueue,
		"GET " + calls.Path + "/{request}/tasks/{task}":        h.result,
		"GET " + calls.Path + "/{request}/tasks/{task}/stream": h.stream,
		"DELETE " + calls.Path + "/{request}":                  h.delete,
		"/": func(_ http.ResponseWriter, r *http.Request, _ *httplimit.Holder) error {
			return httplimit.NotFound("no such path: %s %s", httplimit.Clip(r.Method), httplimit.Clip(r.URL.Path))
		},
	} {
		h.mux.HandleFunc(pattern, h.door.Handler(fail, serve))
	}
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

func (h *Handler) begin(w http.ResponseWriter, r *http.Request, from *httplimit.Holder) error {
	var o calls.Open
	var hold httplimit.Hold
	defer hold.Close()
	if err := h.read(w, r, from, &hold, readOpen(&o)); err != nil {
		return err
	}
	o.Client = from.Client(r.RemoteAddr)
	q, err := h.open(&o, from, o.Client)
	if err != nil {
		return err
	}
	write(w, http.StatusCreated, calls.Opened{Request: q.name})
	return nil
}

func (h *Handler) enqueue(w http.ResponseWriter, r *http.Request, from *httplimit.Holder) error {
	q, err := h.find(r, from)
	if err != nil {
		return err
	}
	defer h.release(q)
	var e calls.Enqueue
	var hold httplimit.Hold
	defer hold.Close()
	if err := h.read(w, r, from, &hold, readEnqueue(&e)); err != nil {
		return err
	}
	tasks, err := q.add(&e)
	if err == nil {
		if err = h.backend.Enqueue(q.name, tasks, q); err != nil {
			q.undo(len(tasks))
		}
	}
	if err != nil {
		return err
	}
	out := calls.Enqueued{}
	for i := range tasks {
		out.Tasks = append(out.Tasks, tasks[i].Handle)
	}
	write(w, http.StatusCreated, out)
	return nil
}

var errNoRequest = httplimit.NotFound("no such request: it was never opened, or has ended")

// find is the request of a path, which is the sender's own; release follows.
func (h *Handler) find(r *http.Request, from *httplimit.Holder) (*request, error) {
	q := h.use(r.PathValue("request"), from.Name)
	if q == nil {
		return nil, errNoRequest
	}
	return q, nil
}

func (h *Handler) result(w http.ResponseWriter, r *http.Request, from *httplimit.Holder) error {
	q, err := h.find(r, from)
	if err != nil {
		return err
	}
	defer h.release(q)
	wait := time.Duration(0)
	if text := r.URL.Query().Get("wait"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return httplimit.Invalid("wait", "found %q, expected a duration such as 5s", httplimit.Clip(text))
		}
		wait = min(d, h.limits.Wait)
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	for {
		res, changed, err := q.look(calls.Handle(r.PathValue("task")))
		if err != nil {
			return err
		}
		if res.State != calls.Running || ctx.Err() != nil {
			write(w, http.StatusOK, res)
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// stream sends the result of a task as an event, once it is there.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request, from *httplimit.Holder) error {
	q, err := h.find(r, from)
	if err != nil {
		return err
	}
	defer h.release(q)
	name := calls.Handle(r.PathValue("task"))
	res, changed, err := q.look(name)
	if err != nil {
		return err
	}
	// A stream lasts as long as its task. What it sends has to be taken in time.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // a server may have none
	_ = control.SetWriteDeadline(time.Now().Add(h.limits.Wait))
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	if res.State == calls.Running {
		if control.Flush() != nil {
			return nil
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return nil
		}
		if res, _, err = q.look(name); err != nil {
			return nil
		}
		_ = control.SetWriteDeadline(time.Now().Add(h.limits.Wait))
	}
	if data, err := calls.Encode(res); err == nil {
		_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n", calls.ResultEvent, data)
	}
	return nil
}

func (h *Handler) delete(w http.ResponseWriter, r *http.Request, from *httplimit.Holder) error {
	q, err := h.find(r, from)
	if err != nil {
		return err
	}
	h.end(q)
	h.release(q)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// read reads a message within the memory for requests. What decode keeps of the body is
// booked until the hold is closed.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, from *httplimit.Holder, hold *httplimit.Hold, decode func(*jsonscan.Cursor) *httplimit.Error) error {
	limit := min(max(smallMessage, h.backend.MessageBytes()), h.limits.Body)
	if err := httplimit.CheckBody(r, limit, "application/json"); err != nil {
		httplimit.Unread(w, r)
		return err
	}
	body, err := h.door.ReadBody(w, r, from.Client(r.RemoteAddr), hold, limit)
	if err != nil {
		return err
	}
	c := jsonscan.Cursor{B: body.Own(), Progress: jsonscan.Progress{Ctx: r.Context(), Hold: hold}}
	if err = decode(&c); err == nil {
		err = c.End()
	}
	if err != nil {
		return err
	}
	return nil
}

// fail answers an error.
func fail(w http.ResponseWriter, err error) {
	e, known := errors.AsType[*httplimit.Error](err)
	if !known { // of a backend or the store: what was sent is wrong
		e = httplimit.Invalid("", "%v", err)
		e.Reason = ""
	}
	if refused, ok := errors.AsType[*Refused](err); ok {
		e.Code, e.Reason, e.RetryAfter = httplimit.CodeDropped, refused.Reason, refused.Retry
	}
	status := e.Code.HTTPStatus()
	switch {
	case errors.Is(err, calls.ErrUnknown):
		status = http.StatusNotFound
	case errors.Is(err, calls.ErrEnded):
		status = http.StatusConflict
	case errors.Is(err, ErrDraining):
		status = http.StatusServiceUnavailable
	}
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	write(w, status, calls.Failure{Error: err.Error(), Reason: e.Reason})
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
