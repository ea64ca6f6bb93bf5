package calls_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"inferplan/executor/calls"
	form "inferplan/formats/calls"
	"inferplan/testkit/program"
)

// models is a backend that runs tasks in goroutines once what they read is there.
type models struct {
	mu    sync.Mutex
	open  map[string]chan struct{} // closed with the request
	most  int                      // tasks that came at once
	tasks sync.WaitGroup
}

func newModels() *models { return &models{open: map[string]chan struct{}{}} }

func (m *models) MaxMessageBytes() int64 { return 0 }

func (m *models) BeginRequest(request string, open *form.Open) (time.Duration, error) {
	if open.Application == "full" {
		return 0, &calls.RefusedError{Reason: "overload", RetryAfter: 1500 * time.Millisecond}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open[request] = make(chan struct{})
	if open.Application == "short" {
		return 100 * time.Millisecond, nil
	}
	return time.Minute, nil
}

func (m *models) EndRequest(request string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.open[request])
	delete(m.open, request)
}

func (m *models) left() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.open)
}

func (m *models) Enqueue(request string, tasks []calls.Task, news calls.TaskListener) error {
	m.mu.Lock()
	over := m.open[request]
	m.most = max(m.most, len(tasks))
	m.mu.Unlock()
	for _, t := range tasks {
		if t.Model == "none" {
			return fmt.Errorf("no model %q", t.Model)
		}
	}
	for _, t := range tasks {
		m.tasks.Go(func() { run(t, news, over) })
	}
	return nil
}

// run answers with a text that depends on what was read: agents agree once they
// have read each other.
func run(t calls.Task, news calls.TaskListener, over chan struct{}) {
	select {
	case <-over:
		return
	case <-time.After(time.Millisecond):
	}
	switch t.Model {
	case "broken":
		news.TaskEnded(t.Handle, nil, errors.New("no memory"))
		return
	case "slow":
		<-over
		return
	}
	raw, _ := t.Inputs["agent"].(json.RawMessage)
	text := fmt.Sprintf("agent %s", raw)
	if len(t.Reads) > 0 {
		text = "tea"
	}
	news.TaskEnded(t.Handle, form.Outputs{"text": text}, nil)
}

// cut ends what is open at once.
func cut(h *calls.Handler) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	h.Drain(ctx)
}

func serve(t *testing.T, limits calls.Limits) (*models, *calls.Handler, *program.Client) {
	t.Helper()
	m := newModels()
	h := calls.NewHandler(m, nil, limits)
	s := httptest.NewServer(h)
	t.Cleanup(func() { s.Close(); cut(h); m.tasks.Wait() })
	return m, h, &program.Client{URL: s.URL, HTTP: s.Client()}
}

// debate is a program: three agents answer until they agree.
func debate(s *program.Session) (form.Outputs, error) {
	var agents []form.Handle
	for round := range 3 {
		var next []form.Handle
		for i := range 3 {
			h, err := s.Enqueue(form.Call{Model: "llm", Reads: agents, Inputs: map[string]any{"agent": i}})
			if err != nil {
				return nil, err
			}
			next = append(next, h)
		}
		agents = next
		said := map[any]bool{}
		for _, h := range agents {
			out, err := s.Result(h)
			if err != nil {
				return nil, err
			}
			said[out["text"]] = true
		}
		if len(said) == 1 {
			return form.Outputs{"rounds": round + 1}, nil
		}
	}
	return form.Outputs{"rounds": 3}, nil
}

func TestProgramAgainstServer(t *testing.T) {
	m, h, c := serve(t, calls.Limits{})
	out, err := c.Run(t.Context(), form.Open{Application: "debate"}, debate)
	if err != nil || out["rounds"] != 2 {
		t.Errorf("%v, %v, expected two rounds", out, err)
	}
	_, err = c.Run(t.Context(), form.Open{Application: "stream"}, func(s *program.Session) (form.Outputs, error) {
		h, err := s.Enqueue(form.Call{Model: "llm"})
		if err != nil {
			return nil, err
		}
		r, err := s.Stream(h)
		if err != nil || r.Outputs["text"] != "agent " {
			return nil, fmt.Errorf("%+v, %v", r, err)
		}
		return nil, nil
	})
	if err != nil {
		t.Error(err)
	}
	if h.Open() != 0 || m.left() != 0 {
		t.Errorf("%d requests in the store, %d in the backend", h.Open(), m.left())
	}
}

