package completions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"inferplan/executor/httplimit"
	"inferplan/executor/tracing"
)

// forwardedPaths are the paths whose requests pass through to a server that has them. They are neither stored nor
// queued.
var forwardedPaths = []string{"/v1/embeddings", "/v1/responses"}

// Forwarder is a Server that also has requests answered as they are.
type Forwarder interface {
	// Forward sends a request to a server that has its path and its model, and returns the response, whose body the
	// caller closes. A server's refusal is a *ServerError. The end of ctx ends the request.
	Forward(ctx context.Context, r *ForwardedRequest) (*http.Response, error)
}

// ForwardedRequest is a request that passes through.
type ForwardedRequest struct {
	Path, Model string
	Body        []byte // JSON
	Parent      tracing.Parent
}

// forward passes a request through to a server, and the response to the client as it comes. It holds the memory of the
// body until then. If the server breaks off, so does the connection of the client, which then knows that the answer is
// not whole.
func (f *apiHandlers) forward(req *apiRequest, path string) (failure error) {
	receivedAt := time.Now()
	if !f.front.passing.Enter() {
		return httplimit.Unavailable("draining", "the server is shutting down")
	}
	defer f.front.passing.Leave()
	if err := req.holder.BeginRequest(); err != nil {
		return err
	}
	defer req.holder.EndRequest()
	open := f.forwarded.Add(1)
	defer f.forwarded.Add(-1)
	if limit := f.front.opt.MaxForwarded; open > int64(limit) {
		return &Refusal{Reason: "too_many_requests", Msg: fmt.Sprintf("%d requests pass through to servers, at most %d are taken", open-1, limit)}
	}
	var memoryHold httplimit.MemoryHold
	defer memoryHold.Close()
	body, err := readBody(&f.front.opt, req, &memoryHold)
	if err != nil {
		return err
	}
	forwarded, refusal := parseForwarded(path, body)
	if refusal != nil {
		return refusal
	}
	forwarder, ok := f.front.opt.Server.(Forwarder)
	if !ok {
		return &httplimit.Error{Code: httplimit.CodeNotFound, Reason: "no_such_endpoint", Msg: path + ": the servers are those of agents, which pass nothing through: ask a server itself"}
	}

	// Trace it, and have it answered. Waiting for that has no time limit.
	parent := tracing.ParentIn(req.r.Header[tracing.HeaderTraceparent], req.r.Header[tracing.HeaderTracestate])
	req.trace = f.front.opt.Tracer.BeginRequest("openai", forwarded.Model, parent, receivedAt)
	defer func() { req.trace.End(failure) }()
	forwarded.Parent = req.trace.Parent()
	_ = http.NewResponseController(req.w).SetWriteDeadline(time.Time{})
	resp, err := forwarder.Forward(req.r.Context(), forwarded)
	if err != nil {
		return clientGoneError(err)
	}
	defer resp.Body.Close()
	return f.copyResponse(req, resp)
}

// parseForwarded returns the request in a body. It refuses one that needs what a server remembers of others, because the
// next one may go to another server.
func parseForwarded(path string, body []byte) (*ForwardedRequest, *httplimit.Error) {
	var fields struct {
		Model      string          `json:"model"`
		Previous   json.RawMessage `json:"previous_response_id"`
		Background bool            `json:"background"`
	}
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, httplimit.Invalid("", "the body: %v", err)
	}
	switch {
	case fields.Model == "":
		return nil, httplimit.Invalid("model", "found none, expected the name of a model")
	case fields.Previous != nil && string(fields.Previous) != "null":
		return nil, httplimit.Invalid("previous_response_id", "each server remembers its own responses alone: send the whole conversation in input")
	case fields.Background:
		return nil, httplimit.Invalid("background", "responses are not kept: wait for the answer, or send a completion, which is")
	}
	return &ForwardedRequest{Path: path, Model: fields.Model, Body: body}, nil
}

// copyResponse sends a server's response to the client, each piece when it comes.
func (f *apiHandlers) copyResponse(req *apiRequest, resp *http.Response) error {
	control := http.NewResponseController(req.w)
	req.w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	req.w.WriteHeader(resp.StatusCode)
	isFirst, buffer := true, make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buffer)
		if n > 0 {
			if isFirst {
				req.trace.Answered(time.Now(), tracing.Progress{})
				isFirst = false
			}
			_ = control.SetWriteDeadline(time.Now().Add(f.front.opt.StallTimeout))
			if _, err := req.w.Write(buffer[:n]); err != nil {
				return fmt.Errorf("%w: %w", errClientGone, err)
			}
			if err := control.Flush(); err != nil {
				return fmt.Errorf("%w: %w", errClientGone, err)
			}
			_ = control.SetWriteDeadline(time.Time{})
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return nil
		case req.r.Context().Err() != nil:
			return fmt.Errorf("%w: %w", errClientGone, err)
		default:
			req.trace.Fail(err.Error())
			panic(http.ErrAbortHandler) // net/http's way to end a response that is not whole
		}
	}
}
