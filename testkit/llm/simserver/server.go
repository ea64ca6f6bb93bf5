package simserver

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"inferplan/sim/llm"
)

// Server is a server of one model, m. What stands below is set before Serve.
type Server struct {
	Options llm.Options
	Model   llm.Model
	Quiet   bool                 // it reports neither capacity nor sequences, and does not sleep
	Refuse  func(prompt int) int // status of the answer to a prompt; 0 if it is answered. If Refuse is nil, all are answered.

	mu       sync.Mutex
	changed  *sync.Cond
	in       *llm.Instance
	streams  map[int32]chan struct{} // a token each
	next     int32
	sleeping bool
	closed   bool
}

// What the server says of itself, and how long it takes to sleep and to wake.
const (
	Context = 4096
	Sleep   = 60 * time.Millisecond
	Wake    = 25 * time.Millisecond
)

// Serve answers what comes over a listener until close is called.
func (s *Server) Serve(l net.Listener) (end func()) {
	s.Options.ProgressTokens = 1
	s.in, s.streams, s.changed = llm.NewInstance(s.Options, s.Model), map[int32]chan struct{}{}, sync.NewCond(&s.mu)
	srv := &http.Server{Handler: s.handler()}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(l) })
	wg.Go(s.iterate)
	return func() {
		srv.Close()
		s.mu.Lock()
		s.closed = true
		s.changed.Broadcast()
		s.mu.Unlock()
		wg.Wait()
	}
}

// Requests is how many completions were asked for.
func (s *Server) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(s.next)
}

// iterate runs one iteration after the other.
func (s *Server) iterate() {
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

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	say := func(path, format string, args ...any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, format, args...) })
	}
	say("GET /health", "")
	if s.Quiet {
		say("GET /v1/models", `{"data":[{"id":"m"}]}`)
	} else {
		say("GET /v1/models", `{"data":[{"id":"m","max_model_len":%d}]}`, Context)
		say("GET /metrics", "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"%d\"} 1\n", s.Model.KVTokens/16)
		say("GET /version", `{"version":"1"}`)
		say("GET /server_info", `{"vllm_config":{"scheduler_config":{"max_num_seqs":%d}}}`, s.Model.MaxSequences)
		mux.HandleFunc("GET /is_sleeping", func(w http.ResponseWriter, _ *http.Request) {
			s.mu.Lock()
			defer s.mu.Unlock()
			fmt.Fprintf(w, `{"is_sleeping":%v}`, s.sleeping)
		})
		turn := func(path string, asleep bool, takes time.Duration) {
			mux.HandleFunc("POST "+path, func(http.ResponseWriter, *http.Request) {
				time.Sleep(takes)
				s.mu.Lock()
				defer s.mu.Unlock()
				s.sleeping = asleep
			})
		}
		turn("/sleep", true, Sleep)
		turn("/wake_up", false, Wake)
	}
	mux.HandleFunc("POST /v1/completions", s.complete)
	return mux
}

func (s *Server) complete(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Prompt string `json:"prompt"`
		Most   int32  `json:"max_tokens"`
	}
	_ = json.NewDecoder(r.Body).Decode(&q)
	prompt := int32(len(q.Prompt)/5 + 2)
	if s.Refuse != nil {
		if status := s.Refuse(int(prompt)); status > 0 {
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
	err := s.in.Add(llm.Sequence{ID: id, Prompt: prompt, Output: q.Most})
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