// What fails is told, and the request is ended all the same.
func TestFailuresEndTheRequest(t *testing.T) {
	m, h, c := serve(t, calls.Limits{})
	for _, x := range []struct {
		call form.Call
		want string
	}{
		{form.Call{Model: "broken"}, "no memory"},
		{form.Call{Model: "none"}, "no model"},
		{form.Call{Model: ""}, "tasks[0].model: found nothing"},
		{form.Call{Model: "llm", Work: -1}, "tasks[0].work"},
		{form.Call{Model: "llm", Reads: []form.Handle{"t7"}}, "no such task"},
		{form.Call{Model: "llm", Reads: []form.Handle{"#0"}}, "no such task"},
	} {
		_, err := c.Run(t.Context(), form.Open{Application: "a"}, func(s *program.Session) (form.Outputs, error) {
			task, err := s.Enqueue(x.call)
			if err != nil {
				return nil, err
			}
			return s.Result(task)
		})
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%+v: %v, expected %s", x.call, err, x.want)
		}
	}
	_, err := c.Run(t.Context(), form.Open{Application: "full"}, debate)
	if r, ok := errors.AsType[*calls.RefusedError](err); !ok || r.Reason != "overload" || r.RetryAfter != 2*time.Second {
		t.Errorf("a refused request: %v", err)
	}
	if h.Open() != 0 || m.left() != 0 {
		t.Errorf("%d requests in the store, %d in the backend", h.Open(), m.left())
	}
	cut(h)
	if _, err := c.Run(t.Context(), form.Open{Application: "a"}, debate); err == nil || !strings.Contains(err.Error(), "the server ends") {
		t.Errorf("a request of a server that ends: %v", err)
	}
}

// A client that goes away leaves nothing behind: its program is cancelled, or it is
// not heard of any more. Requests are bounded.
func TestClientsThatGo(t *testing.T) {
	m, h, c := serve(t, calls.Limits{IdleTimeout: 50 * time.Millisecond, MaxRequests: 20})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := c.Run(ctx, form.Open{Application: "a"}, func(s *program.Session) (form.Outputs, error) {
		task, err := s.Enqueue(form.Call{Model: "slow"})
		time.AfterFunc(20*time.Millisecond, cancel)
		return nil, errors.Join(err, s.Wait(task))
	})
	if !errors.Is(err, context.Canceled) || h.Open() != 0 {
		t.Errorf("%v, %d requests open", err, h.Open())
	}
	refused := 0
	for range 30 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request("POST", form.Path, strings.NewReader(`{"application":"a"}`)))
		if w.Code == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused < 1 {
		t.Error("30 requests are open at once, at most 20 may be")
	}
	for end := time.Now().Add(5 * time.Second); h.Open() > 0 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
	}
	if h.Open() != 0 || m.left() != 0 {
		t.Errorf("%d requests in the store, %d in the backend, long after their clients", h.Open(), m.left())
	}
}

// Requests that nobody asks after hold a stop until their deadline; what a program is at
// holds it until the program is done.
func TestForgottenRequestsHoldNoStop(t *testing.T) {
	_, h, _ := serve(t, calls.Limits{})
	for range 50 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request(http.MethodPost, form.Path, strings.NewReader(`{"application":"short"}`)))
		if w.Code != http.StatusCreated {
			t.Fatal(w.Code, w.Body)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	begun := time.Now()
	if h.Drain(ctx); ctx.Err() != nil || h.Open() > 0 {
		t.Errorf("drained after %v with %d requests open, expected none after their deadline of 100ms", time.Since(begun), h.Open())
	}
}

func TestStoreIsEmptyAtTheEnd(t *testing.T) {
	m, h, _ := serve(t, calls.Limits{MaxRequests: 100})
	do := func(method, path, body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request(method, path, strings.NewReader(body)))
		return w
	}
	for i := range 10_000 {
		var opened form.OpenReply
		if err := json.NewDecoder(do("POST", form.Path, `{"application":"a"}`).Body).Decode(&opened); err != nil {
			t.Fatal(err)
		}
		path := form.Path + "/" + opened.Request
		if i%3 > 0 {
			do("POST", path+"/tasks", `{"tasks":[{"model":"llm"},{"model":"llm","reads":["#0"]}]}`)
		}
		if i%3 == 2 {
			do("GET", path+"/tasks/t1?wait=1s", "")
		}
		if w := do("DELETE", path, ""); w.Code != http.StatusNoContent {
			t.Fatalf("status %d", w.Code)
		}
		if w := do("GET", path+"/tasks/t0", ""); w.Code != http.StatusNotFound {
			t.Fatalf("status %d after the end", w.Code)
		}
	}
	if h.Open() != 0 || m.left() != 0 {
		t.Errorf("%d requests in the store, %d in the backend", h.Open(), m.left())
	}
}

