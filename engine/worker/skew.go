package worker

// driftPPM bounds how fast the monotonic clocks of two hosts drift apart: crystals differ by up to about 100 ppm,
// and each side may be disciplined by as much again.
const driftPPM = 400

// clockSkew bounds how far another host's clock is ahead of ours. Whatever happens there between two moments of
// our clock happens after the first and before the second, and so bounds the difference. The bounds are the
// intersection of all observations, widened by the drift since each. The estimate is the middle between them.
type skew struct {
	lo, hi int64 // bounds of how far the other clock is ahead, nanoseconds
	at     int64 // our clock when the bounds were last set, 0 before the first observation
}

// update takes in an observation: the moments remoteFirst to remoteLast of the other clock lie between the moments
// sentAt and receivedAt of ours.
func (s *skew) see(sent, got, first, last int64) {
	first, last = sane(first), sane(last)
	lo, hi := last-got, first-sent
	if lo > hi { // more time passed there than here, so this observation is of no use
		return
	}
	if s.at != 0 {
		wide := max(got-s.at, 0) / 1_000_000 * driftPPM
		lo, hi = max(lo, s.lo-wide), min(hi, s.hi+wide)
		if lo > hi { // a clock was stopped or jumped, so begin anew
			lo, hi = last-got, first-sent
		}
	}
	s.lo, s.hi, s.at = lo, hi, got
}

// toLocal returns a run's start and end by our clock. The run was sent and its result received at the given
// moments, so it lies between them. It keeps its length unless that does not fit.
func (s *skew) here(sent, got, start, end int64) (int64, int64) {
	end = sane(end)
	start = min(sane(start), end)
	s.see(sent, got, start, end)
	ahead := s.lo + (s.hi-s.lo)/2
	return min(max(start-ahead, sent), got), min(max(end-ahead, sent), got)
}

// clampTime bounds a time that the other side claims, so that sums of times cannot overflow.
func sane(t int64) int64 { return min(max(t, 0), 1<<61) }
