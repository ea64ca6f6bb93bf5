package llmserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"inferplan/engine/llm"
	simulated "inferplan/sim/llm"
)

// fakeServer is a server of one model m whose iterations take what the simulator's
// instances take. It speaks as vLLM does. In a bubble of testing/synctest its times
// are exact.
type fakeServer struct {
	options  simulated.Options
	model    simulated.Model
	quiet    bool // tells neither capacity nor sequences
	sleeping bool
	refuse   func(prompt int) int // status of a prompt's answer; nil: all are answered

	mu      sync.Mutex
	changed *sync.Cond
	in      *simulated.Instance
	streams map[int32]chan struct{} // a token each
	next    int32
	closed  bool
}

const (
	fakeContext = 4096
	sleepTakes  = 300 * time.Millisecond
	wakeTakes   = 120 * time.Millisecond
)

// serve starts the server and gives what asks it. Inside a bubble nothing but
// memory connects them.
func (s *fakeServer) serve(t *testing.T) *llm.Server {
	t.Helper()
	s.options.Progress = 1
	s.in, s.streams, s.changed = simulated.New(s.options, s.model), map[int32]chan struct{}{}, sync.NewCond(&s.mu)
	l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	srv := &http.Server{Handler: s.handler()}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(l) })
	wg.Go(s.iterate)
	transport := &http.Transport{DialContext: l.dial, MaxIdleConnsPerHost: 1024}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		srv.Close()
		s.mu.Lock()
		s.closed = true
		s.changed.Broadcast()
		s.mu.Unlock()
		wg.Wait()
	})
	server, err := llm.Probe(context.Background(), "http://server", llm.WithHTTP(&http.Client{Transport: transport}))
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// iterate runs one iteration after the other.
func (s *fakeServer) iterate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		took, _, ok := s.in.Begin()
		for !ok {
			if s.closed {
				return
			}
			s.changed.Wait()
			took, _, ok = s.in.Begin()
		}
		s.mu.Unlock()
		time.Sleep(took)
		s.mu.Lock()
		e := s.in.End()
		for _, list := range [][]int32{e.First, e.Progress, e.Finished} {
			for _, id := range list {
				if c := s.streams[id]; c != nil {
					c <- struct{}{} // has room for all
				}
			}
		}
	}
}

func (s *fakeServer) handler() http.Handler {
	mux := http.NewServeMux()
	say := func(path, format string, args ...any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, format, args...) })
	}
	say("GET /health", "")
	if s.quiet {
		say("GET /v1/models", `{"data":[{"id":"m"}]}`)
	} else {
		say("GET /v1/models", `{"data":[{"id":"m","max_model_len":%d}]}`, fakeContext)
		say("GET /metrics", "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"%d\"} 1\n", s.model.KV/16)
		say("GET /version", `{"version":"1"}`)
		say("GET /server_info", `{"vllm_config":{"scheduler_config":{"max_num_seqs":%d}}}`, s.model.Sequences)
		mux.HandleFunc("GET /is_sleeping", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"is_sleeping":%v}`, s.sleeping) })
		mux.HandleFunc("POST /sleep", func(http.ResponseWriter, *http.Request) { time.Sleep(sleepTakes); s.sleeping = true })
		mux.HandleFunc("POST /wake_up", func(http.ResponseWriter, *http.Request) { time.Sleep(wakeTakes); s.sleeping = false })
	}
	mux.HandleFunc("POST /v1/completions", s.complete)
	return mux
}

func (s *fakeServer) complete(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Prompt string `json:"prompt"`
		Most   int32  `json:"max_tokens"`
	}
	_ = json.NewDecoder(r.Body).Decode(&q)
	prompt := int32(len(q.Prompt)/5 + 2)
	if s.refuse != nil {
		if status := s.refuse(int(prompt)); status > 0 {
			w.WriteHeader(status)
			fmt.Fprint(w, `{"error":{"message":"no"}}`)
			return
		}
	}
	s.mu.Lock()
	id := s.next
	s.next++
	tokens := make(chan struct{}, q.Most+1)
	s.streams[id] = tokens
	err := s.in.Add(simulated.Sequence{ID: id, Prompt: prompt, Output: q.Most})
	s.changed.Broadcast()
	s.mu.Unlock()
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, err)
		return
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.in.Remove(id, false)
		delete(s.streams, id)
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	for n := int32(1); n <= q.Most; n++ {
		select {
		case <-tokens:
		case <-r.Context().Done():
			return
		}
		finish := "null"
		if n == q.Most {
			finish = `"length"`
		}
		fmt.Fprintf(w, "data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":%s}],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d}}\n\n", finish, prompt, n)
		w.(http.Flusher).Flush()
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// pipes is a network in memory.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "server" }

// lines counts the lines of a text that hold a word.
func lines(text, word string) int {
	n := 0
	for l := range strings.Lines(text) {
		if strings.Contains(l, word) {
			n++
		}
	}
	return n
}
