package gear

import "math"

// estimate is the tail latency, in seconds, of every cascade alone at the edge of every
// range, given its load per request: infinite where the devices cannot hold it. It orders
// cascades for simulation and decides nothing.
//
// A busy device serves its longest queue, so that it goes round its models. A
// round takes T, in which every model gathers a batch: T = Σ t_m(rate_m T). A
// request spends, at every stage, the batch's own time and, as often as the
// device is busy, a round of waiting.
func estimate(p *Problem, pl *Placement, list []Cascade, load []float64) [][]float64 {
	out := make([][]float64, len(p.Edges))
	for r := range out {
		out[r] = make([]float64, len(list))
	}
	e := &estimator{p: p, pl: pl, times: make([][]float64, len(p.Models))}
	for m := range p.Models {
		batch, _ := p.operating(m)
		for _, t := range p.Models[m].Times[:batch] {
			e.times[m] = append(e.times[m], t.Seconds())
		}
		replicas := len(pl.DevicesOf(m))
		e.replicas = append(e.replicas, float64(replicas))
	}
	for i := range list {
		e.prepare(&list[i])
		for r, edge := range p.Edges {
			if load[i]*edge > 1 {
				out[r][i] = math.Inf(1)
				continue
			}
			out[r][i] = e.tail(edge, load[i]*edge)
		}
	}
	return out
}

type estimator struct {
	p        *Problem
	pl       *Placement
	times    [][]float64 // by model and batch
	replicas []float64

	c     *Cascade
	share [maxModels]float64 // of the requests, by stage, per replica
	waits [maxModels]float64 // rounds that those who come to a stage wait at most
	rates [maxModels]float64 // of a device, by stage
}

// prepare takes up a cascade. A wait is as good as uniform over the part of a
// round that the device is busy; k of them are about normal. Of those that come
// to stage k, a share may be late.
func (e *estimator) prepare(c *Cascade) {
	e.c = c
	n := float64(e.p.Planned.N)
	for k, m := range c.Models {
		reach := float64(c.Reach[k]) / n
		e.share[k] = reach / e.replicas[m]
		e.waits[k] = 0
		if late := 1 - e.p.Percentile; reach > late {
			waits := float64(k + 1)
			e.waits[k] = max(0, min(waits, waits/2+normalQuantile(1-late/reach)*math.Sqrt(waits/12)))
		}
	}
}

// tail is the estimate at a rate. Where models stand on several sets of devices,
// the slowest round counts for all.
func (e *estimator) tail(rate, load float64) float64 {
	c := e.c
	round, busy := 0.0, 0.0
	for s, set := range e.pl.Sets {
		if e.pl.Counts[s] == 0 {
			continue
		}
		even := 0.0 // load with every model spread evenly
		for k, m := range c.Models {
			e.rates[k] = 0
			if set&(1<<m) != 0 {
				e.rates[k] = rate * e.share[k]
				last := e.times[m]
				even += e.rates[k] * last[len(last)-1] / float64(len(last))
			}
		}
		if even > load { // the split takes work away from such devices
			for k := range c.Models {
				e.rates[k] *= load / even
			}
		}
		t, b := e.round(c)
		round, busy = max(round, t), max(busy, b)
	}
	own, tail := 0.0, 0.0
	for k, m := range c.Models {
		if e.waits[k] == 0 && k > 0 {
			break
		}
		took, _ := e.batch(m, round*rate*e.share[k])
		own += took
		tail = max(tail, own+busy*round*e.waits[k])
	}
	return tail
}

// normalQuantile is the quantile of the standard normal distribution.
func normalQuantile(share float64) float64 { return math.Sqrt2 * math.Erfinv(2*share-1) }

// round is the time of a round at the rates of one device, and the share of
// the time that the device is busy. Newton's method: the times are close to
// linear in the batch.
func (e *estimator) round(c *Cascade) (t, busy float64) {
	for range 30 {
		next, slope := 0.0, 0.0
		for k, m := range c.Models {
			if x := e.rates[k]; x > 0 {
				took, more := e.batch(m, x*t)
				next, slope = next+took, slope+x*more
			}
		}
		if next-t < 1e-3*next {
			break
		}
		if slope < 1 {
			t = max(t, (next-slope*t)/(1-slope))
		} else {
			t = next
		}
	}
	for k, m := range c.Models {
		if x := e.rates[k]; x > 0 {
			size := max(1, x*t)
			took, _ := e.batch(m, size)
			busy += x / size * took
		}
	}
	return t, min(1, busy)
}

// batch is the time of a batch of a size, at least 1, and what one more sample
// takes; above the largest, of as many as it takes.
func (e *estimator) batch(m uint8, size float64) (took, more float64) {
	times := e.times[m]
	most := len(times)
	switch at := int(size); {
	case size <= 1:
		return times[0], 0
	case at >= most:
		more = times[most-1] / float64(most)
		return more * size, more
	default:
		more = times[at] - times[at-1]
		return times[at-1] + (size-float64(at))*more, more
	}
}
