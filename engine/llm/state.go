package llm

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"strings"
)

// State is the load of a server with a model.
type State struct {
	Running int     // requests that it works on
	Waiting int     // requests that wait inside it
	Slots   int     // requests that it can run at once; 0 if it does not say
	KV      float64 // used share of the KV memory, 0 to 1
}

// fullKVShare is the share of used KV memory from which on more requests would evict others.
const fullKVShare = 0.95

// MaxOwnRequests returns how many requests of ours the server should have in all, of which it has ownRequests
// already. It bounds what a dispatcher sends. That is the number of slots that others do not use. If requests wait
// inside the server or its KV memory is full, it is at most the number of ours that run now. It is -1 if there is no
// bound.
func (s State) MaxOwnRequests(ownRequests int) int {
	otherRequests := max(0, s.Running+s.Waiting-ownRequests)
	limit := -1
	if s.Slots > 0 {
		limit = max(0, s.Slots-otherRequests)
	}
	if s.Waiting > 0 || s.KV >= fullKVShare {
		runningOwn := max(0, min(s.Running, ownRequests))
		if limit < 0 || runningOwn < limit {
			limit = runningOwn
		}
	}
	if limit == 0 && otherRequests == 0 {
		return 1 // an empty server always takes one request
	}
	return limit
}

// stateMetrics maps the names of metrics to the fields of State that they fill: llama-server's, vLLM's (two
// generations), SGLang's.
var stateMetrics = map[string]func(s *State, v float64){
	"llamacpp:requests_processing": func(s *State, v float64) { s.Running += int(v) },
	"llamacpp:requests_deferred":   func(s *State, v float64) { s.Waiting += int(v) },
	"vllm:num_requests_running":    func(s *State, v float64) { s.Running += int(v) },
	"vllm:num_requests_waiting":    func(s *State, v float64) { s.Waiting += int(v) },
	"vllm:kv_cache_usage_perc":     func(s *State, v float64) { s.KV = max(s.KV, v) },
	"vllm:gpu_cache_usage_perc":    func(s *State, v float64) { s.KV = max(s.KV, v) },
	"sglang:num_running_reqs":      func(s *State, v float64) { s.Running += int(v) },
	"sglang:num_queue_reqs":        func(s *State, v float64) { s.Waiting += int(v) },
	"sglang:token_usage":           func(s *State, v float64) { s.KV = max(s.KV, v) },
}

// State asks a server how busy it is with a model: how many requests run and wait there, by its metrics, and how
// many it can run at once.
func (s *Server) State(ctx context.Context, model string) (State, error) {
	data, err := s.Call(ctx, http.MethodGet, s.inModel("/metrics", model), nil)
	if err != nil {
		return State{}, err
	}
	out := readState(string(data))
	if out.Slots = s.Abilities.Slots; s.Abilities.Switch == Router {
		var props struct {
			Slots int `json:"total_slots"`
		}
		if ok, _ := s.getIfPresent(ctx, s.inModel("/props", model), &props); ok {
			out.Slots = props.Slots
		}
	}
	return out, nil
}

// readState sums up the metrics in stateMetrics. The text is in Prometheus's format: lines NAME{LABELS} VALUE.
func readState(text string) State {
	var s State
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		if key, _, labels := strings.Cut(name, "{"); labels {
			// A label's value may hold spaces.
			name, rest = key, line[strings.LastIndex(line, "}")+1:]
		}
		add := stateMetrics[name]
		if add == nil {
			continue
		}
		value, _, _ := strings.Cut(strings.TrimSpace(rest), " ") // a timestamp may follow
		if v, err := strconv.ParseFloat(value, 64); err == nil && v >= 0 && v < math.MaxInt32 {
			add(&s, v)
		}
	}
	return s
}
