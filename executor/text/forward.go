package text

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/engine/llm"
	"inferplan/executor/completions"
	"inferplan/executor/series"
)

// newForwardedCounter returns the counter of requests that pass through.
func newForwardedCounter() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: series.Prefix + "forwarded_requests_total", Help: "Requests that passed through to servers beside the queues, by path and by the status of the answer: 0 if a client left before."}, []string{"path", "status"})
}

// Forward implements completions.Forwarder: a server of a working instance that has the model in memory now answers,
// each of these in turn. No server is asked to load a model for it, because that would take another's place. One that
// does not have the path, is full or gone leaves the request to the next.
func (q *Queues) Forward(ctx context.Context, request *completions.ForwardedRequest) (*http.Response, error) {
	resp, err := q.tryServers(llm.WithTrace(ctx, request.Parent.Traceparent, request.Parent.Tracestate), request)
	status := 0
	var serverErr *completions.ServerError
	var refusal *completions.Refusal
	switch {
	case err == nil:
		status = resp.StatusCode
	case errors.As(err, &serverErr):
		status = serverErr.Status
	case errors.As(err, &refusal):
		status = http.StatusTooManyRequests
	}
	q.forwarded.WithLabelValues(request.Path, strconv.Itoa(status)).Inc()
	return resp, err
}

// loadedTimeout bounds the wait for a server that is asked which models it has in memory.
const loadedTimeout = 5 * time.Second

// loadedWithin returns the models that a server has in memory. One that does not say so within the timeout is gone.
func loadedWithin(ctx context.Context, timeout time.Duration, s *llm.Server) ([]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, &llm.Error{Kind: llm.ErrGone, Text: fmt.Sprintf("no answer for %v", timeout)})
	defer cancel()
	return s.Loaded(ctx)
}

// tryServers asks the servers for an answer, one after the other, until one gives one or refuses the request. See
// Forward.
func (q *Queues) tryServers(ctx context.Context, request *completions.ForwardedRequest) (*http.Response, error) {
	servers := q.serversWith(request.Model)
	var unloaded, lacking, failed int // servers without the model in memory, without the path, and full or gone
	for i, turn := 0, int(q.forwardTurn.Add(1)); i < len(servers); i++ {
		s := servers[(turn+i)%len(servers)]
		loaded, err := loadedWithin(ctx, loadedTimeout, s)
		if err == nil && !slices.Contains(loaded, request.Model) {
			unloaded++
			continue
		}
		var resp *http.Response
		if err == nil {
			resp, err = s.Forward(ctx, request.Path, request.Body)
		}
		var serverErr *llm.Error
		switch {
		case err == nil:
			return resp, nil
		case ctx.Err() != nil || !errors.As(err, &serverErr):
			return nil, err
		case errors.Is(err, llm.ErrNoSuchPath):
			lacking++
		case errors.Is(err, llm.ErrUnknownModel):
			unloaded++
		case errors.Is(err, llm.ErrFull) || errors.Is(err, llm.ErrGone):
			failed++
		case errors.Is(err, llm.ErrRefused):
			return nil, &completions.ServerError{Status: serverErr.Status, Type: "invalid_request_error", Msg: serverErr.Text}
		default:
			return nil, &completions.ServerError{Status: http.StatusBadGateway, Type: "server_error", Msg: fmt.Sprintf("model %s: %v", request.Model, serverErr)}
		}
	}

	// Nobody has answered: say why.
	switch {
	case failed > 0:
		return nil, &completions.Refusal{Reason: "overload", Msg: fmt.Sprintf("no server of model %q takes the request now", request.Model), RetryAfter: time.Second}
	case lacking > 0:
		return nil, &completions.ServerError{Status: http.StatusNotFound, Type: "invalid_request_error", Code: "no_such_endpoint", Msg: fmt.Sprintf("no server of model %q has %s", request.Model, request.Path)}
	case unloaded > 0:
		return nil, &completions.Refusal{Reason: "model_not_loaded", Msg: fmt.Sprintf("no server has model %q in memory now", request.Model), RetryAfter: time.Second}
	}
	return nil, &completions.ServerError{Status: http.StatusNotFound, Type: "invalid_request_error", Code: "model_not_found", Param: "model", Msg: fmt.Sprintf("no server that works has the model %q", request.Model)}
}

// serversWith returns the servers of working instances that list a model, in the order of instances.
func (q *Queues) serversWith(model string) []*llm.Server {
	c := q.host.CurrentCore()
	var out []*llm.Server
	for d := range c.Tables.Devices {
		a, ok := c.Backends.BackendOf(int32(d)).(*agentBackend)
		if !ok || !a.IsUp(int32(d)) {
			continue
		}
		if r := a.byDevice[d].local.Load(); r != nil {
			out = append(out, r.answered(model)...)
		}
	}
	return out
}

// answered returns the servers that have answered and list a model, in the order of their names.
func (r *localServers) answered(model string) []*llm.Server {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*llm.Server
	for _, key := range slices.Sorted(maps.Keys(r.Servers)) {
		if s := r.Servers[key].Server; s != nil && slices.Contains(s.Abilities.Models, model) {
			out = append(out, s)
		}
	}
	return out
}

var _ completions.Forwarder = (*Queues)(nil)
