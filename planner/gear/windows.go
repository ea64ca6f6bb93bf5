package gear

import "math"

// mostWindows is how many seconds rates are looked at one by one; of more, several
// together.
const mostWindows = 2048

// measuredBound is what no plan on the measured rates exceeds, if all requests together
// are to keep the SLO, whatever it would do if a rate lasted. Of the requests of some
// seconds those in time are answered within these seconds and the SLO. So the rates are
// cut into windows, each with that time for a mixture of cascades, equal for all of its
// requests because nothing is better. Lateness has a price, as in laxBounds. Any windows
// and any price bound, the best of them stand.
//
// It bounds the mean of streams: a window's best is concave in what comes and in the work
// done together, so that chance in what comes does not raise it.
func (p *pooled) measuredBound() float64 {
	idle := make([]float64, len(p.Models)) // late requests are worked on whenever there is time
	all, room := p.laxes(idle), 1-p.Percentile
	each := (len(p.Measured) + mostWindows - 1) / mostWindows
	came := []float64{0} // up to a time
	for from := 0; from < len(p.Measured); from += each {
		came = append(came, came[len(came)-1]+sum(p.Measured[from:min(from+each, len(p.Measured))]))
	}
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

// Of the search for the price of lateness that bounds best.
const (
	leastPrice, mostPrice = 1e-3, 1e3
	priceSteps            = 40
)

// leastAtPrice is the least of what a price of lateness gives, convex in the price, and no
// price at all.
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
