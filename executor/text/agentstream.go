package text

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"inferplan/executor/turn"
)

// inOrder returns what a server answers, by the serials of batches, in the order in which it began.
func inOrder[T any](running map[uint64]T) []T {
	out := make([]T, 0, len(running))
	for _, serial := range slices.Sorted(maps.Keys(running)) {
		out = append(out, running[serial])
	}
	return out
}

// stallFactor is how many times longer than planned a piece may take, in addition to Options.SilenceTimeout, until
// its server counts as stalled.
const stallFactor = 10

// pieceTimeout returns after what time without a piece of its answer a request counts as stalled: the silence timeout,
// plus a multiple of the planned times to read its prompt and the text so far (prefill) and to run one iteration of a
// full batch.
func (g *instanceAgent) pieceTimeout(j *turn.Job) time.Duration {
	cost := &g.instance().Server.Costs[g.loadedNetwork]
	t := JobText(j)
	prompt, _ := t.TokenLengths()
	t.mu.Lock()
	prompt += int32(t.tokens)
	t.mu.Unlock()
	return g.options.SilenceTimeout + stallFactor*(cost.Iteration.PrefillTime(prompt, 0)+cost.Iteration.TokenTime(max(cost.MaxSequences, 1), float64(prompt)))
}

// stalledRequest returns a request that has waited too long for its next piece. If there is none, it returns nil.
// Requests whose server broke off do not count.
func (g *instanceAgent) stalledRequest(now time.Duration) *servedRequest {
	for _, s := range g.running {
		if s.brokenBy == nil && now-time.Duration(s.lastPieceAt.Load()) > s.maxPause {
			return s
		}
	}
	return nil
}

// answer has the instance continue the answer from the text that earlier runs have made, and returns the result when
// the run ends. It notes when the request first ran, and reports new tokens to the policy by events. These carry gen,
// how often the server was lost when the run began, so that events of a lost server can be ignored.
func (s *servedRequest) answer(ctx context.Context, gen int32) *runResult {
	t := s.text
	t.mu.Lock()
	t.firstRunAt = cmp.Or(t.firstRunAt, s.beganAt)
	earlierTokens := t.tokens
	t.mu.Unlock()
	if earlierTokens > 0 {
		s.agent.series.resumedRuns.Inc()
	}
	return s.agent.control().writeAnswer(ctx, &answerRun{text: t, runNumber: s.runNumber, clock: s.agent.core.Loop.Now, onPiece: func() { s.lastPieceAt.Store(int64(s.agent.core.Loop.Now())) }, onTokens: func(tokens int) {
		s.reportProgress(gen, earlierTokens, tokens)
		earlierTokens = tokens
	}})
}

// reportProgress posts an event when the first token is there, and whenever the number of tokens passes a multiple of
// the instance's progress interval. earlierTokens is the number at the last call, and tokens the present one. gen is
// the loss count that the events carry.
func (s *servedRequest) reportProgress(gen int32, earlierTokens, tokens int) {
	interval := int(s.agent.instance().ProgressTokens)
	if earlierTokens == 0 && tokens > 0 {
		s.agent.core.Inbox.PostEvents(turn.BackendEvent{Kind: eventProgress, Device: s.agent.device, Generation: gen, Id: s.serial, Tokens: 1})
	}
	if interval > 0 && tokens/interval > earlierTokens/interval {
		s.agent.core.Inbox.PostEvents(turn.BackendEvent{Kind: eventProgress, Device: s.agent.device, Generation: gen, Id: s.serial, Tokens: int32(tokens / interval * interval)})
	}
}
