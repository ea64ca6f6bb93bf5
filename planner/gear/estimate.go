package gear

import "math"

// estimator estimates the tail latency of cascades alone. It orders them for simulation
// and decides nothing.
//
// A busy device serves its longest queue, so that it goes round its models. A
// round takes T, in which every model gathers a batch: T = Σ t_m(rate_m T). A
// request spends, at every stage, the batch's own time and, as often as the
// device is busy, a round of waiting.
type estimator struct {
	*design
	groups []group

	c     *Cascade
	reach [maxModels]float64 // share of the requests that come to a stage
	waits [maxModels]float64 // rounds that those who come to a stage wait at most
	rates [maxModels]float64 // of a device, by stage
}

// group is devices that hold the same.
type group struct {
	times [][]float64 // seconds by model and batch; none where they do not hold it
	part  []float64   // of a model's samples, by device, where devices get them by their speed
}

func newEstimator(d *design) *estimator {
	e := &estimator{design: d}
	batch, _ := speedsOf(d.p)
	total := make([]float64, len(d.p.Models))
	for _, c := range d.out.Configs {
		g := group{make([][]float64, len(total)), make([]float64, len(total))}
		for m := range total {
			n := batch[c.Kind][m]
			if c.Set&(1<<m) == 0 || n == 0 {
				continue
			}
			for _, t := range d.p.variant(m, c.Kind).Times[:n] {
				g.times[m] = append(g.times[m], t.Seconds())
			}
			g.part[m] = float64(n) / g.times[m][n-1]
			total[m] += float64(c.Count) * g.part[m]
		}
		e.groups = append(e.groups, g)
	}
	for _, g := range e.groups {
		for m := range total {
			if total[m] > 0 {
				g.part[m] /= total[m]
			}
		}
	}
	return e
}

// tails are the estimates, in seconds, at the edge of every range, given loads per
// request: infinite where the devices cannot hold it.
func (e *estimator) tails(load []float64) [][]float64 {
	out := make([][]float64, len(e.p.Edges))
	for r := range out {
		out[r] = make([]float64, len(e.list))
	}
	for i := range e.list {
		e.prepare(&e.list[i])
		for r, edge := range e.p.Edges {
			if out[r][i] = math.Inf(1); load[i]*edge <= 1 {
				out[r][i] = e.tail(edge, load[i]*edge)
			}
		}
	}
	return out
}

// prepare takes up a cascade. A wait is as good as uniform over the part of a
// round that the device is busy; k of them are about normal. Of those that come
// to stage k, a share may be late.
func (e *estimator) prepare(c *Cascade) {
	e.c = c
	for k := range c.Models {
		reach := float64(c.Reach[k]) / float64(e.p.Planned.N)
		e.reach[k] = reach
		e.waits[k] = 0
		if late := 1 - e.p.Percentile; reach > late {
			waits := float64(k + 1)
			e.waits[k] = max(0, min(waits, waits/2+normalQuantile(1-late/reach)*math.Sqrt(waits/12)))
		}
	}
}

// tail is the estimate at a rate. Where models stand on several groups of devices, the
// slowest round and the slowest batch count for all.
func (e *estimator) tail(rate, load float64) float64 {
	c := e.c
	round, busy := 0.0, 0.0
	for n := range e.groups {
		g := &e.groups[n]
		even := 0.0 // load with every model spread by speed
		for k, m := range c.Models {
			e.rates[k] = rate * e.reach[k] * g.part[m]
			if last := g.times[m]; len(last) > 0 {
				even += e.rates[k] * last[len(last)-1] / float64(len(last))
			}
		}
		if even > load { // the split takes work away from such devices
			for k := range c.Models {
				e.rates[k] *= load / even
			}
		}
		t, b := e.round(g)
		round, busy = max(round, t), max(busy, b)
	}
	own, tail := 0.0, 0.0
	for k, m := range c.Models {
		if e.waits[k] == 0 && k > 0 {
			break
		}
		slowest := 0.0
		for n := range e.groups {
			if g := &e.groups[n]; len(g.times[m]) > 0 {
				took, _ := g.batch(m, round*rate*e.reach[k]*g.part[m])
				slowest = max(slowest, took)
			}
		}
		own += slowest
		tail = max(tail, own+busy*round*e.waits[k])
	}
	return tail
}

// normalQuantile is the quantile of the standard normal distribution.
func normalQuantile(share float64) float64 { return math.Sqrt2 * math.Erfinv(2*share-1) }

// round is the time of a round at the rates of one device, and the share of
// the time that the device is busy. Newton's method: the times are close to
// linear in the batch.
func (e *estimator) round(g *group) (t, busy float64) {
	for range 30 {
		next, slope := 0.0, 0.0
		for k, m := range e.c.Models {
			if x := e.rates[k]; x > 0 {
				took, more := g.batch(m, x*t)
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
	for k, m := range e.c.Models {
		if x := e.rates[k]; x > 0 {
			size := max(1, x*t)
			took, _ := g.batch(m, size)
			busy += x / size * took
		}
	}
	return t, min(1, busy)
}

// batch is the time of a batch of a size, at least 1, and what one more sample
// takes; above the largest, of as many as it takes.
func (g *group) batch(m uint8, size float64) (took, more float64) {
	times := g.times[m]
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
