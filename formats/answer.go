package formats

import "time"

// Answer is what a request to a language model came to. TPOT is 0 for an answer of one
// token. Waited ends with the first iteration.
type Answer struct{ E2E, TTFT, TPOT, Waited time.Duration }

// TimePerToken returns the time per token after the first, for an answer whose first
// and last token are so far apart; 0 for one token.
func TimePerToken(first, last time.Duration, tokens int) time.Duration {
	if tokens < 2 {
		return 0
	}
	return (last - first) / time.Duration(tokens-1)
}

// Figure returns the time that an SLO of e2e (or empty), ttft or tpot judges.
func (a *Answer) Figure(of string) time.Duration {
	switch of {
	case OfTTFT:
		return a.TTFT
	case OfTPOT:
		return a.TPOT
	}
	return a.E2E
}

// Late reports whether an answer misses an SLO of a figure, or waited longer than
// waiting allows; 0: there is no SLO of that. Simulator, server, client and planner
// judge by it.
func (a *Answer) Late(of string, slo, waiting time.Duration) bool {
	return slo > 0 && a.Figure(of) > slo || waiting > 0 && a.Waited > waiting
}
