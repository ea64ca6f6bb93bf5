package pool

import (
	"math"
	"slices"
)

// A model needs whole replicas that carry its rate: a covering knapsack over the
// replicas of all its templates. At prices of the devices it is solved for all
// rates of a grid at once. Rates that are rounded down to the grid give sums that
// do carry what they say. Rates that are rounded up give less than any plan takes,
// and so a bound: devices that are worth less than what all models take at least at
// a throughput cannot carry it.

// covers are the cheapest sums of configurations of one model, by the rate that they
// carry at least.
type covers struct {
	step   float64      // requests/s of one step of the grid
	cost   []float64    // of each number of steps
	first  []int32      // steps of a configuration of the cheapest sum
	single []configured // the cheapest configuration of exactly so many steps

	takes   float64   // what a unit of rate takes of the template that is looked at
	dearest []float64 // from so many steps on: the most that a unit of rate takes
}

// configured is whole replicas of a template.
type configured struct {
	template int32
	rate     float64 // requests/s
	cost     float64
}

// covering is how covers are made.
type covering struct {
	perDevice []float64 // price of a device of each pool
	counts    []int     // devices of each pool
	slot      bool      // parts of devices count as whole ones
}

// A configuration pays only where its template, which takes at least what its part of
// the rate costs, is not dearer than a sum of good ones. Those are looked at first.
const (
	goodTemplate = 1.02 // of the least that a template takes
	goodSteps    = 500
	// Those that take hardly more than a sum of others stay: they take other devices.
	nearlyGood = 1.02
)

// configurations lists those of a model that a cheapest sum may hold, for rates up
// to most.
func (w *covering) configurations(s *sieve, most float64) []configured {
	takes := make([]float64, s.len())
	least := math.Inf(1)
	for i := range takes {
		for _, x := range s.of(i) {
			takes[i] += w.perDevice[x.pool] * x.per
		}
		least = min(least, takes[i])
	}
	var out []configured
	for i, v := range takes {
		if v <= least*goodTemplate {
			out = w.configure(out, s, i, most, nil)
		}
	}
	good := coversOf(out, most, goodSteps, false)
	// From each rate on: the most that a unit of it takes in a sum of good ones.
	good.dearest = make([]float64, goodSteps+1)
	good.dearest[goodSteps] = good.cost[goodSteps] / most // whoever carries more takes more
	for j := goodSteps - 1; j >= 0; j-- {
		good.dearest[j] = max(good.dearest[j+1], good.cost[j+1]/(max(float64(j), 1e-9)*good.step))
	}
	for i, v := range takes {
		if v > least*goodTemplate {
			good.takes = v
			out = w.configure(out, s, i, most, good)
		}
	}
	return out
}

// configure appends the configurations of a template, by rising rate of each stage,
// that take less than sums of others.
func (w *covering) configure(out []configured, s *sieve, template int, most float64, others *covers) []configured {
	parts := s.of(template)
	for i := range parts {
		if parts[i].share == 0 {
			break
		}
		rate := 1 / (parts[i].per * float64(parts[i].share))
	grow:
		for g := 1; ; g++ {
			x := configured{int32(template), rate * float64(g), 0}
			if others != nil && others.takes >= nearlyGood*others.dearest[int(min(x.rate/others.step, goodSteps))] {
				break
			}
			for j := range parts {
				p := &parts[j]
				if p.share == 0 {
					break
				}
				part := math.Ceil(x.rate*p.per*float64(p.share)-1e-9) / float64(p.share)
				if part > float64(w.counts[p.pool]) {
					break grow
				}
				if w.slot {
					part = math.Ceil(part - 1e-9)
				}
				x.cost += w.perDevice[p.pool] * part
			}
			if others == nil || x.cost < nearlyGood*others.cost[others.at(x.rate)] {
				out = append(out, x)
			}
			if x.rate >= most {
				break
			}
		}
	}
	return out
}

// coversOf works out the cheapest sums of some configurations for rates up to most, on
// a grid of so many steps. Rates are rounded up to it, or down.
func coversOf(list []configured, most float64, steps int, up bool) *covers {
	c := &covers{step: most / float64(steps)}
	c.single = slices.Repeat([]configured{{template: -1, cost: math.Inf(1)}}, steps+1)
	for _, x := range list {
		// A replica may carry any number of times what is asked: more than an int holds.
		at := int(min(x.rate/c.step*(1+1e-12), float64(steps)))
		if up {
			at = int(min(math.Ceil(x.rate/c.step*(1-1e-12)), float64(steps)))
		}
		if at > 0 && x.cost < c.single[at].cost {
			c.single[at] = x
		}
	}
	c.cost, c.first = make([]float64, steps+1), make([]int32, steps+1)
	// The cheapest configuration that alone carries as much.
	alone := make([]int32, steps+1)
	for j := steps; j > 0; j-- {
		alone[j] = int32(j)
		if j < steps && c.single[alone[j+1]].cost <= c.single[j].cost {
			alone[j] = alone[j+1]
		}
	}
	var useful []int32 // steps of those that a cheapest sum may hold
	for j := 1; j <= steps; j++ {
		best, by := math.Inf(1), int32(0)
		for _, q := range useful {
			if v := c.cost[j-int(q)] + c.single[q].cost; v < best {
				best, by = v, q
			}
		}
		if v := c.single[alone[j]].cost; v < best {
			if best, by = v, alone[j]; int(by) == j {
				useful = append(useful, by)
			}
		}
		c.cost[j], c.first[j] = best, by
	}
	return c
}

// at is the steps that a rate needs.
func (c *covers) at(rps float64) int {
	return int(min(math.Ceil(rps/c.step*(1-1e-12)), float64(len(c.cost)-1)))
}

// trace appends the cheapest configurations that carry so many steps.
func (c *covers) trace(list []configured, steps int) []configured {
	for steps > 0 {
		q := c.first[steps]
		list = append(list, c.single[q])
		steps -= int(q)
	}
	return list
}
