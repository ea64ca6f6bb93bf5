package gear

import "math"

// maxWindows limits the windows that measured rates are cut into. Of more seconds, several form one window.
const mostWindows = 2048

// measuredBound returns the accuracy that no plan exceeds on the measured rates, if all requests together keep the
// SLO. It holds even for plans that could not hold a rate forever.
//
// Requests that arrive in a window and are in time are answered within the window and the SLO after it. A window
// of n requests thus has windowSeconds + SLO for a mixture of cascades, which is the same for all its requests,
// because nothing is better. The rates are cut into windows of 1, 2, 4, … basic windows, such that the sum of
// their bounds is the least. A late request has a price, as in boundOverRequests, and costs no time.
//
// It also bounds the mean of random streams: the best of a window is concave in its requests and its work, so
// chance in the arrivals does not raise it.
func (p *pooled) measuredBound() float64 {
	idle := make([]float64, len(p.Models)) // late requests are worked on when devices are idle
	all, room := p.laxes(idle), 1-p.Percentile
	each := (len(p.Measured) + mostWindows - 1) / mostWindows
	came := []float64{0} // requests that arrived until the end of each basic window
	for from := 0; from < len(p.Measured); from += each {
		came = append(came, came[len(came)-1]+sum(p.Measured[from:min(from+each, len(p.Measured))]))
	}

	// The cheapest cut into windows, by dynamic programming over their ends.
	requests := came[len(came)-1]
	return leastAtPrice(func(price float64) float64 {
		e, best := atPrice(all, price), make([]float64, len(came))
		for to := 1; to < len(came); to++ {
			best[to] = math.Inf(1)
			for steps := 1; steps <= to; steps *= 2 {
				n, value := came[to]-came[to-steps], best[to-steps]
				if n > 0 {
					value += n * e.At(p.scale*(float64(steps*each)+p.SLO.Seconds())/n)
				}
				best[to] = min(best[to], value)
			}
		}
		return best[len(best)-1]/requests + price*room
	})
}

// The prices of lateness that the search covers, and its number of steps.
const (
	leastPrice, mostPrice = 1e-3, 1e3
	priceSteps            = 40
)

// minOverPrices returns the least bound over prices of lateness, by golden-section search on the logarithm, since
// the bound is convex in the price. A price of 0 is tried, too.
func leastAtPrice(at func(price float64) float64) float64 {
	least := at(0)
	low, high := math.Log(leastPrice), math.Log(mostPrice)
	for range priceSteps {
		a, b := low+(high-low)*.382, low+(high-low)*.618
		x, y := at(math.Exp(a)), at(math.Exp(b))
		if least = min(least, x, y); x <= y {
			high = b
		} else {
			low = a
		}
	}
	return least
}
