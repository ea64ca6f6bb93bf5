package executor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"inferplan/executor/calls"
	"inferplan/formats"
	form "inferplan/formats/calls"
	"inferplan/testkit/program"
)

// coded serves programs over the plan of winding.
func coded(t *testing.T, infer time.Duration, limits calls.Limits) (*Executor, *calls.Handler, *program.Client) {
	t.Helper()
	x := open(t, segmentPlan(infer, 2, winding(), windingModels), replayOptions(true))
	h := calls.NewHandler(x.Programs(), nil, limits)
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return x, h, &program.Client{URL: s.URL, HTTP: s.Client()}
}

// elements are the elements of an output.
func elements(out form.Outputs) (list []byte) {
	values, _ := out["y"].([]any)
	for _, v := range values {
		n, _ := v.(float64)
		list = append(list, byte(n))
	}
	return list
}

// A program asks for tasks in place of the plan's segments: what it gets is what the
// models say one after the other, whether a task reads values of the program or what
// other tasks make.
func TestProgramOnWorkers(t *testing.T) {
	ask := alone(t, windingModels)
	x, h, client := coded(t, 3*time.Millisecond, calls.Limits{})
	seen := ask("a", []byte{1, 2, 3, 4})
	out, err := client.Run(t.Context(), form.Open{Application: "app"}, func(s *program.Session) (form.Outputs, error) {
		first, err := s.Enqueue(form.Call{Model: "a", Inputs: map[string]any{"x": []any{1, 2, 3, 4}}})
		if err != nil {
			return nil, err
		}
		second, err := s.Enqueue(form.Call{Model: "c", Reads: []form.Handle{first}})
		if err != nil {
			return nil, err
		}
		a, err := s.Result(first)
		if err != nil || string(elements(a)) != string(seen) {
			return nil, fmt.Errorf("%v, %w, expected %v", a, err, seen)
		}
		// A task that is asked for while another one runs does not wait for its end.
		third, err := s.Enqueue(form.Call{Model: "b", Inputs: map[string]any{"x": []any{float64(seen[0]), float64(seen[1])}}})
		if err != nil {
			return nil, err
		}
		b, err := s.Result(third)
		if want := ask("b", seen[:2]); err != nil || string(elements(b)) != string(want) {
			return nil, fmt.Errorf("%v, %w, expected %v", b, err, want)
		}
		return s.Result(second)
	})
	if want := ask("c", seen); err != nil || string(elements(out)) != string(want) {
		t.Errorf("%v, %v, expected %v", out, err, want)
	}
	nothingHeld(t, x)
	if h.Open() != 0 {
		t.Errorf("%d requests are open", h.Open())
	}
	if r := x.Report(); r.Completed != 1 || r.Dropped != 0 {
		t.Errorf("report %+v", r.Counts)
	}
}

// What is wrong with a task is said at once, and the request goes on.
func TestProgramsThatAskForNonsense(t *testing.T) {
	x, _, client := coded(t, time.Millisecond, calls.Limits{})
	for _, c := range []struct {
		call form.Call
		want string
	}{
		{form.Call{Model: "z"}, `tasks[0].model: found "z", expected one of the plan in force`},
		{form.Call{Model: "a"}, "tasks[0].reads: nothing gives the input x of the model a"},
		{form.Call{Model: "a", Inputs: map[string]any{"w": 1}}, `inputs: found "w", expected inputs of a`},
		{form.Call{Model: "a", Inputs: map[string]any{"x": []any{1, 2, 3}}}, "inputs.x: found 3 elements, expected 4 of UINT8"},
		{form.Call{Model: "a", Inputs: map[string]any{"x": []any{1, 2, 3, 256}}}, "found 256, expected a number that UINT8 holds"},
		{form.Call{Model: "a", Inputs: map[string]any{"x": []any{1, 2, 3, 4, 5}}}, "more than 4 elements"},
		{form.Call{Model: "a", Inputs: map[string]any{"x": "text"}}, `found "text", expected a number`},
		{form.Call{Model: "b", Reads: []form.Handle{"t0"}}, "and the model b takes"},
	} {
		_, err := client.Run(t.Context(), form.Open{Application: "app"}, func(s *program.Session) (form.Outputs, error) {
			first, err := s.Enqueue(form.Call{Model: "a", Inputs: map[string]any{"x": []any{1, 2, []any{3, 4}}}})
			if err == nil {
				_, err = s.Result(first)
			}
			if err != nil {
				t.Error(err)
			}
			h, err := s.Enqueue(c.call)
			if err != nil {
				return nil, err
			}
			return s.Result(h)
		})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, expected %s", c.call, err, c.want)
		}
	}
	if _, err := client.Run(t.Context(), form.Open{Application: "other"}, nil); err == nil || !strings.Contains(err.Error(), `found "other"`) {
		t.Errorf("an application that is not there: %v", err)
	}
	nothingHeld(t, x)
}

