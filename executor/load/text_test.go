package load_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"inferplan/executor/load"
	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/testkit/llm/fake"
)

// listed is a schedule of requests.
type listed struct{ list []arrivals.Request }

func (l *listed) Next(r *arrivals.Request) bool {
	if len(l.list) == 0 {
		return false
	}
	*r, l.list = l.list[0], l.list[1:]
	return true
}

// Completions are sent with the lengths of the schedule, or else of the model, in tokens of the
// server (the fake one's are characters), and judged by the figure that their SLO is of.
func TestCompletionsHaveScheduledLengths(t *testing.T) {
	s, err := fake.Start(fake.Options{Models: []string{"chat"}, Plain: true, Slots: 64, Token: 5 * time.Millisecond, Fault: func(n int, prompt string) fake.Fault {
		return fake.Fault{Refuse: len(prompt) == 3}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	cfg := load.Config{URL: s.URL() + "/v1", Protocol: load.Completions, Models: []load.Model{
		{Name: "chat", Class: "interactive", SLO: 2 * time.Second, SLOOf: formats.FigureTTFT},
		{Name: "chat", Class: "batch", SLO: 10 * time.Millisecond, Output: &formats.Lengths{Distribution: formats.LengthsEmpirical, Tokens: []int{20}}},
	}}
	res, err := load.Run(context.Background(), cfg, &listed{[]arrivals.Request{
		{Model: 0, PromptTokens: 5, OutputTokens: 12}, {Model: 0, PromptTokens: 3, OutputTokens: 12}, {Model: 1, PromptTokens: 5, Session: 7}, {Model: 1, PromptTokens: 7, Session: 7},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if m := res.Models; m[0].Completed != 1 || m[0].Late != 0 || m[0].DroppedByReason["error.http_400"] != 1 || m[1].Completed != 2 || m[1].Late != 2 {
		t.Errorf("models %+v", m)
	}
	if k := res.Classes; len(k) != 2 || k[0].TTFTP99US.D() < 5*time.Millisecond || k[0].E2EP99US.D() < 60*time.Millisecond || k[1].E2EP99US.D() < 100*time.Millisecond || k[1].Requests != 2 {
		t.Errorf("classes %+v", k)
	} else if perToken := (k[0].E2EP99US.D() - k[0].TTFTP99US.D()) / 11; math.Abs(float64(k[0].TPOTP99US.D())/float64(perToken)-1) > .02 {
		// A late first token shortens the pauses between those that follow, so that their
		// mean may be below the server's 5 ms.
		t.Errorf("TPOT %v of the only request in time, expected %v (its 11 later tokens)", k[0].TPOTP99US.D(), perToken)
	}
	var sessions []string
	for _, p := range s.Counts().Prompts {
		if n := len(p); n == 7 || n == 5 {
			sessions = append(sessions, p)
		}
	}
	alike := 0
	for _, p := range sessions {
		for _, q := range sessions {
			if len(p) < len(q) && strings.HasPrefix(q, p) {
				alike++
			}
		}
	}
	if len(sessions) != 3 || alike != 1 {
		t.Errorf("prompts %q: expected two of one session that begin alike", sessions)
	}
	cfg.Models = []load.Model{{Name: "none"}}
	if _, err := load.Run(context.Background(), cfg, &listed{}); err == nil || errors.Is(err, load.ErrConfig) {
		t.Errorf("a model that is not there: %v", err)
	}
}

// A server that does not count the tokens of a sample gets a word for each token, and the report says so.
func TestTokensNotCounted(t *testing.T) {
	s, err := fake.Start(fake.Options{Models: []string{"chat"}, Plain: true, Slots: 4, Token: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	address, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(address)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || bytes.Contains(body, []byte(`"max_tokens":1,`)) {
			http.Error(w, "refused", http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	cfg := load.Config{URL: proxy.URL + "/v1", Protocol: load.Completions, Models: []load.Model{{Name: "chat", SLO: time.Second}}}
	res, err := load.Run(context.Background(), cfg, &listed{[]arrivals.Request{{PromptTokens: 5, OutputTokens: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Warnings) == 0 || !strings.Contains(res.Warnings[0], "did not count the tokens of a sample for chat") {
		t.Errorf("warnings %q", res.Warnings)
	}
	prompts := s.Counts().Prompts
	if last := prompts[len(prompts)-1]; strings.Count(last, " ") != 4 {
		t.Errorf("prompt %q, expected five words", last)
	}
}
