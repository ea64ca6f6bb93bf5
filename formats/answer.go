package formats

import "time"

// Answer holds the times of an answered request to a language model. TPOT is 0 for an answer of one token.
// WaitTime lasts until the first iteration starts.
type Answer struct{ E2E, TTFT, TPOT, Waited time.Duration }

// TimePerToken returns the time per token after the first, given the times of the first and the last token. For
// one token it is 0.
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

// IsLate reports whether an answer misses its SLO on a figure, or waited longer than waitingSLO. An SLO of 0 does
// not exist. Simulator, server, client and planner all use this function.
func (a *Answer) Late(of string, slo, waiting time.Duration) bool {
	return slo > 0 && a.Figure(of) > slo || waiting > 0 && a.Waited > waiting
}
