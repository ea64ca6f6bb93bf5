package fake

import (
	"cmp"
	"errors"
	"hash/fnv"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Options are how the server behaves. The zero value has one model, m, and answers
// at once.
type Options struct {
	At     string        // where it listens, as 127.0.0.1:8000; if empty, at a free port
	Models []string      // the names of its models; m if nil
	Most   int           // models that are loaded at once; 0 stands for 1
	Slots  int           // requests that run at once for a model; 0 stands for 4
	Token  time.Duration // between two tokens of an answer
	Load   time.Duration // that a load takes
	// Fault is asked for each completion, by its number from 0. If it is nil, none fails.
	Fault func(n int, prompt string) Fault
	// Manual: a request for a model that is not loaded is refused instead of loading it.
	Manual bool
	// Plain: the server has no router, and all of its models are loaded.
	Plain bool
	// Files are adapters that the server was started with, as llama-server's --lora: the
	// first model has them, each with the weight 1 unless a request says another. A name
	// is the file's without its ending.
	Files []string
	// Loads: adapters of the first model are loaded and unloaded, as at vLLM.
	Loads bool
	// Static: those that would be loaded cannot be.
	Static bool
	// Embeds: it has /v1/embeddings. Responds: it has /v1/responses, streamed.
	Embeds, Responds bool
	// Sleeps is the memory that the server sleeps without; it has one model, and is Plain.
	// One that starts while another has the memory sleeps. If it is nil, the server never sleeps.
	Sleeps *GPU
}

// Fault says what goes wrong with a completion.
type Fault struct {
	Full    bool // 503 before anything else
	Refuse  bool // 400
	DieAt   int  // the connection breaks after so many tokens; -1: before the first
	HangAt  int  // nothing more comes after so many
	WrongAt int  // the token of this number, from 1, is another
	Endless bool // tokens come without end, whatever was asked for
	Pieces  int  // tokens of an event; 0 stands for 1
}

// Server is a fake server. Start it, and stop it.
type Server struct {
	opt Options

	mu       sync.Mutex
	listener net.Listener
	server   *http.Server
	frozen   chan struct{} // closed: it works
	loaded   []string      // the least recently used first
	running  map[string]int
	waiting  int
	changed  *sync.Cond
	counts   Counts
	adapters adapters
	address  string
}

// Counts are the counters of a server.
type Counts struct {
	Completions int      // that began
	Loads       []string // models, in order; to wake is one
	Adapters    []string // that were loaded, in order; those unloaded with a minus before
	Unloads     int
	Prompts     []string // of completions, in order
	Canary      int      // completions of one token
	Forwarded   []string // requests for embeddings and responses, in order; "left" where a client left
}

// Start makes a server that listens.
func Start(opt Options) (*Server, error) {
	if opt.Models == nil {
		opt.Models = []string{"m"}
	}
	opt.Most, opt.Slots = max(opt.Most, 1), cmp.Or(opt.Slots, 4)
	s := &Server{opt: opt, address: cmp.Or(opt.At, "127.0.0.1:0")}
	s.changed = sync.NewCond(&s.mu)
	return s, s.Again()
}

// Again starts a server that was stopped, at the same address. Nothing is loaded.
func (s *Server) Again() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		return errors.New("the server runs")
	}
	l, err := net.Listen("tcp", s.address)
	if err != nil {
		return err
	}
	s.address, s.listener = l.Addr().String(), l
	s.loaded, s.running, s.waiting = nil, map[string]int{}, 0
	s.adapters = adapters{s: s}
	if s.opt.Plain {
		s.loaded = slices.Clone(s.opt.Models)
	}
	if s.opt.Sleeps != nil {
		s.opt.Sleeps.take(s)
	}
	s.frozen = make(chan struct{})
	close(s.frozen)
	s.server = &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second}
	go s.server.Serve(l)
	return nil
}

// Stop kills the server: its connections break.
func (s *Server) Stop() {
	s.mu.Lock()
	server := s.server
	s.listener, s.server = nil, nil
	if s.opt.Sleeps != nil {
		s.opt.Sleeps.give(s)
	}
	s.thaw()
	s.changed.Broadcast()
	s.mu.Unlock()
	if server != nil {
		server.Close()
	}
}

// Freeze has the server stand still, as SIGSTOP does: connections stay, nothing is
// answered. Thaw lets it go on.
func (s *Server) Freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.thaw()
	s.frozen = make(chan struct{})
}

// Thaw ends a Freeze.
func (s *Server) Thaw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.thaw()
}

func (s *Server) thaw() {
	select {
	case <-s.frozen:
	default:
		close(s.frozen)
	}
}

// Kill ends the process of a loaded model, as the death of a router's child does: its
// streams break and it has to be loaded again.
func (s *Server) Kill(model string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded = slices.DeleteFunc(s.loaded, func(m string) bool { return m == model })
	s.changed.Broadcast()
}

// URL is where the server is.
func (s *Server) URL() string { return "http://" + s.address }

// Counts returns its counters.
func (s *Server) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts
	c.Loads, c.Adapters, c.Prompts = slices.Clone(c.Loads), slices.Clone(c.Adapters), slices.Clone(c.Prompts)
	c.Forwarded = slices.Clone(c.Forwarded)
	return c
}

// still returns once the server does not stand still.
func (s *Server) still() {
	s.mu.Lock()
	frozen := s.frozen
	s.mu.Unlock()
	<-frozen
}

// letters are the tokens.
const letters = "etaoinshrdlu cmfwypvbgkjqxz"

// Text returns the text that a model writes after a prompt, of so many tokens.
func Text(model, prompt string, tokens int) string {
	h := fnv.New64a()
	h.Write([]byte(model))
	h.Write([]byte{0})
	h.Write([]byte(prompt))
	out := make([]byte, 0, max(tokens, 0))
	for range tokens {
		sum := h.Sum64()
		sum ^= sum >> 29
		c := letters[sum%uint64(len(letters))]
		out = append(out, c)
		h.Write([]byte{c})
	}
	return string(out)
}
