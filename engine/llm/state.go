package llm

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"strings"
)

// State is how busy a server is with a model.
type State struct {
	Running int // requests that it works on
	Waiting int // requests that wait inside it
	Slots   int // that it has; 0: it does not say
	KV      float64
}

// crowded is the share of the KV memory from which on more requests would push
// others out.
const crowded = 0.95

// Room is how many requests of ours the server should have in all, of which it has
// some already: as many as it has slots that no one else takes, and no more than
// it has now where requests wait inside it or its KV memory is full. -1: no bound.
func (s State) Room(ours int) int {
	others := max(0, s.Running+s.Waiting-ours)
	room := -1
	if s.Slots > 0 {
		room = max(0, s.Slots-others)
	}
	if s.Waiting > 0 || s.KV >= crowded {
		now := max(0, min(s.Running, ours))
		if room < 0 || now < room {
			room = now
		}
	}
	if room == 0 && others == 0 {
		return 1 // an empty server takes one
	}
	return room
}

// series are the names of the metrics that State is made of: llama-server's,
// vLLM's (two generations), SGLang's.
var series = map[string]func(s *State, v float64){
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

// State asks a server how busy it is with a model.
func (s *Server) State(ctx context.Context, model string) (State, error) {
	data, err := s.Call(ctx, http.MethodGet, s.inModel("/metrics", model), nil)
	if err != nil {
		return State{}, err
	}
	out := readState(string(data))
	if out.Slots = s.Can.Slots; s.Can.Switch == Router {
		var props struct {
			Slots int `json:"total_slots"`
		}
		if ok, _ := s.has(ctx, s.inModel("/props", model), &props); ok {
			out.Slots = props.Slots
		}
	}
	return out, nil
}

// readState reads the text format of Prometheus: the lines NAME{LABELS} VALUE that
// stand in series.
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
		add := series[name]
		if add == nil {
			continue
		}
		value, _, _ := strings.Cut(strings.TrimSpace(rest), " ") // a time may follow
		if v, err := strconv.ParseFloat(value, 64); err == nil && v >= 0 && v < math.MaxInt32 {
			add(&s, v)
		}
	}
	return s
}
