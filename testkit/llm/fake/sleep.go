package fake

import (
	"net/http"
	"sync"
)

// GPU is memory for one model. Servers with a sleep mode, as vLLM's, share it: one of them
// is awake, and one that is woken beside it is out of memory.
type GPU struct {
	mu      sync.Mutex
	awake   *Server
	refused int
}

// Refused is how often a server was woken while another one was awake.
func (g *GPU) Refused() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused
}

// take gives the memory to a server, unless another one has it.
func (g *GPU) take(s *Server) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.awake == nil {
		g.awake = s
	}
	return g.awake == s
}

// give takes the memory from a server. False: it did not have it.
func (g *GPU) give(s *Server) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.awake != s {
		return false
	}
	g.awake = nil
	return true
}

func (g *GPU) has(s *Server) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.awake == s
}

// serve adds what a server with a sleep mode answers.
func (g *GPU) serve(s *Server, mux *http.ServeMux) {
	mux.HandleFunc("GET /is_sleeping", func(w http.ResponseWriter, _ *http.Request) { reply(w, map[string]bool{"is_sleeping": !g.has(s)}) })
	mux.HandleFunc("POST /sleep", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if g.give(s) {
			s.counts.Unloads++
		}
	})
	mux.HandleFunc("POST /wake_up", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case g.has(s):
		case g.take(s):
			s.counts.Loads = append(s.counts.Loads, s.opt.Models[0])
		default:
			g.mu.Lock()
			g.refused++
			g.mu.Unlock()
			refuse(w, http.StatusInternalServerError, "CUDA out of memory")
		}
	})
}
