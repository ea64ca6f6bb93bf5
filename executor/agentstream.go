package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"inferplan/engine/llm"
	"inferplan/executor/completions"
)

// streams lists what a server answers, in the order in which it began.
func (g *agent) streams() []*stream {
	out := make([]*stream, 0, len(g.live))
	for _, s := range g.live {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *stream) int { return cmp.Compare(a.serial, b.serial) })
	return out
}

// Pieces may take so much longer than the plan expects, beside Options.Silence, until
// a server is taken to stand still.
const stallsAfter = 10

// patience is how long the pieces of a request may take: the computing of its prompt
// and of what it has, beside a full batch.
func (g *agent) patience(j *job) time.Duration {
	cost := &g.c.tables.Instances[g.c.tables.InstanceOf(g.device)].Server.Costs[g.loaded]
	prompt, _ := j.text.lengths()
	j.text.mu.Lock()
	prompt += int32(j.text.tokens)
	j.text.mu.Unlock()
	return g.c.opt.Silence + stallsAfter*(cost.Iteration.Prefill(prompt, 0)+cost.Iteration.PerToken(max(cost.Sequences, 1), float64(prompt)))
}

// stalled is a stream that has waited too long for its next piece; nil: there is none.
// Requests that were told to leave do not count.
func (g *agent) stalled(now time.Duration) *stream {
	for _, s := range g.live {
		if s.doubt == nil && now-time.Duration(s.heard.Load()) > s.limit {
			return s
		}
	}
	return nil
}

// errDiverged: an answer that was written again differs from what was sent before.
var errDiverged = errors.New("the server wrote another text than before")

// serve has the server answer, from where the request is.
func (s *stream) serve(ctx context.Context, gen int32) *streamEnd {
	t := s.text
	partial, tokens, ok := t.soFar(s.run)
	end := &streamEnd{tokens: tokens}
	if !ok {
		end.err = errLeft
		return end
	}
	t.mu.Lock()
	if t.began == 0 {
		t.began = s.began
	}
	t.mu.Unlock()
	if most := t.request.MaxTokens; most > 0 && tokens >= most { // all but its end was there
		end.result = completions.Result{Finish: "length", PromptTokens: t.prompt, OutputTokens: tokens}
		return end
	}
	answer, err := s.complete(ctx, gen, partial, tokens, end)
	if end.err = err; err != nil {
		if cause := context.Cause(ctx); cause != nil {
			end.err = cause
		}
		return end
	}
	r := completions.Result{Finish: answer.Finish, PromptTokens: answer.Usage.PromptTokens, OutputTokens: end.tokens}
	if answer.Told { // what was continued counted as prompt
		r.PromptTokens = max(0, answer.Usage.PromptTokens-tokens)
		r.OutputTokens = tokens + answer.Usage.OutputTokens
	}
	end.result = r
	return end
}

// complete asks for what follows the partial answer.
func (s *stream) complete(ctx context.Context, gen int32, partial string, tokens int, end *streamEnd) (*llm.Answer, error) {
	t := s.text
	server := s.serverOf(t.request.Model)
	if server == nil {
		return nil, &llm.Error{Kind: llm.ErrGone, Text: "it has not answered yet"}
	}
	ask := llm.Request{Model: t.request.Model, Chat: t.request.Chat, Body: t.request.Body}
	if most := t.request.MaxTokens; most > 0 {
		ask.MaxTokens = most - tokens
	}
	r, err := server.Resumed(ctx, ask, partial)
	again := ""
	if errors.Is(err, llm.ErrNotResumed) {
		// It is written anew, and what was sent before has to come again.
		again = partial
		ask.MaxTokens = t.request.MaxTokens
		r, err = &ask, nil
	}
	if err != nil {
		return nil, err
	}
	if partial != "" {
		s.series.resumed.Inc()
	}
	counted := 0
	return server.Complete(ctx, r, func(p llm.Token) error {
		now := s.c.now()
		s.heard.Store(int64(now))
		piece, fresh := p.Text, p.Count-counted
		counted = p.Count
		if again != "" {
			n := min(len(again), len(piece))
			if !strings.HasPrefix(again, piece[:n]) {
				return fmt.Errorf("%w: %w", llm.ErrNotResumed, errDiverged)
			}
			if again, piece = again[n:], piece[n:]; piece == "" {
				return nil
			}
		}
		all, ok := t.add(s.run, piece, fresh, now)
		if !ok {
			return errLeft
		}
		s.told(gen, end, all)
		return nil
	})
}

// told passes on how far an answer is, where the policy wants to know.
func (s *stream) told(gen int32, end *streamEnd, tokens int) {
	before := end.tokens
	end.tokens, end.added = tokens, true
	every := int(s.c.tables.Instances[s.c.tables.InstanceOf(s.device)].Progress)
	if before == 0 && tokens > 0 {
		s.c.in.post(news{what: streamCame, device: s.device, gen: gen, id: s.serial, tokens: 1})
	}
	if every > 0 && tokens/every > before/every {
		s.c.in.post(news{what: streamCame, device: s.device, gen: gen, id: s.serial, tokens: int32(tokens / every * every)})
	}
}
