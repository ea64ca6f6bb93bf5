package llm

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// completing is a server that answers requests in turn, the last answer for ever.
func completing(t *testing.T, check func(*http.Request, map[string]any), answers ...string) (*Client, *int) {
	t.Helper()
	n := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var q map[string]any
		if err := json.Unmarshal(body, &q); err != nil {
			t.Error(err)
		}
		if check != nil {
			check(r, q)
		}
		text := answers[min(n, len(answers)-1)]
		n++
		if status, rest, ok := strings.Cut(text, " "); ok && status == "429" {
			w.WriteHeader(http.StatusTooManyRequests)
			text = rest
		}
		io.WriteString(w, text)
	}))
	t.Cleanup(s.Close)
	c, err := New(s.URL+"/v1/", WithKey("secret"), WithHTTP(s.Client()))
	if err != nil {
		t.Fatal(err)
	}
	return c, &n
}

const (
	completionsForm = `{"id":"x","object":"text_completion","choices":[{"text":" A","index":0,"logprobs":{"tokens":[" A"],"token_logprobs":[-0.105],"top_logprobs":[{" A":-0.10536,"B":-2.99573}],"text_offset":[3]},"finish_reason":"length"}],"usage":{"prompt_tokens":3}}`
	chatForm        = `{"choices":[{"logprobs":{"content":[{"token":" A","logprob":-0.105,"bytes":null,"top_logprobs":[{"token":" A","logprob":-0.10536},{"token":"B","logprob":-2.99573}]}]}}]}`
)

// Both forms of logprobs are read; what is asked is what the API documents.
func TestFirstTokenReadsBothFormsOfLogprobs(t *testing.T) {
	for name, text := range map[string]string{"completions": completionsForm, "chat": chatForm} {
		c, _ := completing(t, func(r *http.Request, q map[string]any) {
			if r.Method != http.MethodPost || r.URL.Path != "/v1/completions" || r.Header.Get("Authorization") != "Bearer secret" {
				t.Errorf("%s: %s %s with %q", name, r.Method, r.URL.Path, r.Header.Get("Authorization"))
			}
			want := map[string]any{"model": "m", "prompt": "2+2=?", "max_tokens": 1., "temperature": 0., "logprobs": 5.}
			for k, v := range want {
				if q[k] != v {
					t.Errorf("%s: %s is %v, expected %v", name, k, q[k], v)
				}
			}
		}, text)
		got, err := c.FirstTokenProbabilities(context.Background(), "m", "2+2=?", 5, 0)
		if err != nil || len(got) != 2 || math.Abs(got[" A"]-.9) > 1e-4 || math.Abs(got["B"]-.05) > 1e-4 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestBadAnswers(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"no logprobs":   {`{"choices":[{"text":"A","logprobs":null}]}`, "no logprobs"},
		"empty":         {`{"choices":[{"logprobs":{"top_logprobs":[]}}]}`, "no logprobs"},
		"no choice":     {`{"error":"x"}`, `{"error":"x"}`},
		"no JSON":       {`<html>`, "invalid character"},
		"busy":          {"429 slow down", "slow down"},
		"positive":      {`{"choices":[{"logprobs":{"top_logprobs":[{"A":2}]}}]}`, "probability"},
		"large":         {strings.Repeat(" ", maxBody+2), "more than"},
		"wrong kind":    {`{"choices":[{"logprobs":{"top_logprobs":[{"A":"x"}]}}]}`, "cannot unmarshal"},
		"other content": {`{"choices":[{"logprobs":{"content":[{"top_logprobs":[]}]}}]}`, "no logprobs"},
	} {
		client, _ := completing(t, nil, c.text)
		if _, err := client.FirstTokenProbabilities(context.Background(), "m", "x", 5, 0); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "/v1") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, expected %q and the address", name, err, c.want)
		}
	}
	client, _ := completing(t, nil, `{"choices":[{"logprobs":null}]}`)
	if _, err := client.FirstTokenProbabilities(context.Background(), "m", "x", 5, 0); !errors.Is(err, ErrNoLogprobs) {
		t.Errorf("%v", err)
	}
}

// A busy server is asked again while there is patience, and no longer than the
// context lasts.
func TestBusyServerIsAskedAgainWhilePatient(t *testing.T) {
	client, n := completing(t, nil, "429 busy", "429 busy", completionsForm)
	if _, err := client.FirstTokenProbabilities(context.Background(), "m", "x", 5, time.Minute); err != nil || *n != 3 {
		t.Errorf("%d requests, %v", *n, err)
	}
	client, n = completing(t, nil, "429 busy")
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := client.FirstTokenProbabilities(ctx, "m", "x", 5, time.Hour); err == nil {
		t.Errorf("%d requests and no error", *n)
	}
	client, n = completing(t, nil, `{"choices":[]}`)
	if _, err := client.FirstTokenProbabilities(context.Background(), "m", "x", 5, time.Hour); err == nil || *n != 1 {
		t.Errorf("a wrong answer was asked for %d times, %v", *n, err)
	}
}

// An address is one of a server, and its path is asked as it is.
func TestClientTakesOnlyServerAddresses(t *testing.T) {
	for _, good := range []string{"http://localhost:8000/v1", "https://api.example.com"} {
		if _, err := New(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "localhost:8000", "ftp://x/y", "http://", "http://h/v1?x=1", "http://h/v1#f", "::"} {
		if _, err := New(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/beta/completions" {
			t.Errorf("%s was asked", r.URL.Path)
		}
		io.WriteString(w, completionsForm)
	}))
	defer s.Close()
	client, err := New(s.URL + "/beta/")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.FirstTokenProbabilities(context.Background(), "m", "x", 5, 0); err != nil {
		t.Error(err)
	}
}

// Whatever a server sends, reading it ends in probabilities or an error.
func FuzzFirstTokens(f *testing.F) {
	f.Add([]byte(completionsForm))
	f.Add([]byte(chatForm))
	f.Add([]byte(`{"choices":[{"logprobs":{"top_logprobs":[null]}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := firstTokens(data)
		if err != nil {
			return
		}
		for token, p := range got {
			if !(p >= 0 && p <= 1.001) {
				t.Fatalf("%q: %v", token, p)
			}
		}
	})
}
