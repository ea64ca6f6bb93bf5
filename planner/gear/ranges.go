package gear

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"inferplan/formats/seeded"
	"inferplan/policy/gear"
)

// Ranges are the upper edges of n equal ranges of rates up to a peak.
func Ranges(peak float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = peak * float64(i+1) / float64(n)
	}
	return out
}

// Zipf are weights proportional to 1, 1/2, 1/3, … that sum to 1: low rates are
// common.
func Zipf(n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = 1 / float64(i+1)
	}
	return normalise(out)
}

// Uniform are equal weights that sum to 1.
func Uniform(n int) []float64 {
	return normalise(slices.Repeat([]float64{1}, n))
}

func normalise(list []float64) []float64 {
	total := sum(list)
	for i := range list {
		list[i] /= total
	}
	return list
}

// Measured makes weights of counts per interval, as rates: how many of the
// requests come while the rate is in each range. Rates above the peak count in
// the last range.
func Measured(rates []float64, peak float64, n int) []float64 {
	out := make([]float64, n)
	for _, q := range rates {
		out[min(n-1, max(0, int(q/peak*float64(n))))] += q
	}
	if sum(out) == 0 {
		return Uniform(n)
	}
	return normalise(out)
}

// replayed is how many seconds Served goes through at least.
const replayed = 1200

// Served makes weights of counts per second in their order: how many of the
// requests come under the gear of each range when these rates go through the
// policy's switch rule. It is slow to leave a fast gear, so that rates that
// hover at the edge of two ranges are mostly served by the faster, less
// accurate one; the rates alone (Measured) do not tell. Requests come at random
// instants of their second; queues are taken to be short enough to switch.
// Short measurements are gone through several times, with other instants.
func Served(rates []float64, peak float64, n int, seed uint64) []float64 {
	rng := seeded.New(seed, "gear/served")
	var o gear.Options
	o.Window, o.Hysteresis = gear.WindowFor(peak / float64(n))
	out := make([]float64, n)
	for done := 0; done < replayed && len(rates) > 0; done += len(rates) {
		replay(out, rates, gear.NewRule(Ranges(peak, n), o), o.Window, rng)
	}
	if sum(out) == 0 {
		return Uniform(n)
	}
	return normalise(out)
}

// replay counts the requests of every gear. Seconds and windows need not end
// together: what comes is drawn part by part.
func replay(counts, rates []float64, rule *gear.Rule, window time.Duration, rng *rand.Rand) {
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

// Shares are weights that sum to 1, from a histogram.
func Shares(histogram []float64) []float64 {
	return normalise(slices.Clone(histogram))
}
