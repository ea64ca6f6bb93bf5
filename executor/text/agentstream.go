package text

import (
	"cmp"
	"context"
	"slices"
	"time"

	"inferplan/executor/turn"
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
func (g *agent) patience(j *turn.Job) time.Duration {
	cost := &g.c.Tables.Instances[g.c.Tables.InstanceOf(g.device)].Server.Costs[g.loaded]
	t := JobText(j)
	prompt, _ := t.Lengths()
	t.mu.Lock()
	prompt += int32(t.tokens)
	t.mu.Unlock()
	return g.opt.Silence + stallsAfter*(cost.Iteration.Prefill(prompt, 0)+cost.Iteration.PerToken(max(cost.Sequences, 1), float64(prompt)))
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

// serve has the instance answer, from where the request is.
func (s *stream) serve(ctx context.Context, gen int32) *streamEnd {
	t := s.text
	t.mu.Lock()
	if t.began == 0 {
		t.began = s.began
	}
	before := t.tokens
	t.mu.Unlock()
	if before > 0 {
		s.series.resumed.Inc()
	}
	return s.hand.write(ctx, &writing{text: t, number: s.run, now: s.c.Now, heard: func() { s.heard.Store(int64(s.c.Now())) }, told: func(tokens int) {
		s.told(gen, before, tokens)
		before = tokens
	}})
}

// told passes on how far an answer is, where the policy wants to know.
func (s *stream) told(gen int32, before, tokens int) {
	every := int(s.c.Tables.Instances[s.c.Tables.InstanceOf(s.device)].Progress)
	if before == 0 && tokens > 0 {
		s.c.Post(turn.News{Kind: streamCame, Device: s.device, Gen: gen, Id: s.serial, Tokens: 1})
	}
	if every > 0 && tokens/every > before/every {
		s.c.Post(turn.News{Kind: streamCame, Device: s.device, Gen: gen, Id: s.serial, Tokens: int32(tokens / every * every)})
	}
}
