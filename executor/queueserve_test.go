package executor

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inferplan/executor/durable"
	"inferplan/executor/durable/bolt"
	"inferplan/executor/text"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/served"
	"inferplan/testkit/llm/fake"
)

// textServer is plan serve of a plan of queues in this process.
type textServer struct {
	url, metrics string
	stop         func() (*formats.Report, error)
}

// serveText serves a plan of queues from a store.
func serveText(t *testing.T, path, store string, servers ...*fake.Server) *textServer {
	t.Helper()
	return serveTextDraining(t, 200*time.Millisecond, path, store, servers...)
}

// serveTextDraining is serveText with another time to drain.
func serveTextDraining(t *testing.T, drain time.Duration, path, store string, servers ...*fake.Server) *textServer {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	addresses, ended := make(chan Addresses, 1), make(chan error, 1)
	var report *formats.Report
	o := ServeOptions{Plan: path, HTTP: "127.0.0.1:0", GRPC: AddressOff, Metrics: "127.0.0.1:0", DrainTimeout: drain, OnReady: func(a Addresses) { addresses <- a }}
	o.View = liveView
	o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	for i, s := range servers {
		o.Servers = append(o.Servers, text.InstanceServer{Instance: i, URL: s.URL()})
	}
	o.Queue.Open = func() (durable.Store, error) { return bolt.Open(store, bolt.Options{Log: o.Log}) }
	go func() {
		r, err := Serve(ctx, o)
		report = r
		ended <- err
	}()
	s := &textServer{}
	stopped := false
	s.stop = func() (*formats.Report, error) {
		if stopped {
			return report, nil
		}
		stopped = true
		cancel()
		return report, <-ended
	}
	t.Cleanup(func() {
		if _, err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	select {
	case a := <-addresses:
		s.url, s.metrics = "http://"+a.HTTP, "http://"+a.Metrics
	case err := <-ended:
		stopped = true
		t.Fatal(err)
	}
	return s
}

// post sends JSON.
func post(t *testing.T, url, body string) (int, map[string]any) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var out map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, out
}

// textOf is the text of a completion.
func textOf(body map[string]any) string {
	list, _ := body["choices"].([]any)
	if len(list) == 0 {
		return fmt.Sprint(body)
	}
	text, _ := list[0].(map[string]any)["text"].(string)
	return text
}

// A plan of queues is served over OpenAI's protocol: whole and streamed answers, the
// models, metrics, and after a restart the answer of a request that was begun.
func TestQueuesServeOpenAIProtocol(t *testing.T) {
	plan := queuePlan(1, 4, time.Minute, "a", "b")
	path := filepath.Join(t.TempDir(), "plan.json")
	if _, err := document.WriteFile(path, completePlan(plan)); err != nil {
		t.Fatal(err)
	}
	store := filepath.Join(t.TempDir(), "requests.db")
	f, err := fake.Start(fake.Options{Models: []string{"a", "b"}, Token: time.Millisecond, Manual: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Stop)
	s := serveText(t, path, store, f)
	for _, m := range []string{"a", "b", "a"} {
		if code, body := post(t, s.url+"/v1/completions", fmt.Sprintf(`{"model":%q,"prompt":"hello","max_tokens":12}`, m)); code != 200 || textOf(body) != fake.Text(m, "hello", 12) {
			t.Errorf("%s: %d %v", m, code, body)
		}
	}
	resp, err := http.Post(s.url+"/v1/completions", "application/json", strings.NewReader(`{"model":"a","prompt":"long","max_tokens":400,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	id := ""
	for lines := bufio.NewScanner(resp.Body); id == "" && lines.Scan(); {
		var event struct{ ID string }
		if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok && json.Unmarshal(data, &event) == nil {
			id = event.ID
		}
	}
	for _, want := range []string{"inferplan_time_to_first_token_seconds_count", "inferplan_instance_swaps_total{instance=\"0:L4\"} 2", "inferplan_generation_tokens_total{model=\"a\"} 24"} {
		if text := getText(t, s.metrics+"/metrics"); !strings.Contains(text, want) {
			t.Errorf("the metrics lack %q", want)
		}
	}
	checkQueuePage(t, s.metrics)
	if _, err := s.stop(); err != nil {
		t.Fatal(err)
	}
	s = serveText(t, path, store, f)
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var body map[string]any
		if err := json.Unmarshal([]byte(getText(t, s.url+"/v1/completions/"+id)), &body); err != nil {
			t.Fatal(err)
		}
		if textOf(body) == fake.Text("a", "long", 400) {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("after the restart request %s is %v", id, body)
		}
	}
	if n := f.Counts().Completions; n != 5 {
		t.Errorf("%d completions, expected one for each of 3 requests and two for the one that was continued", n)
	}
}

// checkQueuePage holds the page of the server against the request that is running.
func checkQueuePage(t *testing.T, url string) {
	t.Helper()
	if page := getText(t, url+"/"); !strings.Contains(page, "Groups, in the order of service") || !strings.Contains(page, "<td>0:L4</td>") {
		t.Errorf("the page is %q", page)
	}
	var state struct {
		served.State
		Part served.Queue `json:"part"`
	}
	if err := json.Unmarshal([]byte(getText(t, url+"/live.json")), &state); err != nil {
		t.Fatal(err)
	}
	if i := state.Part.Instances; len(i) != 1 || !i[0].Up || i[0].Model != "a" || i[0].Running != 1 || state.OpenRequests != 1 || state.Kind != "queue" {
		t.Errorf("the page shows %+v", state)
	}
	if text := getText(t, url+"/metrics"); !strings.Contains(text, "inferplan_queue_groups{instance=\"0:L4\"} 0") || !strings.Contains(text, "inferplan_queue_replans_total{outcome=\"failed\"} 0") {
		t.Error("the metrics lack the queues")
	}
}

func getText(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// completePlan is a plan with what a file of one needs.
func completePlan(p *formats.Plan) *formats.Plan {
	p.Format, p.Algorithm, p.StoppedBy, p.Objective = formats.FormatPlan, "search", "work", formats.Objective{Name: "goodput", Value: 1}
	p.Tool.Version, p.Inputs = "0", []formats.Input{}
	for i := range p.Deployment {
		p.Deployment[i].NumBlocks, p.Deployment[i].Pipelines = 1, []formats.Pipeline{}
	}
	return p
}