// Whatever is sent, the answer is a status and JSON.
func FuzzEnqueue(f *testing.F) {
	for _, body := range []string{`{"tasks":[{"model":"llm"}]}`, `{"tasks":[{"model":"llm","reads":["#0","t1"]}]}`, `{"tasks":[]}`, `{"x":1}`, `[]`, `{"tasks":[{"model":"llm","work":1e400}]}`} {
		f.Add(body, "t0?wait=1ms")
	}
	f.Fuzz(func(t *testing.T, body, task string) {
		m := newModels()
		h := calls.NewHandler(m, nil, calls.Limits{})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request("POST", form.Path, strings.NewReader(`{"application":"a"}`)))
		var opened form.OpenReply
		if err := json.NewDecoder(w.Body).Decode(&opened); err != nil {
			t.Fatal(err)
		}
		w = httptest.NewRecorder()
		h.ServeHTTP(w, request("POST", form.Path+"/"+opened.Request+"/tasks", strings.NewReader(body)))
		if w.Code != http.StatusCreated && w.Code != http.StatusBadRequest && w.Code != http.StatusNotFound {
			t.Fatalf("status %d of %q", w.Code, body)
		}
		if r, err := http.NewRequest("GET", form.Path+"/"+opened.Request+"/tasks/"+task, nil); err == nil {
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		cut(h)
		m.tasks.Wait()
		if m.left() != 0 {
			t.Fatal("a request is left")
		}
	})
}

// The Python client and its example run against the handler.
func TestPythonClientRunsOnHandler(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not on this machine: the Python client is not tried")
	}
	m, h, c := serve(t, calls.Limits{})
	out, err := exec.CommandContext(t.Context(), python, "-B", "../../examples/workflows/debate.py", c.URL, "tea?").CombinedOutput()
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "tea") {
		t.Errorf("%v: %s", err, out)
	}
	if m.most != 3 || h.Open() != 0 || m.left() != 0 {
		t.Errorf("%d tasks at once, %d requests open, %d in the backend", m.most, h.Open(), m.left())
	}
	script := `
import sys
sys.path.insert(0, "../../examples/workflows")
from inferplan_calls import Client, Failure, TaskFailed
c = Client(sys.argv[1])
try:
    c.open("full")
except Failure as e:
    print(e.status, e.reason, e.retry_after)
with c.open("a") as s:
    try:
        s.result(s.enqueue("broken"))
    except TaskFailed as e:
        print(e)
    try:
        s.enqueue("llm", reads=["t9"])
    except Failure as e:
        print(e.status)
`
	out, err = exec.CommandContext(t.Context(), python, "-B", "-c", script, c.URL).CombinedOutput()
	if want := "429 overload 2\nt0: no memory\n404\n"; err != nil || string(out) != want {
		t.Errorf("%v: %s, expected %s", err, out, want)
	}
}

// request is one to an address of this machine.
func request(method, path string, body io.Reader) *http.Request {
	r := httptest.NewRequest(method, path, body)
	r.Host = "127.0.0.1"
	return r
}

// Messages are decoded strictly, and within a small limit where no tensor takes more.
func TestMessagesAreReadStrictly(t *testing.T) {
	_, h, _ := serve(t, calls.Limits{})
	for _, c := range []struct {
		body string
		code int
		want string
	}{
		{`{"application":"a","application":"b"}`, 400, "application: given twice"},
		{`{"application":"a","parameters":{}}`, 201, "request"},
		{`{"application":"a","parameters":{"n":1}}`, 400, "parameters.n: no application declares parameters"},
		{`{"application":"a","inputs":{"x":[1],"x":[2]}}`, 400, "inputs.x: given twice"},
		{`{"application":"a","inputs":{"x":{}}}`, 400, "inputs.x: JSON"},
		{`{"application":"a","other":1}`, 400, "other: found a field that is not known"},
		{`{"application":"a"} x`, 400, "after the end of the value"},
		{`{"timeout_ms":1e400,"application":"a"}`, 400, "timeout_ms: found 1e400"},
		{`{}`, 400, "application: found nothing"},
		{`{"application":"a","inputs":{"x":[` + strings.Repeat("1,", 1<<19) + `1]}}`, 413, "at most 1048576 are taken"},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request("POST", form.Path, strings.NewReader(c.body)))
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%.60s: %d %s, expected %d with %s", c.body, w.Code, w.Body, c.code, c.want)
		}
	}
	cut(h)
}
