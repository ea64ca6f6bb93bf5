package executor

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inferplan/executor/calls"
	"inferplan/executor/completions"
	"inferplan/executor/durable/bolt"
	"inferplan/executor/httplimit"
	"inferplan/executor/live"
	"inferplan/executor/oip"
	"inferplan/executor/text"
	form "inferplan/formats/calls"
	"inferplan/formats/served"
)

// doorKey is the key of the tests of doors.
const doorKey = "the-key-of-the-door"

// doored is a handler of each protocol behind a door with little memory.
func doored(t *testing.T) (door *httplimit.Door, handlers map[string]http.Handler) {
	t.Helper()
	ring, err := httplimit.NewKeyring(httplimit.Key{Token: doorKey, Name: "somebody"})
	if err != nil {
		t.Fatal(err)
	}
	budget := httplimit.NewBudget(32<<10, quiet())
	budget.Patience = 0
	door = (&httplimit.Door{Keys: ring, Budget: budget, Log: quiet()}).WithDefaults()
	x := open(t, segmentPlan(time.Millisecond, 2, winding(), windingModels), replayOptions(true))
	code := calls.NewHandler(x.Programs(), door, calls.Limits{MaxBodyBytes: 64 << 10})
	store, err := bolt.Open(filepath.Join(t.TempDir(), "requests.db"), bolt.Options{Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	front, err := completions.New(completions.Options{Store: store, Server: nobody{}, Door: door, MaxBodyBytes: 64 << 10, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { front.Close(); store.Close() })
	mux := http.NewServeMux()
	mux.HandleFunc("GET /rates", x.serveRates)
	text.AddLengths(mux, x.core.Load)
	live.AddPages(mux, live.NewSampler(x.snapshot, &live.EventLog{}), &live.View{Render: func(*served.State) ([]byte, error) { return nil, nil }})
	return door, map[string]http.Handler{
		"tensors": oip.NewHTTPServer(x, oip.Options{Door: door, MaxBodyBytes: 64 << 10, Fallback: code, FallbackPath: form.Path}),
		"text":    front,
		"metrics": oip.Guard(door, mux),
	}
}

// nobody serves no text.
type nobody struct{}

func (nobody) Models() []completions.Model                       { return nil }
func (nobody) Admit(*completions.Request) (time.Duration, error) { return 0, nil }
func (nobody) Serve(*completions.Request, completions.Output)    {}
func (nobody) Forget(string)                                     {}

// handlersOfServers are the handlers of all protocols. A body is what a client may send.
var handlersOfServers = []struct {
	server, method, path string
	open                 bool   // without a key
	body                 string // content type of the body that it reads; empty: it reads none
}{
	{"tensors", "GET", "/v2/health/live", true, ""},
	{"tensors", "GET", "/v2/health/ready", true, ""},
	{"tensors", "GET", "/v2", false, ""},
	{"tensors", "GET", "/v2/models/app", false, ""},
	{"tensors", "GET", "/v2/models/app/ready", false, ""},
	{"tensors", "GET", "/v2/models/app/stats", false, ""},
	{"tensors", "GET", "/v2/models/stats", false, ""},
	{"tensors", "POST", "/v2/repository/index", false, "application/json"},
	{"tensors", "POST", "/v2/models/app/infer", false, "application/json"},
	{"tensors", "GET", "/nothing", false, ""},
	{"tensors", "POST", form.Path, false, "application/json"},
	{"tensors", "POST", form.Path + "/x/tasks", false, ""},
	{"tensors", "GET", form.Path + "/x/tasks/t0", false, ""},
	{"tensors", "GET", form.Path + "/x/tasks/t0/stream", false, ""},
	{"tensors", "DELETE", form.Path + "/x", false, ""},
	{"text", "GET", "/health", true, ""},
	{"text", "POST", "/v1/completions", false, "application/json"},
	{"text", "POST", "/v1/chat/completions", false, "application/json"},
	{"text", "GET", "/v1/completions/x", false, ""},
	{"text", "POST", "/v1/completions/x/cancel", false, ""},
	{"text", "GET", "/v1/models", false, ""},
	{"text", "GET", "/v1/models/m", false, ""},
	{"text", "POST", "/v1/files", false, ""},
	{"text", "GET", "/v1/files", false, ""},
	{"text", "GET", "/v1/files/f", false, ""},
	{"text", "GET", "/v1/files/f/content", false, ""},
	{"text", "DELETE", "/v1/files/f", false, ""},
	{"text", "POST", "/v1/batches", false, "application/json"},
	{"text", "GET", "/v1/batches", false, ""},
	{"text", "GET", "/v1/batches/b", false, ""},
	{"text", "POST", "/v1/batches/b/cancel", false, ""},
	{"text", "GET", "/nothing", false, ""},
	{"metrics", "GET", "/rates", false, ""},
	{"metrics", "GET", "/lengths", false, ""},
	{"metrics", "GET", "/live.json", false, ""},
	{"metrics", "GET", "/", false, ""},
	{"metrics", "GET", "/metrics", false, ""},
}

// Every handler of every protocol asks for a key, refuses pages of other sites, reads no
// more of a body than its limit, and none that the memory for requests has no room for.
func TestEveryHandlerStandsBehindTheDoor(t *testing.T) {
	door, handlers := doored(t)
	ask := func(server, method, path string, change func(*http.Request)) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "http://127.0.0.1"+path, http.NoBody)
		r.Header.Set("Authorization", "Bearer "+doorKey)
		if change != nil {
			change(r)
		}
		w := httptest.NewRecorder()
		handlers[server].ServeHTTP(w, r)
		return w
	}
	for _, h := range handlersOfServers {
		where := fmt.Sprintf("%s: %s %s", h.server, h.method, h.path)
		if w := ask(h.server, h.method, h.path, func(r *http.Request) { r.Header.Del("Authorization") }); (w.Code == 401) == h.open {
			t.Errorf("%s without a key: %d", where, w.Code)
		}
		if w := ask(h.server, h.method, h.path, func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }); (w.Code == 403) == h.open {
			t.Errorf("%s from a page of another site: %d", where, w.Code)
		}
		if h.body == "" {
			continue
		}
		send := func(length int64, body io.Reader) *httptest.ResponseRecorder {
			return ask(h.server, h.method, h.path, func(r *http.Request) {
				r.Body, r.ContentLength = io.NopCloser(body), length
				r.Header.Set("Content-Type", h.body)
			})
		}
		if w := send(1<<20, strings.NewReader("")); w.Code != 413 || w.Header().Get("Connection") != "close" {
			t.Errorf("%s with a body that is announced too long: %d, connection %q", where, w.Code, w.Header().Get("Connection"))
		}
		// More than the memory has, less than the limit.
		if w := send(-1, strings.NewReader(strings.Repeat(" ", 60<<10))); w.Code != 503 && w.Code != 429 || !strings.Contains(w.Body.String(), "at most 32768 are held") {
			t.Errorf("%s beyond the memory for requests: %d %s", where, w.Code, w.Body)
		}
		if w := ask(h.server, h.method, h.path, func(r *http.Request) {
			r.Header.Set("Content-Type", "text/plain")
			r.Body = io.NopCloser(strings.NewReader("{}"))
		}); w.Code != 415 {
			t.Errorf("%s as text/plain: %d", where, w.Code)
		}
		if used := door.Budget.UsedBytes(); used != 0 {
			t.Errorf("%s: %d bytes are held afterwards", where, used)
		}
	}
}

