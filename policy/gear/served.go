package gear

import (
	"math"
	"math/rand/v2"
	"time"

	"gonum.org/v1/gonum/stat/distuv"
)

// minReplaySeconds is the least number of seconds that RequestsByGear replays.
const replayed = 1200

// RequestsByGear returns how many requests come under each gear, for gears up to the given rates, if the rates of
// consecutive seconds go through the switch rule and nothing waits. Requests come at random instants of their
// second. Short measurements are replayed several times, with other instants.
func Served(rates, to []float64, o Options, rng *rand.Rand) []float64 {
	counts := make([]float64, len(to))
	for done := 0; done < replayed && len(rates) > 0; done += len(rates) {
		replay(counts, rates, NewRule(to, o), o.Window, rng)
	}
	return counts
}

// replayRates adds the requests under every gear to its count. Seconds and windows need not end together: arrivals
// are drawn for each part of a second that lies in one window.
func replay(counts, rates []float64, rule *Rule, window time.Duration, rng *rand.Rand) {
	at, end := int32(0), window // the gear in force, and the end of this window
	seen, owed := 0.0, 0.0      // requests of this window, and the fraction of a request that earlier seconds left

	// Whole requests of this second; the rest of the rate goes to the next.
	for second, rate := range rates {
		owed += rate
		left, from := math.Floor(owed), time.Duration(second)*time.Second
		owed -= left

		// Draw the arrivals of each part, and switch at the end of a window.
		for to := from + time.Second; from < to; {
			part, came := min(end, to)-from, left
			if part < to-from && left > 0 {
				came = distuv.Binomial{N: left, P: float64(part) / float64(to-from), Src: rng}.Rand()
			}
			left -= came
			seen += came
			counts[at] += came
			if from += part; from == end {
				at = rule.Next(at, seen/window.Seconds(), 0)
				seen, end = 0, end+window
			}
		}
	}
}
