package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// recorded answers by method and path, as servers gave them or as their documentation
// shows them. A list of answers is gone through, the last stays.
type recorded struct {
	mu      sync.Mutex
	answers map[string][]string
	asked   []string
}

func (r *recorded) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	body, _ := io.ReadAll(q.Body)
	key := q.Method + " " + q.URL.RequestURI()
	r.asked = append(r.asked, strings.TrimSpace(key+" "+string(body)))
	list, ok := r.answers[key]
	if !ok {
		http.NotFound(w, q)
		return
	}
	if len(list) > 1 {
		r.answers[key] = list[1:]
	}
	status, text := http.StatusOK, list[0]
	if code, rest, ok := strings.Cut(text, "|"); ok && len(code) == 3 {
		fmt.Sscan(code, &status)
		text = rest
	}
	if strings.HasPrefix(text, "data:") {
		w.Header().Set("Content-Type", "text/event-stream")
	} else {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(status)
	io.WriteString(w, text)
}

// probed is a server of recorded answers, asked what it can do.
func probed(t *testing.T, answers map[string][]string) (*Server, *recorded) {
	t.Helper()
	r := &recorded{answers: answers}
	h := httptest.NewServer(r)
	t.Cleanup(h.Close)
	s, err := Probe(context.Background(), h.URL)
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	r.asked = nil
	r.mu.Unlock()
	return s, r
}

func (r *recorded) heard() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.asked, "\n")
}

// streamed is a streamed completion.
func streamed(text string) string {
	return fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"text\":%q,\"finish_reason\":null}]}\n\ndata: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n", text)
}

const routerUnloaded = `{"data":[{"id":"s5","object":"model","owned_by":"llamacpp","status":{"value":"loaded","args":["llama-server"]}},{"id":"m20","object":"model","status":{"value":"unloaded","args":[]}}],"object":"list"}`
const routerLoading = `{"data":[{"id":"s5","object":"model","status":{"value":"unloaded"}},{"id":"m20","object":"model","status":{"value":"loading"}}]}`
const routerLoaded = `{"data":[{"id":"s5","object":"model","status":{"value":"unloaded"}},{"id":"m20","object":"model","status":{"value":"loaded"}}]}`

// llama-server's router: the answers are those of build 11669.
func TestLlamaRouterLoadsAndUnloads(t *testing.T) {
	ctx := context.Background()
	s, r := probed(t, map[string][]string{
		"GET /v1/models":                        {routerUnloaded},
		"GET /models":                           {routerUnloaded, routerUnloaded, routerLoading, routerLoaded},
		"POST /models/load":                     {`500|{"error":{"code":500,"message":"model limit reached, please try again later","type":"server_error"}}`, `{"success":true}`},
		"POST /models/unload":                   {`{"success":true}`},
		"GET /metrics?model=m20&autoload=false": {"# HELP llamacpp:requests_processing Number of requests processing.\n# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 3\nllamacpp:requests_deferred 1\n"},
		"GET /props?model=m20&autoload=false":   {`{"total_slots":4,"chat_template":"x"}`},
		"POST /apply-template":                  {`{"prompt":"<user>hi<assistant>"}`},
	})
	if s.Abilities.Switch != Router || !s.Abilities.Template || !s.Abilities.Metrics || !slices.Equal(s.Abilities.Models, []string{"s5", "m20"}) {
		t.Fatalf("it can %+v", s.Abilities)
	}
	if there, err := s.Loaded(ctx); err != nil || !slices.Equal(there, []string{"s5"}) {
		t.Fatalf("loaded: %v, %v", there, err)
	}
	if err := s.Load(ctx, "m20"); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(r.heard(), "POST /models/load"); n != 2 {
		t.Errorf("asked %d times to load, expected again after the limit:\n%s", n, r.heard())
	}
	state, err := s.State(ctx, "m20")
	if err != nil || state != (State{Running: 3, Waiting: 1, Slots: 4}) {
		t.Errorf("state %+v, %v", state, err)
	}
	q, err := s.ResumeRequest(ctx, Request{Model: "m20", Chat: true, Body: json.RawMessage(`{"messages":[{"role":"user","content":"hi"}],"temperature":0}`)}, "so far")
	if err != nil || q.Chat || q.Prompt != "<user>hi<assistant>so far" || strings.Contains(string(q.Body), "messages") || !strings.Contains(string(q.Body), "temperature") {
		t.Errorf("resumed: %+v, %v", q, err)
	}
	if err := s.Load(ctx, "none"); !errors.Is(err, ErrUnknownModel) {
		t.Errorf("a model that is not there: %v", err)
	}
}

