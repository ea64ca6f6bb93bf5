package gear

import "math"

// estimator estimates the tail latency of cascades. It orders them for simulation and
// decides nothing.
//
// A busy device serves its longest queue, so that it goes round its models. A round takes
// T, in which every model gathers a batch: T = Σ t_m(rate_m T). A request spends, at every
// stage, the batch's own time and, as often as the device is busy, a part of a round.
type estimator struct {
	p     *Problem
	times [][]float64 // by model and batch, seconds
	per   []float64   // of a sample, at best
}

func newEstimator(p *Problem) *estimator {
	e := &estimator{p: p, per: perSample(p)}
	for m := range p.Models {
		batch, _ := p.operating(m)
		var times []float64
		for _, t := range p.Models[m].Times[:batch] {
			times = append(times, t.Seconds())
		}
		e.times = append(e.times, times)
	}
	return e
}

// tail is the estimate at a rate, in seconds, for a cascade that takes so much of the
// busiest device per request per second: as if its work were spread evenly over as many
// devices as that comes to.
func (e *estimator) tail(c *Cascade, rate, load float64) float64 {
	var rates [maxModels]float64 // of one of these devices, by stage
	work := 0.0
	for k, m := range c.Models {
		rates[k] = float64(c.Reach[k]) / float64(e.p.Planned.N)
		work += rates[k] * e.per[m]
	}
	for k := range c.Models {
		rates[k] *= rate * load / work
	}
	round := 0.0
	for range 30 {
		next := 0.0
		for k, m := range c.Models {
			next += e.batch(m, rates[k]*round)
		}
		if next-round < 1e-2*next {
			break
		}
		round = next
	}
	own, tail := 0.0, 0.0
	for k, m := range c.Models {
		if k > 0 && float64(c.Reach[k]) <= (1-e.p.Percentile)*float64(e.p.Planned.N) {
			break
		}
		own += e.batch(m, rates[k]*round)
		stages := float64(k + 1) // a wait is as good as uniform over a round, many are about normal
		tail = own + min(1, rate*load)*round*min(stages, stages/2+unlikelyWait*math.Sqrt(stages/12))
	}
	return tail
}

// unlikelyWait is how many deviations above their mean waits are estimated.
const unlikelyWait = 1.6

// batch is the time of a batch of a size, at least 1; above the largest, of as many as it
// takes.
func (e *estimator) batch(m uint8, size float64) float64 {
	times := e.times[m]
	switch at := int(size); {
	case size <= 1:
		return times[0]
	case at >= len(times):
		return times[len(times)-1] * size / float64(len(times))
	default:
		return times[at-1] + (size-float64(at))*(times[at]-times[at-1])
	}
}
