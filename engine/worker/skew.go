package worker

// driftPPM bounds how fast the monotonic clocks of two hosts drift apart: crystals differ by up to about 100 ppm,
// and each side may be disciplined by as much again.
const driftPPM = 400

// clockSkew bounds how far another host's clock is ahead of ours. Whatever happens there between two moments of
// our clock happens after the first and before the second, and so bounds the difference. The bounds are the
// intersection of all observations, widened by the drift since each. The estimate is the middle between them.
type clockSkew struct {
	minAhead, maxAhead int64 // bounds of how far the other clock is ahead, nanoseconds
	updatedAt          int64 // our clock when the bounds were last set, 0 before the first observation
}

// update improves the bounds of how far the other clock is ahead of ours by an observation: the moments remoteFirst
// to remoteLast of the other clock lie between the moments sentAt and receivedAt of ours, all in nanoseconds. It is
// called with every answer of the other host.
func (s *clockSkew) update(sentAt, receivedAt, remoteFirst, remoteLast int64) {
	remoteFirst, remoteLast = clampTime(remoteFirst), clampTime(remoteLast)
	// When remoteLast was read, our clock was not yet at receivedAt, so the other one is ahead by lo at least. When
	// remoteFirst was read, ours was past sentAt, so the other one is ahead by hi at most.
	lo, hi := remoteLast-receivedAt, remoteFirst-sentAt
	if lo > hi { // more time passed there than here, so this observation is of no use
		return
	}
	if s.updatedAt != 0 {
		// The older bounds may have moved by the drift since then, in either direction.
		drift := max(receivedAt-s.updatedAt, 0) / 1_000_000 * driftPPM
		lo, hi = max(lo, s.minAhead-drift), min(hi, s.maxAhead+drift)
		if lo > hi { // a clock was stopped or jumped, so begin anew
			lo, hi = remoteLast-receivedAt, remoteFirst-sentAt
		}
	}
	s.minAhead, s.maxAhead, s.updatedAt = lo, hi, receivedAt
}

// toLocal returns a run's start and end, which the other host gave by its clock, by our clock. The run was sent and
// its result received at the given moments of ours, so it lies between them. It keeps its length unless that does
// not fit.
func (s *clockSkew) toLocal(sentAt, receivedAt, start, end int64) (int64, int64) {
	end = clampTime(end)
	start = min(clampTime(start), end)
	s.update(sentAt, receivedAt, start, end)
	remoteAhead := s.minAhead + (s.maxAhead-s.minAhead)/2
	return min(max(start-remoteAhead, sentAt), receivedAt), min(max(end-remoteAhead, sentAt), receivedAt)
}

// clampTime bounds a time that the other side claims, so that sums of times cannot overflow.
func clampTime(t int64) int64 { return min(max(t, 0), 1<<61) }
