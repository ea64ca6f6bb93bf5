package gear

import (
	"math"
	"math/rand/v2"
	"time"

	"gonum.org/v1/gonum/stat/distuv"
)

// minReplaySeconds is the least number of seconds that RequestsByGear replays.
const minReplaySeconds = 1200

// RequestsByGear returns how many requests come under each gear, for gears up to the given rates, if the rates of
// consecutive seconds go through the switch rule and nothing waits. Requests come at random instants of their
// second. Short measurements are replayed several times, with other instants.
func RequestsByGear(rates, maxRates []float64, options Options, rng *rand.Rand) []float64 {
	counts := make([]float64, len(maxRates))
	for replayedSeconds := 0; replayedSeconds < minReplaySeconds && len(rates) > 0; replayedSeconds += len(rates) {
		replayRates(counts, rates, NewSwitchRule(maxRates, options), options.Window, rng)
	}
	return counts
}

// replayRates is called by RequestsByGear, once or several times. It replays measured rates, by second, through the rule
// that switches gears, and adds the requests under every gear to counts. Seconds and windows need not end together, so
// arrivals are drawn for each part of a second that lies in one window.
func replayRates(counts, rates []float64, rule *SwitchRule, window time.Duration, rng *rand.Rand) {
	gear, windowEnd := int32(0), window   // the gear in force, and the end of this window
	windowRequests, remainder := 0.0, 0.0 // requests of this window, and the fraction of a request that earlier seconds left

	// Each second has whole requests; the fraction that is left goes to the next second.
	for second, rate := range rates {
		remainder += rate
		remainingRequests, partStart := math.Floor(remainder), time.Duration(second)*time.Second
		remainder -= remainingRequests

		// Draw the arrivals of each part of the second: each remaining request is in it with the probability of its length
		// in what remains of the second. Switch gears at the end of a window.
		for secondEnd := partStart + time.Second; partStart < secondEnd; {
			partLength, arrivals := min(windowEnd, secondEnd)-partStart, remainingRequests
			if partLength < secondEnd-partStart && remainingRequests > 0 {
				arrivals = distuv.Binomial{N: remainingRequests, P: float64(partLength) / float64(secondEnd-partStart), Src: rng}.Rand()
			}
			remainingRequests -= arrivals
			windowRequests += arrivals
			counts[gear] += arrivals
			partStart += partLength
			if partStart == windowEnd {
				gear = rule.GearAfter(gear, windowRequests/window.Seconds(), 0)
				windowRequests, windowEnd = 0, windowEnd+window
			}
		}
	}
}
