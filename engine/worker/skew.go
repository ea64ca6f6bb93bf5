package worker

// driftPPM is how fast two hosts' monotonic clocks may part: crystals differ by
// up to about 100 ppm, and each side may be disciplined by as much again.
const driftPPM = 400

// skew bounds how far another host's clock is ahead of ours. Whatever happened
// there between two moments here says so: it lies after the first and before
// the second. The band is the intersection of all that was seen, widened as
// the clocks may have parted since; its middle is the estimate.
type skew struct {
	lo, hi int64 // ns that the other clock is ahead by
	at     int64 // our clock when the band was last set; 0: nothing seen yet
}

// see takes in that moments first to last of the other clock lie between
// moments sent and got of ours.
func (s *skew) see(sent, got, first, last int64) {
	first, last = sane(first), sane(last)
	lo, hi := last-got, first-sent
	if lo > hi { // longer there than here: says nothing
		return
	}
	if s.at != 0 {
		wide := max(got-s.at, 0) / 1_000_000 * driftPPM
		lo, hi = max(lo, s.lo-wide), min(hi, s.hi+wide)
		if lo > hi { // a clock was stopped or jumped: begin anew
			lo, hi = last-got, first-sent
		}
	}
	s.lo, s.hi, s.at = lo, hi, got
}

// here gives a run's start and end by our clock. The run was sent and its
// result got at the given moments, so it lies between them; it keeps its length
// wherever that fits.
func (s *skew) here(sent, got, start, end int64) (int64, int64) {
	end = sane(end)
	start = min(sane(start), end)
	s.see(sent, got, start, end)
	ahead := s.lo + (s.hi-s.lo)/2
	return min(max(start-ahead, sent), got), min(max(end-ahead, sent), got)
}

// sane keeps what the other side claims where sums of times cannot overflow.
func sane(t int64) int64 { return min(max(t, 0), 1<<61) }
