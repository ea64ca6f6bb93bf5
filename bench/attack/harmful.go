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

func (h *harmful) start(f *fleet) string {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"data":[{"id":%q}]}`, textModel) })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) { endless(w, r, "vllm:num_requests_running -1e308\n") })
	mux.HandleFunc("POST /v1/completions", h.complete)
	s := httptest.NewServer(mux)
	f.ends = append(f.ends, s.Close, s.CloseClientConnections)
	return s.URL
}

// harms are the ways.
var harms = []func(w http.ResponseWriter, r *http.Request){
	func(w http.ResponseWriter, r *http.Request) { stream(w); endless(w, r, strings.Repeat("x", 1<<16)) }, // an event that does not end
	func(w http.ResponseWriter, r *http.Request) { stream(w); endless(w, r, piece(mark, "null")) },        // more than was asked for
	func(w http.ResponseWriter, r *http.Request) {
		stream(w)
		endless(w, r, piece(strings.Repeat(mark, 1<<16), "null"))
	},
	func(w http.ResponseWriter, r *http.Request) { stream(w); endless(w, r, ": a comment\n\n") },
	func(w http.ResponseWriter, r *http.Request) { stream(w); endless(w, r, "data: {}\n\n") },
	func(w http.ResponseWriter, _ *http.Request) { stream(w); fmt.Fprint(w, "data: {\"choices\":7}\n\n") },
	func(w http.ResponseWriter, _ *http.Request) {
		stream(w)
		fmt.Fprintf(w, "data: {\"choices\":[{\"text\":%q,\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":-9,\"completion_tokens\":9000000000000000000}}\n\ndata: [DONE]\n\n", mark)
	},
	func(w http.ResponseWriter, _ *http.Request) { stream(w); fmt.Fprint(w, "data: [DONE]\n\n") },
	func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.Copy(w, zeros(64<<20))
	},
	func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
	},
	func(w http.ResponseWriter, r *http.Request) { // a byte now and then
		stream(w)
		for range 100 {
			if fmt.Fprint(w, ":"); http.NewResponseController(w).Flush() != nil || !pause(r, 100*time.Millisecond) {
				return
			}
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
	if bytes.Contains(body, []byte(`"max_tokens":1,`)) || bytes.Contains(body, []byte(`"max_tokens":1}`)) { // it looks well
		stream(w)
		fmt.Fprint(w, piece(mark, `"length"`), "data: [DONE]\n\n")
		return
	}
	h.mu.Lock()
	h.calls++
	harm := harms[h.rng.IntN(len(harms))]
	h.mu.Unlock()
	harm(w, r)
}

func stream(w http.ResponseWriter) { w.Header().Set("Content-Type", "text/event-stream") }

func piece(text, finish string) string {
	return fmt.Sprintf("data: {\"choices\":[{\"text\":%q,\"finish_reason\":%s}]}\n\n", text, finish)
}

// endless writes until the connection is closed.
func endless(w http.ResponseWriter, r *http.Request, what string) {
	for r.Context().Err() == nil {
		if _, err := io.WriteString(w, what); err != nil {
			return
		}
	}
}

func pause(r *http.Request, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-r.Context().Done():
		return false
	}
}

func zeros(n int64) io.Reader { return io.LimitReader(zero{}, n) }

type zero struct{}

func (zero) Read(p []byte) (int, error) { clear(p); return len(p), nil }
