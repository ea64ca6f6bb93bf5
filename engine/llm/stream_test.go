package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// answering is a server that answers every request with a function.
func answering(t *testing.T, answer http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(answer)
	t.Cleanup(srv.Close)
	c, err := New(srv.URL+"/v1/", WithKey("k"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func streaming(events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for _, e := range events {
			fmt.Fprintf(w, "data: %s\n\n", e)
			w.(http.Flusher).Flush()
		}
	}
}

// Pieces come with the server's counts where it counts, else one by one, and the
// usage at the end counts for the whole.
func TestCompleteCountsTokensOfPieces(t *testing.T) {
	for name, c := range map[string]struct {
		chat   bool
		events []string
		pieces string
		want   Answer
	}{
		"llama-server": {events: []string{
			`{"choices":[{"text":"a","finish_reason":null}]}`, `{"choices":[{"text":"b","finish_reason":null}]}`, `{"choices":[{"text":"","finish_reason":"length"}]}`,
			`{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":3}},"timings":{"prompt_n":4,"cache_n":3,"predicted_n":2}}`, `[DONE]`},
			pieces: "a1 b2", want: Answer{Text: "ab", Finish: "length", HasUsage: true, Usage: Usage{7, 2, 3}}},
		"vLLM, two tokens in a piece": {events: []string{
			`{"choices":[{"text":"ab"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}`, `{"choices":[{"text":"c","finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":3}}`, `[DONE]`},
			pieces: "ab2 c3", want: Answer{Text: "abc", Finish: "stop", HasUsage: true, Usage: Usage{7, 3, 0}}},
		"Ollama, usage of zeros": {events: []string{
			`{"choices":[{"text":"a"}],"usage":{"prompt_tokens":0,"completion_tokens":0}}`, `{"choices":[{"text":"b","finish_reason":"stop"}],"usage":{"prompt_tokens":0,"completion_tokens":0}}`, `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}`, `[DONE]`},
			pieces: "a1 b2", want: Answer{Text: "ab", Finish: "stop", HasUsage: true, Usage: Usage{5, 2, 0}}},
		"chat, without usage": {chat: true, events: []string{
			`{"choices":[{"delta":{"role":"assistant","content":null}}]}`, `{"choices":[{"delta":{"reasoning_content":"r"}}]}`, `{"choices":[{"delta":{"content":"c"}}]}`, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`},
			pieces: "r1 c2", want: Answer{Text: "rc", Finish: "stop", Usage: Usage{0, 2, 0}}},
	} {
		client := answering(t, func(w http.ResponseWriter, r *http.Request) {
			path := "/v1/completions"
			if c.chat {
				path = "/v1/chat/completions"
			}
			if r.URL.Path != path || r.Header.Get("Authorization") != "Bearer k" {
				t.Errorf("%s: %s, %q", name, r.URL.Path, r.Header.Get("Authorization"))
			}
			streaming(c.events...)(w, r)
		})
		var pieces []string
		a, err := client.Complete(context.Background(), &Request{Model: "m", Chat: c.chat, Prompt: "p"}, func(tok Token) error {
			if tok.Elapsed <= 0 {
				t.Errorf("%s: a piece at %v", name, tok.Elapsed)
			}
			pieces = append(pieces, fmt.Sprint(tok.Text, tok.Count))
			return nil
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if a.FirstTokenTime <= 0 || a.LastTokenTime < a.FirstTokenTime {
			t.Errorf("%s: first %v, last %v", name, a.FirstTokenTime, a.LastTokenTime)
		}
		a.FirstTokenTime, a.LastTokenTime = 0, 0
		if *a != c.want || strings.Join(pieces, " ") != c.pieces {
			t.Errorf("%s: %+v %q, want %+v %q", name, *a, pieces, c.want, c.pieces)
		}
	}
}

// The client's own fields are passed on under ours.
func TestBodyFieldsGoUnderOurs(t *testing.T) {
	var got map[string]any
	client := answering(t, func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(data, &got); err != nil {
			t.Error(err)
		}
		streaming(`{"choices":[{"finish_reason":"stop"}]}`, `[DONE]`)(w, r)
	})
	r := &Request{Model: "m", Prompt: "p", MaxTokens: 5, Body: json.RawMessage(`{"model":"x","stop":["\n"],"max_completion_tokens":9,"stream":false}`), Fields: map[string]any{"ignore_eos": true}}
	if _, err := client.Complete(context.Background(), r, nil); err != nil {
		t.Fatal(err)
	}
	delete(got, "stream_options")
	text, _ := json.Marshal(got)
	if want := `{"ignore_eos":true,"max_tokens":5,"model":"m","prompt":"p","stop":["\n"],"stream":true}`; string(text) != want {
		t.Errorf("%s, want %s", text, want)
	}
	if _, err := client.Complete(context.Background(), &Request{Body: json.RawMessage(`[]`)}, nil); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
}

// Every way of failing is told apart, and what came before it is kept.
func TestFailuresAreToldApart(t *testing.T) {
	status := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	piece := `{"choices":[{"text":"a"}]}`
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		kind   error
		says   string
		text   string
	}{
		"full":              {status(429, `{"error":{"message":"too many"}}`), ErrFull, "429 Too Many Requests: too many", ""},
		"loading":           {status(503, `{"error":{"message":"Loading model"}}`), ErrFull, "Loading model", ""},
		"unknown, vLLM":     {status(404, `{"error":{"message":"The model 'x' does not exist."}}`), ErrUnknownModel, "does not exist", ""},
		"unknown, a router": {status(400, `{"error":{"message":"model 'x' not found"}}`), ErrUnknownModel, "not found", ""},
		"no such path":      {status(404, `404 page not found`), ErrNoSuchPath, "page not found", ""},
		"refused":           {status(400, `{"detail":"max_tokens is too large"}`), ErrRefused, "too large", ""},
		"key":               {status(401, `{"error":"Unauthorized"}`), ErrUnauthorized, "Unauthorized", ""},
		"broken":            {status(500, `oops`), ErrBroken, "oops", ""},
		"no stream": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{}`)
		}, ErrNoStream, "application/json", ""},
		"error in the stream": {streaming(piece, `{"error":{"code":503,"message":"shutting down"}}`), ErrFull, "shutting down", "a"},
		"no JSON":             {streaming(piece, `{`), ErrBroken, "no JSON", "a"},
		"broken off":          {streaming(piece), ErrGone, "unexpected EOF", "a"},
		"torn": {func(w http.ResponseWriter, r *http.Request) {
			streaming(piece)(w, r)
			panic(http.ErrAbortHandler)
		}, ErrGone, "EOF", "a"},
	} {
		a, err := answering(t, c.answer).Complete(context.Background(), &Request{Model: "x"}, nil)
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) || a.Text != c.text || a.Finish != "" {
			t.Errorf("%s: %v, answer %+v; want %v with %q and %q", name, err, a, c.kind, c.says, c.text)
		}
		var e *Error
		if name == "full" && (!errors.As(err, &e) || e.RetryAfter != 3*time.Second) {
			t.Errorf("%s: %+v", name, e)
		}
	}
	srv := httptest.NewServer(nil)
	srv.Close()
	gone, err := New(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gone.Complete(context.Background(), &Request{}, nil); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	for _, address := range []string{"", "host:80", "ftp://h", "http://h/?q=1"} {
		if _, err := New(address); err == nil {
			t.Errorf("%q: no error", address)
		}
	}
}

// What a server that means harm says of its counts and of where to go changes nothing.
func TestHarmfulServers(t *testing.T) {
	ask := func(answer http.HandlerFunc) (*Answer, error) {
		return answering(t, answer).Complete(t.Context(), &Request{Model: "m", Prompt: "x"}, nil)
	}
	for _, counts := range []string{`"usage":{"prompt_tokens":-1,"completion_tokens":9000000000000000000}`, `"timings":{"prompt_n":9000000000000000000,"cache_n":9000000000000000000,"predicted_n":9000000000000000000}`} {
		a, err := ask(streaming(`{"choices":[{"text":"a","finish_reason":"stop"}],`+counts+`}`, `[DONE]`))
		if err != nil || a.Usage.OutputTokens > maxTokenCount || a.Usage.PromptTokens < 0 || a.Usage.PromptTokens > 2*maxTokenCount {
			t.Errorf("%s: %+v, %v", counts, a, err)
		}
	}
	if a, err := ask(streaming(`[DONE]`)); !errors.Is(err, ErrBroken) {
		t.Errorf("an answer of nothing: %+v, %v", a, err)
	}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a prompt went to another server") }))
	defer elsewhere.Close()
	if a, err := ask(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	}); err == nil {
		t.Errorf("a server that sends elsewhere: %+v", a)
	}
}