// Keys are those of all protocols, with their limits.
func TestKeysOfAPoolPlan(t *testing.T) {
	ring, err := httplimit.NewKeyring(
		httplimit.Key{Token: doorKey, Name: "slow", RPS: .001, Burst: 2},
		httplimit.Key{Token: doorKey + "-2", Name: "other"})
	if err != nil {
		t.Fatal(err)
	}
	x := open(t, twoStagePlan(time.Millisecond, 1, patient), replayOptions(true))
	h := oip.NewHTTPServer(x, oip.Options{Door: &httplimit.Door{Keys: ring, Log: slog.New(slog.DiscardHandler)}})
	codes := func(token string, n int) (out []int) {
		for range n {
			r := httptest.NewRequest("POST", "http://127.0.0.1/v2/models/m/infer", strings.NewReader(`{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]}`))
			r.Header.Set("Authorization", "Bearer "+token)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code == 400 {
				t.Fatal(w.Body)
			}
			out = append(out, w.Code)
		}
		return out
	}
	for token, want := range map[string]string{"": "[401]", doorKey: "[200 200 429]", doorKey + "-2": "[200 200 200]"} {
		if got := fmt.Sprint(codes(token, len(strings.Fields(want)))); got != want {
			t.Errorf("key %q: %s, expected %s", token, got, want)
		}
	}
}