// vLLM in sleep mode. The answers are those of its documentation, not of a run.
func TestVLLMSleepsAndWakes(t *testing.T) {
	ctx := context.Background()
	s, r := probed(t, map[string][]string{
		"GET /v1/models":             {`{"object":"list","data":[{"id":"qwen","object":"model","owned_by":"vllm","max_model_len":4096}]}`},
		"GET /is_sleeping":           {`{"is_sleeping":false}`, `{"is_sleeping":true}`, `{"is_sleeping":true}`},
		"GET /metrics":               {"vllm:num_requests_running{engine=\"0\",model_name=\"q w\"} 2.0\nvllm:num_requests_running{engine=\"1\",model_name=\"q w\"} 1.0\nvllm:num_requests_waiting{model_name=\"q w\"} 0.0\nvllm:kv_cache_usage_perc{model_name=\"q w\"} 0.25\n"},
		"POST /sleep?level=1":        {""},
		"POST /wake_up":              {""},
		"POST /v1/completions":       {streamed(" dog and runs"), streamed(" dog and runs"), streamed(" dog and xxxx")},
		"POST /v1/load_lora_adapter": {"Success: LoRA adapter 'sql' added successfully."},
	})
	if s.Abilities.Switch != Sleeper || s.Abilities.LoRA != LoRANamed || !s.Abilities.ContinueChat || s.Abilities.Template {
		t.Fatalf("it can %+v", s.Abilities)
	}
	if state, err := s.State(ctx, "qwen"); err != nil || state != (State{Running: 3, KV: .25}) {
		t.Errorf("state %+v, %v", state, err)
	}
	if err := s.Unload(ctx, "qwen"); err != nil {
		t.Fatal(err)
	}
	if there, err := s.Loaded(ctx); err != nil || len(there) != 0 {
		t.Errorf("asleep it has %v, %v", there, err)
	}
	if err := s.Load(ctx, "qwen"); err != nil {
		t.Fatalf("it wakes with the same text: %v", err)
	}
	if err := s.Load(ctx, "qwen"); !errors.Is(err, ErrCanary) {
		t.Errorf("it wakes with another text: %v", err)
	}
	if n := strings.Count(r.heard(), "POST /v1/completions"); n != 3 {
		t.Errorf("%d canaries, expected one before the first sleep and one after each wake", n)
	}
	q, err := s.ResumeRequest(ctx, Request{Model: "qwen", Chat: true, Body: json.RawMessage(`{"messages":[{"role":"user","content":"hi"}]}`)}, "so far")
	body, _ := json.Marshal(q.Fields)
	if want := `{"add_generation_prompt":false,"continue_final_message":true,"messages":[{"role":"user","content":"hi"},{"content":"so far","role":"assistant"}]}`; err != nil || string(body) != want {
		t.Errorf("resumed: %s, %v, expected %s", body, err, want)
	}
	if err := s.Adapters().Load(ctx, Adapter{Name: "sql", Path: "/adapters/sql"}); err != nil || !strings.Contains(r.heard(), `{"lora_name":"sql","lora_path":"/adapters/sql"}`) {
		t.Errorf("%v:\n%s", err, r.heard())
	}
}