// bringing is a workflow whose second model takes what the client sent, by a step, and
// reads the first one.
func bringing() formats.FlowApplication {
	return formats.FlowApplication{Segments: []formats.Segment{
		{Name: "first", Modules: []formats.Module{{Name: "look", Model: "a", Predecessors: []string{}}}},
		{Name: "second", Modules: []formats.Module{{Name: "again", Model: "c", Predecessors: []string{"look"}, Pre: "client"}}},
	}}
}

// A program's request may bring what clients of its application send: steps before
// models read it, and tasks that read nothing else.
func TestProgramThatBringsInputs(t *testing.T) {
	sizes := map[string][2]int64{"a": {4, 3}, "c": {4, 2}}
	x := open(t, segmentPlan(time.Millisecond, 2, bringing(), sizes), replayOptions(true))
	h := calls.NewHandler(x.Programs(), nil, calls.Limits{})
	server := httptest.NewServer(h)
	defer server.Close()
	client, ask := &program.Client{URL: server.URL, HTTP: server.Client()}, alone(t, map[string][2]int64{"a": {4, 3}, "b": {1, 1}, "c": {4, 2}})
	in := map[string]any{"x": []any{1, 2, 3, 4}}
	run := func(open form.Open, task func(first form.Handle) form.Call) (form.Outputs, error) {
		return client.Run(t.Context(), open, func(s *program.Session) (form.Outputs, error) {
			first := form.Call{Model: "a"}
			if open.Inputs == nil {
				first.Inputs = in
			}
			seen, err := s.Enqueue(first)
			if err != nil {
				return nil, err
			}
			if a, err := s.Result(seen); err != nil || string(elements(a)) != string(ask("a", []byte{1, 2, 3, 4})) {
				return nil, fmt.Errorf("%v, %w", a, err)
			}
			again, err := s.Enqueue(task(seen))
			if err != nil {
				return nil, err
			}
			return s.Result(again)
		})
	}
	reads := func(first form.Handle) form.Call { return form.Call{Model: "c", Reads: []form.Handle{first}} }
	out, err := run(form.Open{Application: "app", Inputs: in}, reads)
	if want := ask("c", []byte{1, 2, 3, 4}); err != nil || string(elements(out)) != string(want) {
		t.Errorf("%v, %v, expected %v", out, err, want)
	}
	for _, c := range []struct {
		open form.Open
		task func(form.Handle) form.Call
		want string
	}{
		{form.Open{Application: "app"}, reads, "model: c has the step client before it"},
		{form.Open{Application: "app", Inputs: in}, func(form.Handle) form.Call { return form.Call{Model: "c", Inputs: in} }, "give the task none"},
		{form.Open{Application: "app", Inputs: in}, func(form.Handle) form.Call { return form.Call{Model: "c"} }, "the step client before the model c reads 1 tensors of [3] bytes"},
		{form.Open{Application: "app", Inputs: map[string]any{"y": 1}}, reads, `inputs: found "y", expected inputs of app`},
		{form.Open{Application: "app", Inputs: map[string]any{"x": []any{1}}}, reads, "inputs.x: found 1 elements, expected 4"},
	} {
		if _, err := run(c.open, c.task); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, expected %s", c.open, err, c.want)
		}
	}
	until(func() bool { return h.Open() == 0 })
	nothingHeld(t, x)
}

