package completions

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"time"

	"inferplan/executor/durable"
	"inferplan/executor/httplimit"
	"inferplan/executor/tracing"
)

// serveCompletion handles a completion, or a chat completion, from its body to its answer, whole or as a stream.
// The request is stored before it runs, so that it survives a restart.
func (f *apiHandlers) serveCompletion(req *apiRequest, chat bool) (failure error) {
	receivedAt := time.Now()
	if err := req.holder.CountRequest(); err != nil {
		return err
	}
	var memoryHold httplimit.MemoryHold
	defer memoryHold.Close()

	// Read and check the request, within the memory for requests.
	body, err := readBody(&f.front.opt, req, &memoryHold)
	if err != nil {
		return err
	}
	parsed, refusal := parseCompletion(body, chat)
	if refusal == nil {
		refusal = parsed.resolveClass(req)
	}
	if refusal != nil {
		return refusal
	}
	parsed.readSessionHeader(req)

	// Trace it, below the span that the client names.
	parent := tracing.ParentIn(req.r.Header[tracing.HeaderTraceparent], req.r.Header[tracing.HeaderTracestate])
	req.trace = f.front.opt.Tracer.BeginRequest("openai", parsed.model, parent, receivedAt)
	defer func() { req.trace.End(failure) }()
	parsed.parent = req.trace.Parent()

	// Accept it. From here on it counts as an open request and no longer as bytes.
	e, err := f.acceptRequest(req, parsed, body)
	if err != nil {
		return err
	}
	body, parsed.body = nil, nil
	memoryHold.Close()

	// Answer it. A client that disconnects cancels it, unless it may come again.
	req.w.Header().Set(headerRequestID, e.id)
	if parsed.stream {
		err = f.streamAnswer(req, e, parsed.wantsUsage)
	} else {
		err = f.answerWhole(req, e)
	}
	if errors.Is(err, errClientGone) && !e.record.Resumable {
		f.front.cancelRequest(e, errCancelled)
	}
	return err
}

// resolveClass sets the SLO class: that of the header or of the body, else the default of the client's key. It
// returns an error if header and body differ.
func (parsed *parsedRequest) resolveClass(req *apiRequest) *httplimit.Error {
	classHeaders := req.r.Header.Values(HeaderClass)
	if len(classHeaders) > 1 {
		return httplimit.Invalid(HeaderClass, "given %d times", len(classHeaders))
	}
	if len(classHeaders) == 1 && classHeaders[0] != "" {
		if parsed.class != "" && parsed.class != classHeaders[0] {
			return httplimit.Invalid("slo_class", "found %q, and %q in %s", httplimit.Clip(parsed.class), httplimit.Clip(classHeaders[0]), HeaderClass)
		}
		parsed.class = classHeaders[0]
	}
	parsed.class = cmp.Or(parsed.class, req.holder.Class)
	return nil
}

// acceptRequest checks the limits of the sender, stores a request and returns it. If the sender has sent it before with
// the same idempotency key (a header by which a repeated request is known), it returns the earlier one; a different body
// under that key is an error.
func (f *apiHandlers) acceptRequest(req *apiRequest, parsed *parsedRequest, body []byte) (*trackedRequest, error) {
	prefix := "cmpl-"
	if parsed.chat {
		prefix = "chatcmpl-"
	}
	record, err := f.front.newRecord(parsed, req.holder.Name)
	if err != nil {
		return nil, err
	}
	record.address = httplimit.HostOf(req.r.RemoteAddr)
	id, key := newID(prefix), req.r.Header.Get(headerIdempotencyKey)

	// With an idempotency key, the id is made from it. Look for the request that was accepted under it.
	if key != "" {
		sum := sha256.Sum256(body)
		id, record.Resumable, record.BodySum = idempotentID(prefix, req.holder.Name, key), true, hex.EncodeToString(sum[:])
		e, err := f.front.findRequest(req.r.Context(), id, req.holder.Name)
		if err == nil && e.record.BodySum != record.BodySum {
			err = &httplimit.Error{Code: httplimit.CodeInvalid, Reason: "idempotency_key_reused", Field: headerIdempotencyKey, Msg: "this key came with another request before"}
		}
		if !errors.Is(err, durable.ErrNotFound) {
			return e, err
		}
	}
	if err := f.front.admit(req.holder, record.serverRequest(id, "", 0)); err != nil {
		return nil, err
	}
	return f.front.submit(id, record)
}

// requestByID returns the request whose id is in the path.
func (f *apiHandlers) requestByID(req *apiRequest) (*trackedRequest, error) {
	id := req.r.PathValue("id")
	e, err := f.front.findRequest(req.r.Context(), id, req.holder.Name)
	if errors.Is(err, durable.ErrNotFound) {
		return nil, httplimit.NotFound("no request %q is kept here", httplimit.Clip(id))
	}
	return e, err
}

// getRequest answers with the state of the request whose id is in the path, and with its answer if it has ended. With
// ?stream=true it streams the answer from its beginning.
func (f *apiHandlers) getRequest(req *apiRequest) error {
	e, err := f.requestByID(req)
	if err != nil {
		return err
	}
	if req.r.URL.Query().Get("stream") == "true" {
		return f.streamAnswer(req, e, true)
	}
	writeJSON(req.w, http.StatusOK, e.statusCompletion())
	return nil
}

// cancelByID cancels the request whose id is in the path, waits until it has ended, and answers with its state. If
// it was answered just before, that answer stays.
func (f *apiHandlers) cancelByID(req *apiRequest) error {
	e, err := f.requestByID(req)
	if err != nil {
		return err
	}
	f.front.cancelRequest(e, errCancelled)
	if _, err := e.waitForResult(req.r.Context()); err != nil {
		return clientGoneError(err)
	}
	writeJSON(req.w, http.StatusOK, e.statusCompletion())
	return nil
}

// answerWhole waits for the end of a request and answers with all of it. Waiting has no time limit; writing has one
// again.
func (f *apiHandlers) answerWhole(req *apiRequest, e *trackedRequest) error {
	_ = http.NewResponseController(req.w).SetWriteDeadline(time.Time{})
	update, err := e.waitForResult(req.r.Context())
	if err != nil {
		return clientGoneError(err)
	}
	req.trace.Answered(time.Now(), tracing.Progress{})
	_ = http.NewResponseController(req.w).SetWriteDeadline(time.Now().Add(f.front.opt.StallTimeout))
	if update.result.Error != nil {
		req.trace.Fail(update.result.Error.Message)
		writeError(req.w, update.result.Error)
		return nil
	}
	writeJSON(req.w, http.StatusOK, e.record.fullCompletion(e.id, update.text, update.result))
	return nil
}