// Adapters that a server keeps while it sleeps are compared like the model: one without
// effect has been reported. A model that was wrong is not right because it is asked again.
func TestSleeperWithAdapters(t *testing.T) {
	ctx := context.Background()
	asleep, awake := `{"is_sleeping":true}`, `{"is_sleeping":false}`
	s, r := probed(t, map[string][]string{
		"GET /v1/models":      {`{"data":[{"id":"qwen","parent":null},{"id":"sql","root":"/a/sql","parent":"qwen"}]}`},
		"GET /is_sleeping":    {awake, asleep, asleep, awake, awake, awake},
		"GET /metrics":        {"vllm:num_requests_running 0\n"},
		"POST /sleep?level=1": {""},
		"POST /wake_up":       {""},
		"POST /v1/completions": {streamed(" dog"), streamed(" select"), // before
			streamed(" dog"), streamed(" select"), streamed(" dog"), streamed(" dog"), // woken twice
			streamed(" dog"), streamed(" dog"), streamed(" dog"), streamed(" select")}, // asked again
	})
	if err := errors.Join(s.Unload(ctx, "qwen"), s.Load(ctx, "qwen"), s.Unload(ctx, "qwen")); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(r.heard(), `"model":"sql"`); n != 2 {
		t.Errorf("the adapter was asked %d times, expected before the first sleep and after the wake", n)
	}
	for _, when := range []string{"woken", "awake"} {
		if err := s.Load(ctx, "qwen"); !errors.Is(err, ErrCanary) || !strings.Contains(err.Error(), `sql writes "dog", before it slept "select"`) {
			t.Errorf("%s with an adapter without effect: %v", when, err)
		}
	}
	for range 2 {
		if err := s.Load(ctx, "qwen"); err != nil {
			t.Errorf("awake with the same texts: %v", err)
		}
	}
	if n := strings.Count(r.heard(), "POST /v1/completions"); n != 10 {
		t.Errorf("%d canaries, expected none once the texts are the same", n)
	}
}

// SGLang with its memory saver. The answers are those of its documentation, not of a run.
func TestSGLangReleasesMemory(t *testing.T) {
	ctx := context.Background()
	s, r := probed(t, map[string][]string{
		"GET /v1/models":                  {`{"object":"list","data":[{"id":"qwen","owned_by":"sglang"}]}`},
		"GET /get_server_info":            {`{"model_path":"qwen","max_running_requests":48,"enable_memory_saver":true}`},
		"GET /metrics":                    {"sglang:num_running_reqs{model_name=\"qwen\"} 5.0\nsglang:num_queue_reqs{model_name=\"qwen\"} 2.0\nsglang:token_usage{model_name=\"qwen\"} 0.97\n"},
		"POST /release_memory_occupation": {""}, "POST /resume_memory_occupation": {""},
		"POST /v1/completions": {streamed(" dog")},
	})
	if s.Abilities.Switch != Releaser || s.Abilities.Slots != 48 || !s.Abilities.ContinueChat {
		t.Fatalf("it can %+v", s.Abilities)
	}
	if state, err := s.State(ctx, "qwen"); err != nil || state != (State{Running: 5, Waiting: 2, Slots: 48, KV: .97}) {
		t.Errorf("state %+v, %v", state, err)
	}
	if err := errors.Join(s.Unload(ctx, "qwen"), s.Load(ctx, "qwen")); err != nil {
		t.Error(err)
	}
	if h := r.heard(); !strings.Contains(h, "POST /release_memory_occupation") || !strings.Contains(h, "POST /resume_memory_occupation") {
		t.Error(h)
	}
}

// Ollama: the answers are those of v0.17.4.
func TestKeepAlive(t *testing.T) {
	ctx := context.Background()
	running := `{"models":[{"name":"s5:latest","model":"s5:latest","size":5,"size_vram":0}]}`
	s, r := probed(t, map[string][]string{
		"GET /v1/models":     {`{"object":"list","data":[{"id":"s5:latest","object":"model","owned_by":"library"}]}`},
		"GET /api/ps":        {running, running, running, `{"models":[]}`},
		"POST /api/generate": {`{"model":"s5","response":"","done":true,"done_reason":"load"}`},
	})
	if s.Abilities.Switch != KeepAlive || s.Abilities.Metrics || s.Abilities.ContinueChat {
		t.Fatalf("it can %+v", s.Abilities)
	}
	if there, err := s.Loaded(ctx); err != nil || !slices.Equal(there, []string{"s5"}) {
		t.Errorf("loaded: %v, %v", there, err)
	}
	if err := errors.Join(s.Load(ctx, "s5"), s.Unload(ctx, "s5")); err != nil || !strings.Contains(r.heard(), `"keep_alive":0`) {
		t.Errorf("%v:\n%s", err, r.heard())
	}
}

