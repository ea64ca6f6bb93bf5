package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"
)

// mark is in all text that the harmful server writes.
const mark = "!"

// harmful is a server of language models that does harm. It says that it is well, and
// answers requests in one of the ways below.
type harmful struct {
	mu    sync.Mutex
	rng   *rand.Rand
	calls int
}

func (h *harmful) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls
}

// start starts the server, and returns its address and what ends it.
func (h *harmful) start() (url string, stop func()) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"data":[{"id":%q}]}`, textModel) })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) { endless(w, r, "vllm:num_requests_running -1e308\n") })
	mux.HandleFunc("POST /v1/completions", h.complete)
	s := httptest.NewServer(mux)
	return s.URL, func() {
		s.CloseClientConnections()
		s.Close()
	}
}

// pieces are what an answer repeats without end: an event that does not end, more text than was asked for, comments, and events of nothing.
var pieces = []string{strings.Repeat("x", 1<<16), event(mark, "null"), event(strings.Repeat(mark, 1<<16), "null"), ": a comment\n\n", "data: {}\n\n"}

// answers are ended, and none is as it should be.
var answers = []string{
	"data: {\"choices\":7}\n\n",
	"data: {\"choices\":[{\"text\":\"" + mark + "\",\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":-9,\"completion_tokens\":9000000000000000000}}\n\ndata: [DONE]\n\n",
	"data: [DONE]\n\n",
}

// harms are the other ways.
var harms = []func(w http.ResponseWriter, r *http.Request){
	func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write(make([]byte, 64<<20))
	},
	func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
	},
	func(w http.ResponseWriter, r *http.Request) { // a byte now and then
		for range 100 {
			_, _ = fmt.Fprint(w, ":")
			if http.NewResponseController(w).Flush() != nil || r.Context().Err() != nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	},
	func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		endless(w, r, "<html>")
	},
	func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
}

func (h *harmful) complete(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	w.Header().Set("Content-Type", "text/event-stream")
	if bytes.Contains(body, []byte(`"max_tokens":1,`)) || bytes.Contains(body, []byte(`"max_tokens":1}`)) { // it looks well
		fmt.Fprint(w, event(mark, `"length"`), "data: [DONE]\n\n")
		return
	}
	h.mu.Lock()
	h.calls++
	way := h.rng.IntN(len(pieces) + len(answers) + len(harms))
	h.mu.Unlock()
	switch {
	case way < len(pieces):
		endless(w, r, pieces[way])
	case way < len(pieces)+len(answers):
		fmt.Fprint(w, answers[way-len(pieces)])
	default:
		harms[way-len(pieces)-len(answers)](w, r)
	}
}

// event returns an event with a piece of text.
func event(text, finish string) string {
	return fmt.Sprintf("data: {\"choices\":[{\"text\":%q,\"finish_reason\":%s}]}\n\n", text, finish)
}

// endless writes until the connection is closed.
func endless(w http.ResponseWriter, r *http.Request, text string) {
	for r.Context().Err() == nil {
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
	}
}