// A client that goes away leaves nothing, whatever of its requests was under way.
func TestProgramsThatGoAway(t *testing.T) {
	requests := 1000
	if long() {
		requests = 10_000
	}
	x := open(t, segmentPlan(time.Millisecond, 2, winding(), windingModels), replayOptions(true))
	h := calls.NewHandler(x.Programs(), nil, calls.Limits{IdleTimeout: 50 * time.Millisecond, MaxPerClient: 128})
	post := func(path, body string) (status int, answer string) {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1"+form.Path+path, strings.NewReader(body))
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	var wg sync.WaitGroup
	for client := range 8 {
		wg.Go(func() {
			for i := client; i < requests; i += 8 {
				var opened form.OpenReply
				status, answer := post("", `{"application":"app"}`)
				if status != http.StatusCreated || json.NewDecoder(strings.NewReader(answer)).Decode(&opened) != nil {
					if status != http.StatusTooManyRequests { // those that are gone are still known
						t.Errorf("%d %s", status, answer)
					}
					i -= 8
					time.Sleep(time.Millisecond)
					continue
				}
				switch i % 4 {
				case 0: // gone at once
				case 1, 2:
					post("/"+opened.Request+"/tasks", `{"tasks":[{"model":"a","inputs":{"x":[1,2,3,4]}},{"model":"c","reads":["#0"]}]}`)
				case 3: // it ends well
					post("/"+opened.Request+"/tasks", `{"tasks":[{"model":"b","inputs":{"x":[1,2]}}]}`)
					r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+form.Path+"/"+opened.Request+"/tasks/t0?wait=10s", nil)
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					if w.Code != http.StatusNotFound && !strings.Contains(w.Body.String(), `"done"`) { // on a busy machine it may have paused for too long
						t.Errorf("%d %s", w.Code, w.Body)
					}
					h.ServeHTTP(w, httptest.NewRequest(http.MethodDelete, "http://127.0.0.1"+form.Path+"/"+opened.Request, nil))
				}
			}
		})
	}
	wg.Wait()
	until(func() bool { return h.Open() == 0 })
	nothingHeld(t, x)
}

// A server that ends refuses what is new, and a program that is at it comes to its end.
func TestProgramsWhileServerEnds(t *testing.T) {
	x, h, client := coded(t, 20*time.Millisecond, calls.Limits{})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ended := make(chan struct{})
	_, err := client.Run(t.Context(), form.Open{Application: "app"}, func(s *program.Session) (form.Outputs, error) {
		go func() {
			defer close(ended)
			h.Drain(ctx)
		}()
		until(func() bool {
			_, err := client.Run(t.Context(), form.Open{Application: "app"}, func(*program.Session) (form.Outputs, error) { return nil, nil })
			return err != nil && strings.Contains(err.Error(), "the server ends")
		})
		first, err := s.Enqueue(form.Call{Model: "a", Inputs: map[string]any{"x": []any{1, 2, 3, 4}}})
		if err != nil {
			return nil, err
		}
		return s.Result(first)
	})
	if err != nil {
		t.Error(err)
	}
	<-ended
	if ctx.Err() != nil {
		t.Error("it did not end with the last program")
	}
	nothingHeld(t, x)
}

// The Python client runs a program on a server.
func TestPythonOnServer(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not on this machine: the Python client is not tried")
	}
	x, _, client := coded(t, time.Millisecond, calls.Limits{})
	ask := alone(t, windingModels)
	script := `
import sys
sys.path.insert(0, "../examples/workflows")
from inferplan_calls import Client, Failure
client = Client(sys.argv[1])
with client.open("app") as s:
    first = s.enqueue("a", inputs={"x": [1, 2, 3, 4]})
    seen = s.result(first)["y"]
    if seen[0] % 2 == int(sys.argv[2]):
        again = s.enqueue("c", reads=[first])
        print(seen + s.result(again)["y"])
    else:
        sys.exit("the other way")
try:
    client.open("none")
except Failure as e:
    print(e.status)
`
	seen := ask("a", []byte{1, 2, 3, 4})
	out, err := exec.CommandContext(t.Context(), python, "-B", "-c", script, client.URL, fmt.Sprint(seen[0]%2)).CombinedOutput()
	want := strings.ReplaceAll(fmt.Sprint(append(seen, ask("c", seen)...)), " ", ", ") + "\n400\n"
	if err != nil || string(out) != want {
		t.Errorf("%v: %s, expected %s", err, out, want)
	}
	nothingHeld(t, x)
}
