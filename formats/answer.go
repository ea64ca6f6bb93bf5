package formats

import "time"

// Answer holds the times of an answered request to a language model. TPOT is 0 for an answer of one token.
// WaitTime lasts until the first iteration starts.
type Answer struct{ E2E, TTFT, TPOT, WaitTime time.Duration }

// TimePerToken returns the mean time per token of an answer after the first, given the times of the first and the
// last token. For one token it is 0.
func TimePerToken(firstToken, lastToken time.Duration, tokens int) time.Duration {
	if tokens < 2 {
		return 0
	}
	return (lastToken - firstToken) / time.Duration(tokens-1)
}

// Latency returns the time of an answer that an SLO bounds whose figure is ttft (time to the first token), tpot
// (time per token after it), or e2e, the whole time. An empty figure stands for e2e.
func (a *Answer) Latency(figure string) time.Duration {
	switch figure {
	case FigureTTFT:
		return a.TTFT
	case FigureTPOT:
		return a.TPOT
	}
	return a.E2E
}

// IsLate reports whether an answer misses its SLO on a figure, or waited longer than waitingSLO. An SLO of 0 does
// not exist. Simulator, server, client and planner all use this function.
func (a *Answer) IsLate(figure string, slo, waitingSLO time.Duration) bool {
	return slo > 0 && a.Latency(figure) > slo || waitingSLO > 0 && a.WaitTime > waitingSLO
}
