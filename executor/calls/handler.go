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
	requestStore
	door *httplimit.Door
	mux  *http.ServeMux
}

// NewHandler returns the HTTP handler of programs: clients that open a request, add tasks to it, wait for their results
// and end it. The backend b runs the tasks. A door checks keys and limits; if it is nil, no key is required. The handler
// must be mounted at calls.Path.
func NewHandler(b Backend, door *httplimit.Door, limits Limits) *Handler {
	h := &Handler{requestStore: requestStore{limits: limits.withDefaults(), backend: b, requests: map[string]*openRequest{}, clients: map[string]int{}}, door: door.WithDefaults(), mux: http.NewServeMux()}
	for pattern, serve := range map[string]httplimit.HolderHandler{
		"POST " + calls.Path:                                   h.beginRequest,
		"POST " + calls.Path + "/{request}/tasks":              h.ofRequest(h.enqueue),
		"GET " + calls.Path + "/{request}/tasks/{task}":        h.ofRequest(h.getResult),
		"GET " + calls.Path + "/{request}/tasks/{task}/stream": h.ofRequest(h.streamResult),
		"DELETE " + calls.Path + "/{request}":                  h.ofRequest(h.deleteRequest),
		"/": func(_ http.ResponseWriter, r *http.Request, _ *httplimit.Holder) error {
			return httplimit.NotFound("no such path: %s %s", httplimit.Clip(r.Method), httplimit.Clip(r.URL.Path))
		},
	} {
		h.mux.HandleFunc(pattern, h.door.Handler(writeError, serve))
	}
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// Open returns the number of open requests.
func (h *Handler) Open() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.requests)
}

// beginRequest handles the message that opens a request of a client's program. It answers with the name of the
// request, to which the program then adds tasks. Too many open requests are refused.
func (h *Handler) beginRequest(w http.ResponseWriter, r *http.Request, holder *httplimit.Holder) error {
	var o calls.Open
	var memoryHold httplimit.MemoryHold
	defer memoryHold.Close()
	if err := h.readMessage(w, r, holder, &memoryHold, readOpen(&o)); err != nil {
		return err
	}
	o.Client = holder.Client(r.RemoteAddr)
	q, err := h.admit(&o, holder, o.Client)
	if err != nil {
		return err
	}
	writeMessage(w, http.StatusCreated, calls.OpenReply{Request: q.name})
	return nil
}

// enqueue handles the message by which a program adds tasks to its open request q. It answers with their handles
// (names), by which later messages ask for results. If the backend refuses one, none of them stays added. holder is the
// client's key.
func (h *Handler) enqueue(w http.ResponseWriter, r *http.Request, q *openRequest, holder *httplimit.Holder) error {
	var e calls.Enqueue
	var memoryHold httplimit.MemoryHold
	defer memoryHold.Close()
	if err := h.readMessage(w, r, holder, &memoryHold, readEnqueue(&e)); err != nil {
		return err
	}
	// Name the tasks, and give all of them to the backend.
	tasks, err := q.add(&e)
	if err == nil {
		if err = h.backend.Enqueue(q.name, tasks, q); err != nil {
			q.removeLast(len(tasks))
		}
	}
	if err != nil {
		return err
	}
	answer := calls.EnqueueReply{}
	for i := range tasks {
		answer.Tasks = append(answer.Tasks, tasks[i].Handle)
	}
	writeMessage(w, http.StatusCreated, answer)
	return nil
}

var errNoRequest = httplimit.NotFound("no such request: it was never opened, or has ended")

// ofRequest wraps a handler of messages to an open request: it finds the request that the path names and passes it on as
// q. A request that belongs to another holder of a key counts as missing. The request does not expire while the message
// is handled.
func (h *Handler) ofRequest(serve func(w http.ResponseWriter, r *http.Request, q *openRequest, holder *httplimit.Holder) error) httplimit.HolderHandler {
	return func(w http.ResponseWriter, r *http.Request, holder *httplimit.Holder) error {
		q := h.acquire(r.PathValue("request"), holder.Name)
		if q == nil {
			return errNoRequest
		}
		defer h.release(q)
		return serve(w, r, q, holder)
	}
}

