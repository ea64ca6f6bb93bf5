package executor

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inferplan/formats/document"
	"inferplan/testkit/llm/fake"
)

// Embeddings and responses pass through to the servers that have them, whatever the others lack, and what no server
// can answer is refused with the reason.
func TestEmbeddingsAndResponsesPassThrough(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.json")
	if _, err := document.WriteFile(path, completePlan(queuePlan(3, 4, time.Minute, "a"))); err != nil {
		t.Fatal(err)
	}
	var servers []*fake.Server
	for _, o := range []fake.Options{
		{Models: []string{"a", "e"}, Most: 2, Plain: true, Embeds: true},
		{Models: []string{"a", "cold"}, Manual: true, Embeds: true},
		{Models: []string{"a"}, Plain: true, Responds: true, Token: time.Millisecond},
	} {
		s, err := fake.Start(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		servers = append(servers, s)
	}
	s := serveText(t, path, filepath.Join(t.TempDir(), "requests.db"), servers...)
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"embeddings", `{"model":"a","input":"four"}`, 200, "embedding:[4]"},
		{"embeddings", `{"model":"a","input":"four"}`, 200, "embedding:[4]"},
		{"embeddings", `{"model":"e","input":"<&>"}`, 200, "embedding:[3]"},
		{"embeddings", `{"model":"a","input":""}`, 400, "input is empty"},
		{"embeddings", `{"model":"cold","input":"x"}`, 429, `no server has model "cold" in memory now`},
		{"embeddings", `{"model":"none","input":"x"}`, 404, `no server that works has the model "none"`},
		{"embeddings", `{"input":"x"}`, 400, "found none, expected the name of a model"},
		{"embeddings", `{"model":`, 400, "the body: unexpected end of JSON input"},
		{"responses", `{"model":"e","input":"x"}`, 404, `no server of model "e" has /v1/responses`},
		{"responses", `{"model":"a","input":"x","previous_response_id":"resp_1"}`, 400, "send the whole conversation in input"},
		{"responses", `{"model":"a","input":"x","background":true}`, 400, "responses are not kept"},
	} {
		if code, body := post(t, s.url+"/v1/"+c.path, c.body); code != c.status || !strings.Contains(fmt.Sprint(body), c.want) {
			t.Errorf("%s %s: %d %v, expected %d with %q", c.path, c.body, code, body, c.status, c.want)
		}
	}
	if n := len(servers[0].Counts().Forwarded) + len(servers[1].Counts().Forwarded); n != 3 {
		t.Errorf("the servers answered %d embeddings, expected 3", n)
	}
	metrics := getText(t, s.metrics+"/metrics")
	for _, want := range []string{`{path="/v1/embeddings",status="200"} 3`, `{path="/v1/embeddings",status="429"} 1`, `{path="/v1/responses",status="404"} 1`} {
		if !strings.Contains(metrics, "inferplan_forwarded_requests_total"+want) {
			t.Errorf("the metrics lack %s", want)
		}
	}

	// A response is streamed as it comes, one that breaks off is seen to, and a client that leaves ends the request.
	read := func(body string, tokens int) (int, error) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		q, err := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/responses", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
			t.Errorf("content type %q", got)
		}
		n := 0
		lines := bufio.NewScanner(resp.Body)
		for n < tokens && lines.Scan() {
			if strings.HasPrefix(lines.Text(), "data: ") {
				n++
			}
		}
		return n, lines.Err()
	}
	if n, err := read(`{"model":"a","input":"x","max_output_tokens":50}`, 99); n != 50 || err != nil {
		t.Errorf("%d tokens, error %v; expected 50", n, err)
	}
	if n, err := read(`{"model":"a","input":"dies","max_output_tokens":50}`, 99); n != 1 || err == nil {
		t.Errorf("%d tokens, error %v; expected 1 and an error", n, err)
	}
	if n, err := read(`{"model":"a","input":"long","max_output_tokens":100000}`, 5); n != 5 || err != nil {
		t.Errorf("%d tokens, error %v; expected 5", n, err)
	}
	until(func() bool { return strings.Contains(fmt.Sprint(servers[2].Counts().Forwarded), "left") })
}

// What passes through is finished before the server ends, within the time to drain.
func TestForwardedRequestsDrain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.json")
	if _, err := document.WriteFile(path, completePlan(queuePlan(1, 4, time.Minute, "a"))); err != nil {
		t.Fatal(err)
	}
	server, err := fake.Start(fake.Options{Models: []string{"a"}, Plain: true, Responds: true, Token: 30 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	s := serveTextDraining(t, patient, path, filepath.Join(t.TempDir(), "requests.db"), server)
	resp, err := http.Post(s.url+"/v1/responses", "application/json", strings.NewReader(`{"model":"a","input":"x","max_output_tokens":60}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	stopped := make(chan error, 1)
	go func() {
		_, err := s.stop()
		stopped <- err
	}()
	text, err := io.ReadAll(resp.Body)
	if n := strings.Count(string(text), "data: "); n != 60 || err != nil {
		t.Errorf("%d tokens, error %v; expected 60", n, err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