// A request that is ended closes the connection at once, and keeps what came.
func TestCancelClosesConnectionAndKeepsText(t *testing.T) {
	left := make(chan struct{}, 2)
	client := answering(t, func(w http.ResponseWriter, r *http.Request) {
		streaming(`{"choices":[{"text":"a"}]}`)(w, r)
		<-r.Context().Done()
		left <- struct{}{}
	})
	ctx, cancel := context.WithCancel(context.Background())
	a, err := client.Complete(ctx, &Request{}, func(Token) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) || a.Text != "a" {
		t.Errorf("%v, %+v", err, a)
	}
	<-left
	enough := errors.New("enough")
	if a, err = client.Complete(context.Background(), &Request{}, func(Token) error { return enough }); !errors.Is(err, enough) || a.Text != "a" {
		t.Errorf("%v, %+v", err, a)
	}
	<-left
}

func TestEventsJoinDataLines(t *testing.T) {
	long := strings.Repeat("x", 40_000)
	in := newEvents(strings.NewReader(": hello\n\nevent: x\r\ndata: one\r\n\r\ndata:two\ndata: three\n\n\ndata: " + long + "\n\ndata: cut"))
	var got []string
	for {
		data, err := in.nextEvent()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			break
		}
		got = append(got, string(data))
	}
	if len(got) != 3 || got[0] != "one" || got[1] != "two\nthree" || got[2] != long {
		t.Errorf("%.60q", got)
	}
	if _, err := newEvents(strings.NewReader("data: " + strings.Repeat("x", maxEvent+1) + "\n\n")).nextEvent(); !errors.Is(err, errEventSize) {
		t.Error(err)
	}
}

func FuzzStream(f *testing.F) {
	f.Add("data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n")
	f.Add(": ping\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\r\n\r\ndata: {\"error\":{\"code\":503}}\n\n")
	f.Add("data: {\"timings\":{\"predicted_n\":-1}}\n\ndata: {\"usage\":{\"completion_tokens\":-5,\"prompt_tokens\":1}}\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		last := 0
		s := &stream{sentAt: time.Now(), onToken: func(tok Token) error {
			if tok.Count < last || tok.Text == "" {
				t.Fatalf("%+v after %d", tok, last)
			}
			last = tok.Count
			return nil
		}}
		err := s.readEvents(newEvents(strings.NewReader(text)))
		if a := s.finished(); err == nil && a.Finish == "" || a.Usage.OutputTokens < 0 {
			t.Fatalf("%+v", a)
		}
	})
}
