package text

import (
	"cmp"
	"context"
	"slices"
	"time"

	"inferplan/executor/turn"
)

// runningRequests lists the requests that a server answers, in the order in which they began.
func (g *agent) streams() []*stream {
	out := make([]*stream, 0, len(g.live))
	for _, s := range g.live {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *stream) int { return cmp.Compare(a.serial, b.serial) })
	return out
}

// stallFactor is how many times longer than planned a piece may take, in addition to Options.SilenceTimeout, until
// its server counts as stalled.
const stallsAfter = 10

// pieceTimeout returns the longest time until the next piece of a request: the silence timeout, and a multiple of the
// planned prefill and of an iteration of a full batch.
func (g *agent) patience(j *turn.Job) time.Duration {
	cost := &g.c.Tables.Instances[g.c.Tables.InstanceOf(g.device)].Server.Costs[g.loaded]
	t := JobText(j)
	prompt, _ := t.Lengths()
	t.mu.Lock()
	prompt += int32(t.tokens)
	t.mu.Unlock()
	return g.opt.Silence + stallsAfter*(cost.Iteration.Prefill(prompt, 0)+cost.Iteration.PerToken(max(cost.Sequences, 1), float64(prompt)))
}

// stalledRequest returns a request that has waited too long for its next piece. If there is none, it returns nil.
// Requests whose server broke off do not count.
func (g *agent) stalled(now time.Duration) *stream {
	for _, s := range g.live {
		if s.doubt == nil && now-time.Duration(s.heard.Load()) > s.limit {
			return s
		}
	}
	return nil
}

// answer has the instance answer the request from the text that it has. The policy learns of the progress.
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

// reportProgress posts an event for the first token, and whenever the instance's progress interval has passed, in
// tokens.
func (s *stream) told(gen int32, before, tokens int) {
	every := int(s.c.Tables.Instances[s.c.Tables.InstanceOf(s.device)].Progress)
	if before == 0 && tokens > 0 {
		s.c.Post(turn.News{Kind: streamCame, Device: s.device, Gen: gen, Id: s.serial, Tokens: 1})
	}
	if every > 0 && tokens/every > before/every {
		s.c.Post(turn.News{Kind: streamCame, Device: s.device, Gen: gen, Id: s.serial, Tokens: int32(tokens / every * every)})
	}
}
