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
	fault, number, ok := s.begin(w, &q, prompt)
	if !ok {
		return
	}
	if !s.enter(r.Context(), q.Model) {
		return
	}
	defer s.leave(q.Model)
	a := newAnswer(&q, chat, prompt, number)
	if at := fault.WrongAt; at > 0 && at <= len(a.choices[0]) {
		a.choices[0][at-1] = '#'
	}
	usage := map[string]int{"prompt_tokens": len(prompt), "completion_tokens": a.total(), "total_tokens": len(prompt) + a.total()}
	if !q.Stream {
		var choices []any
		for i := range a.choices {
			c := a.part(i, 0, len(a.choices[i]), false)
			c["finish_reason"] = a.finish()
			choices = append(choices, c)
		}
		reply(w, map[string]any{"choices": choices, "usage": usage})
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	if !s.write(w, r.Context(), a, fault) {
		panic(http.ErrAbortHandler)
	}
	event(w, map[string]any{"model": q.Model, "choices": []any{}, "usage": usage})
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// write streams an answer, its choices in turns. False: the stream breaks.
func (s *Server) write(w http.ResponseWriter, ctx context.Context, a *answerOf, fault Fault) bool {
	flush, model := http.NewResponseController(w), a.q.Model
	send := func(choice map[string]any) { event(w, map[string]any{"model": model, "choices": []any{choice}}) }
	if a.chat && (a.calls() || a.probable() || len(a.choices) > 1) {
		for n := range a.choices {
			send(role(n))
		}
	}
	step := max(fault.Pieces, 1)
	for i := 0; i < a.tokens(); i += step {
		if !s.token(ctx, model, fault, i) {
			return false
		}
		for n := range a.choices {
			if i < len(a.choices[n]) {
				send(a.part(n, i, i+step, true))
			}
		}
		if flush.Flush() != nil {
			return false
		}
	}
	for fault.Endless && flush.Flush() == nil && s.token(ctx, model, fault, a.tokens()) {
		event(w, map[string]any{"model": model, "choices": []any{choice(a.chat, "!")}})
	}
	for n := range a.choices {
		send(a.last(n))
	}
	return true
}

// begin counts a completion and refuses it where that is its fault.
func (s *Server) begin(w http.ResponseWriter, q *question, prompt string) (f Fault, n int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.adapters.resolve(q)
	switch {
	case !slices.Contains(s.opt.Models, q.Model):
		refuse(w, http.StatusBadRequest, fmt.Sprintf("model %q not found", q.Model))
		return Fault{}, 0, false
	case s.opt.Sleeps != nil && !s.opt.Sleeps.has(s):
		refuse(w, http.StatusBadRequest, "the server sleeps")
		return Fault{}, 0, false
	case s.opt.Manual && !slices.Contains(s.loaded, q.Model):
		refuse(w, http.StatusBadRequest, "model is not loaded")
		return Fault{}, 0, false
	}
	if q.MaxTokens == 1 {
		s.counts.Canary++
		return Fault{}, 0, true
	}
	n = s.counts.Completions
	s.counts.Completions++
	s.counts.Prompts = append(s.counts.Prompts, prompt)
	if s.opt.Fault != nil {
		f = s.opt.Fault(n, prompt)
	}
	if f.Full {
		refuse(w, http.StatusServiceUnavailable, "no slot available")
		return f, n, false
	}
	if f.Refuse {
		refuse(w, http.StatusBadRequest, "the request exceeds the available context size")
		return f, n, false
	}
	return f, n, true
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

// choice is a piece of text.
func choice(chat bool, text string) map[string]any {
	if chat {
		return map[string]any{"index": 0, "finish_reason": nil, "delta": map[string]string{"content": text}}
	}
	return map[string]any{"index": 0, "finish_reason": nil, "text": text}
}

func event(w http.ResponseWriter, body any) {
	data, _ := json.Marshal(body)
	fmt.Fprintf(w, "data: %s\n\n", data)
}