// getResult handles the question for a task's result. It answers with its state, and its outputs if it has ended.
// With the parameter wait it first waits for the end of the task, at most that long and at most MaxWait.
func (h *Handler) getResult(w http.ResponseWriter, r *http.Request, q *openRequest, _ *httplimit.Holder) error {
	wait := time.Duration(0)
	if text := r.URL.Query().Get("wait"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return httplimit.Invalid("wait", "found %q, expected a duration such as 5s", httplimit.Clip(text))
		}
		wait = min(d, h.limits.MaxWait)
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	for {
		res, changed, err := q.taskResult(calls.Handle(r.PathValue("task")))
		if err != nil {
			return err
		}
		if res.State != calls.StatusRunning || ctx.Err() != nil {
			writeMessage(w, http.StatusOK, res)
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// streamResult handles the message that asks for one task's result as a stream of server-sent events. It sends the
// headers at once and the result as one event when the task has ended. If the client leaves or the request ends before,
// the stream ends without one.
func (h *Handler) streamResult(w http.ResponseWriter, r *http.Request, q *openRequest, _ *httplimit.Holder) error {
	name := calls.Handle(r.PathValue("task"))
	res, changed, err := q.taskResult(name)
	if err != nil {
		return err
	}
	// A stream lasts as long as its task, but the client must read in time.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // the server of a test may have no deadlines
	_ = control.SetWriteDeadline(time.Now().Add(h.limits.MaxWait))
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	if res.State == calls.StatusRunning {
		if control.Flush() != nil {
			return nil
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return nil
		}
		if res, _, err = q.taskResult(name); err != nil {
			return nil
		}
		_ = control.SetWriteDeadline(time.Now().Add(h.limits.MaxWait))
	}
	if data, err := calls.Encode(res); err == nil {
		_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n", calls.ResultEvent, data)
	}
	return nil
}

// deleteRequest ends a request.
func (h *Handler) deleteRequest(w http.ResponseWriter, _ *http.Request, q *openRequest, _ *httplimit.Holder) error {
	h.endRequest(q)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// readMessage reads the body of a message, at most as long as the backend's largest, and parses it as JSON by decode.
// The memory is booked in memoryHold until the caller closes that, because decoded values alias the body.
func (h *Handler) readMessage(w http.ResponseWriter, r *http.Request, holder *httplimit.Holder, memoryHold *httplimit.MemoryHold, decode func(*jsonscan.Cursor) *httplimit.Error) error {
	limit := min(max(minMessageBytes, h.backend.MaxMessageBytes()), h.limits.MaxBodyBytes)
	if err := httplimit.CheckBody(r, limit, "application/json"); err != nil {
		httplimit.CloseIfUnread(w, r)
		return err
	}
	body, err := h.door.ReadBody(w, r, holder.Client(r.RemoteAddr), memoryHold, limit)
	if err != nil {
		return err
	}
	c := jsonscan.Cursor{B: body.TakeBytes(), Progress: jsonscan.Progress{Ctx: r.Context(), MemoryHold: memoryHold}}
	if err = decode(&c); err == nil {
		err = c.CheckEnd()
	}
	if err != nil {
		return err
	}
	return nil
}

// writeError answers with an error of a handler: its HTTP status, its reason, and when to try again if that is
// known. An error of no known kind is the client's fault.
func writeError(w http.ResponseWriter, err error) {
	e, isHTTPError := errors.AsType[*httplimit.Error](err)
	if !isHTTPError { // an error of the backend or the store: the client's fault
		e = httplimit.Invalid("", "%v", err)
		e.Reason = ""
	}
	if refusedErr, ok := errors.AsType[*RefusedError](err); ok {
		e.Code, e.Reason, e.RetryAfter = httplimit.CodeDropped, refusedErr.Reason, refusedErr.RetryAfter
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
	writeMessage(w, status, calls.Failure{Error: err.Error(), Reason: e.Reason})
}

// writeMessage answers with a message.
func writeMessage(w http.ResponseWriter, status int, message any) {
	data, err := calls.Encode(message)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"error":"an output that JSON cannot hold"}`+"\n")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data)
}
