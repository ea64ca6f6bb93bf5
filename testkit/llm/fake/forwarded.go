package fake

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// embed answers with the length of the input as its vector. An empty input is refused.
func (s *Server) embed(w http.ResponseWriter, r *http.Request) {
	var q struct{ Model, Input string }
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || q.Input == "" {
		refuse(w, http.StatusBadRequest, "input is empty")
		return
	}
	s.count("embeddings " + q.Model)
	reply(w, map[string]any{"object": "list", "model": q.Model, "data": []any{map[string]any{"object": "embedding", "index": 0, "embedding": []int{len(q.Input)}}}})
}

// respond streams the tokens of the text after an input until as many as were asked for are sent, or the client leaves.
// With an input of "dies" the connection breaks after the first.
func (s *Server) respond(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Model, Input string
		Tokens       int `json:"max_output_tokens"`
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	s.count("responses " + q.Model)
	w.Header().Set("Content-Type", "text/event-stream")
	for _, token := range Text(q.Model, q.Input, q.Tokens) {
		fmt.Fprintf(w, "event: response.output_text.delta\ndata: {\"delta\":%q}\n\n", string(token))
		w.(http.Flusher).Flush()
		if q.Input == "dies" {
			panic(http.ErrAbortHandler)
		}
		select {
		case <-r.Context().Done():
			s.count("left")
			return
		case <-time.After(s.opt.Token):
		}
	}
}

// count adds a line to Counts.Forwarded.
func (s *Server) count(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Forwarded = append(s.counts.Forwarded, line)
}
