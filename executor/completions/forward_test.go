package completions

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"inferplan/executor/httplimit"
)

// forwardingFake passes requests through once it is let.
type forwardingFake struct {
	*fake
	begun, let chan struct{}
}

func (f *forwardingFake) Forward(ctx context.Context, r *ForwardedRequest) (*http.Response, error) {
	f.begun <- struct{}{}
	select {
	case <-f.let:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(r.Path + string(r.Body)))}, nil
}

// What passes through needs a key and counts against its limits, those of the front end and that of bodies. Servers of
// agents pass nothing through. A client that leaves ends its request.
func TestForwardedRequestsAreBounded(t *testing.T) {
	f := &forwardingFake{fake: &fake{}, begun: make(chan struct{}, 9), let: make(chan struct{})}
	keys := ring(t, httplimit.Key{Token: "a-key-of-one-request", Name: "one", MaxOpen: 1}, httplimit.Key{Token: "a-key-of-all-requests", Name: "all"})
	r := start(t, f.fake, Options{Server: f, MaxForwarded: 2, MaxBodyBytes: 100, Door: &httplimit.Door{Keys: keys, Log: quiet}})
	const body = `{"model":"m","input":"<x>"}`
	refuses := func(token string, status int, want, body string) {
		t.Helper()
		r.token = token
		if resp, text := r.do("POST", "/v1/embeddings", body); resp.StatusCode != status || !strings.Contains(text, want) {
			t.Errorf("%d %s, expected %d with %s", resp.StatusCode, text, status, want)
		}
	}
	refuses("", 401, "", body)
	refuses("a-key-of-all-requests", 413, "", `{"model":"m","input":"`+strings.Repeat("x", 100)+`"}`)
	refuses("a-key-of-all-requests", 400, "previous_response_id", `{"model":"m","previous_response_id":"r"}`)

	// Two run: one of a key that may have one, and one whose client leaves.
	ctx, leave := context.WithCancel(t.Context())
	answers := make(chan string, 2)
	for _, token := range []string{"a-key-of-one-request", "a-key-of-all-requests"} {
		r.token = token
		q := r.request("POST", "/v1/embeddings", body)
		if token == "a-key-of-all-requests" {
			q = q.WithContext(ctx)
		}
		go func() {
			resp, err := http.DefaultClient.Do(q)
			if err != nil {
				answers <- "left"
				return
			}
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body)
			answers <- string(text)
		}()
		<-f.begun
		refuses("a-key-of-one-request", 429, "1 requests of this key", body)
	}
	refuses("a-key-of-all-requests", 429, "2 requests pass through to servers, at most 2", body)
	leave()
	if got := <-answers; got != "left" {
		t.Errorf("answer %s, expected none", got)
	}
	close(f.let)
	if got := <-answers; got != "/v1/embeddings"+body {
		t.Errorf("answer %s, expected the body as it was sent", got)
	}

	r = start(t, &fake{}, Options{})
	refuses("", 404, "the servers are those of agents", body)
}

// A field that is refused is not decoded, so that it takes no memory beside the body's.
func TestRefusedFieldIsNotDecoded(t *testing.T) {
	body := []byte(`{"model":"m","previous_response_id":[` + strings.Repeat("{},", 10_000) + `{}]}`)
	if n := testing.AllocsPerRun(1, func() {
		if _, refusal := parseForwarded("/v1/responses", body); refusal == nil || refusal.Field != "previous_response_id" {
			t.Errorf("refusal %v, expected one of previous_response_id", refusal)
		}
	}); n > 100 {
		t.Errorf("%v allocations, expected at most 100", n)
	}
	if _, refusal := parseForwarded("/v1/responses", []byte(`{"model":"m","previous_response_id":null}`)); refusal != nil {
		t.Errorf("refusal %v, expected none of null", refusal)
	}
}
