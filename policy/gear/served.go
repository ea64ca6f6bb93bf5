package gear

import (
	"math"
	"math/rand/v2"
	"time"

	"gonum.org/v1/gonum/stat/distuv"
)

// replayed is how many seconds Served goes through at least.
const replayed = 1200

// Served counts the requests that come under each gear, of gears up to some rates, when the
// rates of seconds go through the switch rule in their order and nothing waits. Requests come
// at random instants of their second. Short measurements are gone through several times, with
// other instants.
func Served(rates, to []float64, o Options, rng *rand.Rand) []float64 {
	counts := make([]float64, len(to))
	for done := 0; done < replayed && len(rates) > 0; done += len(rates) {
		replay(counts, rates, NewRule(to, o), o.Window, rng)
	}
	return counts
}

// replay adds the requests of every gear to its count. Seconds and windows need not end
// together: what comes is drawn part by part.
func replay(counts, rates []float64, rule *Rule, window time.Duration, rng *rand.Rand) {
	at, end := int32(0), window // gear in force, end of this window
	seen, owed := 0.0, 0.0      // requests of this window; parts of requests that rates left over
	for second, rate := range rates {
		owed += rate
		left, from := math.Floor(owed), time.Duration(second)*time.Second
		owed -= left
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