// llama-swap. The answers are those of its documentation, not of a run.
func TestLlamaSwapLoadsAndUnloads(t *testing.T) {
	ctx := context.Background()
	s, r := probed(t, map[string][]string{
		"GET /v1/models":             {`{"object":"list","data":[{"id":"q/3","owned_by":"llama-swap"},{"id":"g"}]}`},
		"GET /running":               {`{"running":[]}`, `{"running":[{"model":"q/3","state":"ready"},{"model":"g","state":"starting"}]}`, `{"running":[]}`},
		"GET /upstream/q%2F3/health": {`{"status":"ok"}`}, "POST /api/models/unload/q%2F3": {"OK"},
	})
	if s.Abilities.Switch != Swapper {
		t.Fatalf("it can %+v", s.Abilities)
	}
	if there, err := s.Loaded(ctx); err != nil || !slices.Equal(there, []string{"q/3"}) {
		t.Errorf("loaded: %v, %v", there, err)
	}
	if err := errors.Join(s.Load(ctx, "q/3"), s.Unload(ctx, "q/3")); err != nil {
		t.Errorf("%v:\n%s", err, r.heard())
	}
}

// A server with nothing but completions has what it has.
func TestPlainServerCannotSwitch(t *testing.T) {
	ctx := context.Background()
	s, _ := probed(t, map[string][]string{"GET /v1/models": {`{"data":[{"id":"m"}]}`}, "GET /running": {`"<html>"`}})
	if s.Abilities.Switch != FixedModels || s.Abilities.Metrics || s.Abilities.Template {
		t.Fatalf("it can %+v", s.Abilities)
	}
	if err := s.Load(ctx, "m"); err != nil {
		t.Error(err)
	}
	if err := s.Load(ctx, "other"); !errors.Is(err, ErrUnknownModel) || !errors.Is(err, ErrStays) {
		t.Error(err)
	}
	if err := s.Unload(ctx, "m"); !errors.Is(err, ErrStays) {
		t.Error(err)
	}
	if err := s.Alive(ctx); err != nil {
		t.Error(err)
	}
	if _, err := s.ResumeRequest(ctx, Request{Chat: true, Body: json.RawMessage(`{"messages":[]}`)}, "x"); !errors.Is(err, ErrNotResumed) {
		t.Error(err)
	}
	if _, err := s.ResumeRequest(ctx, Request{Body: json.RawMessage(`{"prompt":[1,2]}`)}, "x"); !errors.Is(err, ErrNotResumed) {
		t.Error(err)
	}
}

func TestProbeErrors(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := Probe(ctx, "http://127.0.0.1:1"); !errors.Is(err, ErrGone) {
		t.Errorf("nobody there: %v", err)
	}
	h := httptest.NewServer(http.NotFoundHandler())
	defer h.Close()
	if _, err := Probe(ctx, h.URL); !errors.Is(err, ErrNoSuchPath) {
		t.Errorf("another server: %v", err)
	}
}

// How many requests a server should have of ours.
func TestServerTakesOurShareOfSlots(t *testing.T) {
	for _, c := range []struct {
		state State
		ours  int
		want  int
	}{
		{State{Slots: 4}, 0, 4},
		{State{Running: 2, Slots: 4}, 2, 4},
		{State{Running: 3, Slots: 4}, 2, 3},             // another client has one
		{State{Running: 4, Waiting: 2, Slots: 4}, 3, 1}, // three of another's come or wait
		{State{Running: 9}, 9, -1},
		{State{Running: 9, Waiting: 1}, 10, 9},
		{State{Running: 9, KV: .96}, 9, 9},
		{State{Running: 4, Slots: 4}, 0, 0},
		{State{Waiting: 1}, 1, 1}, // it is empty but for what comes
	} {
		if got := c.state.MaxOwnRequests(c.ours); got != c.want {
			t.Errorf("%+v with %d of ours: room for %d, expected %d", c.state, c.ours, got, c.want)
		}
	}
}

// Whatever metrics say, reading them ends in counts of 0 or more.
func FuzzState(f *testing.F) {
	f.Add("llamacpp:requests_processing 3\nvllm:kv_cache_usage_perc{a=\"} 1\"} 0.5 123\n")
	f.Add("vllm:num_requests_running{} NaN\nsglang:token_usage -1\n#\n{} 1")
	f.Fuzz(func(t *testing.T, text string) {
		if s := readState(text); s.Running < 0 || s.Waiting < 0 || !(s.KV >= 0) {
			t.Fatalf("%q: %+v", text, s)
		}
	})
}
