package fake

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// complete answers a request for a completion, streamed or whole.
func (s *Server) complete(w http.ResponseWriter, r *http.Request, chat bool) {
	var q question
	if !q.read(w, r) {
		return
	}
	prompt := q.Prompt
	if chat {
		prompt = q.chat()
	}
	if q.MaxTokens <= 0 {
		q.MaxTokens = 16
	}
	fault, ok := s.begin(w, &q, prompt)
	if !ok {
		return
	}
	if !s.enter(r.Context(), q.Model) {
		return
	}
	defer s.leave(q.Model)
	text := []byte(Text(q.Model, prompt, q.MaxTokens))
	if at := fault.WrongAt; at > 0 && at <= len(text) {
		text[at-1] = '#'
	}
	usage := map[string]int{"prompt_tokens": len(prompt), "completion_tokens": len(text), "total_tokens": len(prompt) + len(text)}
	if !q.Stream {
		reply(w, map[string]any{"choices": []any{choice(chat, string(text), "length", false)}, "usage": usage})
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	for i := range text {
		if !s.token(r.Context(), q.Model, fault, i) {
			panic(http.ErrAbortHandler)
		}
		event(w, map[string]any{"model": q.Model, "choices": []any{choice(chat, string(text[i:i+1]), nil, true)}})
		if flush.Flush() != nil {
			return
		}
	}
	for fault.Endless && flush.Flush() == nil && s.token(r.Context(), q.Model, fault, q.MaxTokens) {
		event(w, map[string]any{"model": q.Model, "choices": []any{choice(chat, "!", nil, true)}})
	}
	event(w, map[string]any{"model": q.Model, "choices": []any{choice(chat, "", "length", true)}})
	event(w, map[string]any{"model": q.Model, "choices": []any{}, "usage": usage})
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// begin counts a completion and refuses it where that is its fault.
func (s *Server) begin(w http.ResponseWriter, q *question, prompt string) (Fault, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !slices.Contains(s.opt.Models, q.Model):
		refuse(w, http.StatusBadRequest, fmt.Sprintf("model %q not found", q.Model))
		return Fault{}, false
	case s.opt.Manual && !slices.Contains(s.loaded, q.Model):
		refuse(w, http.StatusBadRequest, "model is not loaded")
		return Fault{}, false
	}
	if q.MaxTokens == 1 {
		s.counts.Canary++
		return Fault{}, true
	}
	n := s.counts.Completions
	s.counts.Completions++
	s.counts.Prompts = append(s.counts.Prompts, prompt)
	var f Fault
	if s.opt.Fault != nil {
		f = s.opt.Fault(n, prompt)
	}
	if f.Full {
		refuse(w, http.StatusServiceUnavailable, "no slot available")
		return f, false
	}
	if f.Refuse {
		refuse(w, http.StatusBadRequest, "the request exceeds the available context size")
		return f, false
	}
	return f, true
}

// token waits for the i-th token. False: the stream breaks here.
func (s *Server) token(ctx context.Context, model string, f Fault, i int) bool {
	if f.DieAt != 0 && i == max(f.DieAt, 0) {
		return false
	}
	if f.HangAt > 0 && i == f.HangAt {
		<-ctx.Done()
		return false
	}
	if s.opt.Token > 0 {
		select {
		case <-time.After(s.opt.Token):
		case <-ctx.Done():
			return false
		}
	}
	s.still()
	return ctx.Err() == nil && s.runs(model)
}

// choice is a part of an answer, or all of it.
func choice(chat bool, text string, finish any, delta bool) map[string]any {
	out := map[string]any{"index": 0, "finish_reason": finish}
	switch {
	case !chat:
		out["text"] = text
	case delta:
		out["delta"] = map[string]string{"content": text}
	default:
		out["message"] = map[string]string{"role": "assistant", "content": text}
	}
	return out
}

func event(w http.ResponseWriter, body any) {
	data, _ := json.Marshal(body)
	fmt.Fprintf(w, "data: %s\n\n", data)
}
