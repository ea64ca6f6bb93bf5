package pool

import (
	"math"
	"slices"
)

// A cover is the cheapest sum of configurations (whole replicas of templates) of one model that carries a rate.
// It is the solution of a covering knapsack over the replicas of all templates of the model, at given prices of
// the devices. One table has the covers for all rates of a grid.
//
// Rates of configurations are rounded to the grid. Rounded down, the covers carry at least what they say:
// bundles are made of these. Rounded up, the covers cost no more than the model's part of any plan: that gives a
// bound. If the covers of all models at a throughput cost more than all devices are worth, no plan has that
// throughput (docs/methods.md, "Many models").

// coverTable holds the covers of one model, by the rate that they carry, in steps of a grid.
type covers struct {
	step   float64      // requests/s of one step of the grid
	cost   []float64    // by number of steps: cost of the cover
	first  []int32      // by number of steps: the steps that one configuration of the cover carries, 0 without one
	single []configured // by number of steps: the cheapest configuration that carries exactly so many

	takes   float64   // cost of a unit of rate of the template under comparison
	dearest []float64 // by number of steps: the highest cost of a unit of rate of any cover from there on
}

// coverItem is a configuration: whole replicas of a template, at the rate that they carry.
type configured struct {
	template int32   // index in the model's templateTable, -1 if there is none
	rate     float64 // requests/s
	cost     float64 // of the devices that the replicas take, at the prices of the builder
}

// coverBuilder makes cover tables at given prices of devices.
type covering struct {
	perDevice []float64 // price of a device of each pool
	counts    []int     // devices of each pool
	slot      bool      // parts of devices count as whole ones
}

// A configuration can only be part of a cover if its template, which costs at least its share of the rate, costs
// no more than a cover of cheap templates does. So the cheap templates are listed first.
const (
	goodTemplate = 1.02 // a template is good up to this factor of the lowest cost per unit of rate
	goodSteps    = 500  // grid of the table that the others are compared with

	nearlyGood = 1.02
)

// listItems lists the configurations of a model that a cover of a rate up to maxRate may hold.
func (w *covering) configurations(s *sieve, most float64) []configured {
	// The cost of a unit of rate through each template.
	takes := make([]float64, s.len())
	least := math.Inf(1)
	for i := range takes {
		for _, x := range s.of(i) {
			takes[i] += w.perDevice[x.pool] * x.per
		}
		least = min(least, takes[i])
	}
	var out []configured

	// The good templates, with all their configurations.
	for i, v := range takes {
		if v <= least*goodTemplate {
			out = w.configure(out, s, i, most, nil)
		}
	}
	good := coversOf(out, most, goodSteps, false)
	// goodCovers.maxUnitCost: from each rate on, the highest cost of a unit of rate in a cover of good templates.
	good.dearest = make([]float64, goodSteps+1)
	good.dearest[goodSteps] = good.cost[goodSteps] / most // at a higher rate the cover costs more
	for j := goodSteps - 1; j >= 0; j-- {
		good.dearest[j] = max(good.dearest[j+1], good.cost[j+1]/(max(float64(j), 1e-9)*good.step))
	}

	// The other templates, with those configurations that cost hardly more than a cover of good ones.
	for i, v := range takes {
		if v > least*goodTemplate {
			good.takes = v
			out = w.configure(out, s, i, most, good)
		}
	}
	return out
}

// appendItems appends the configurations of a template that carry up to maxRate. For each stage g replicas of it
// set the rate, and the other stages have as many as that rate needs. With goodCovers it leaves out
// configurations that cost clearly more than those covers.
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

			// Price the devices that carry the rate.
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

// newCoverTable computes the covers of all rates up to maxRate on a grid of gridSteps steps. The rates of the
// configurations are rounded up to the grid with roundUp, else down.
func coversOf(list []configured, most float64, steps int, up bool) *covers {
	c := &covers{step: most / float64(steps)}

	// The cheapest configuration of each number of steps.
	c.single = slices.Repeat([]configured{{template: -1, cost: math.Inf(1)}}, steps+1)
	for _, x := range list {
		// A replica may carry far more than maxRate, more steps than an int holds.
		at := int(min(x.rate/c.step*(1+1e-12), float64(steps)))
		if up {
			at = int(min(math.Ceil(x.rate/c.step*(1-1e-12)), float64(steps)))
		}
		if at > 0 && x.cost < c.single[at].cost {
			c.single[at] = x
		}
	}
	c.cost, c.first = make([]float64, steps+1), make([]int32, steps+1)
	// The cheapest configuration that alone carries at least so many steps.
	alone := make([]int32, steps+1)
	for j := steps; j > 0; j-- {
		alone[j] = int32(j)
		if j < steps && c.single[alone[j+1]].cost <= c.single[j].cost {
			alone[j] = alone[j+1]
		}
	}
	var useful []int32 // step counts of configurations that covers may hold

	// Dynamic program: costBySteps[j] = min over q of costBySteps[j-q] + cost of the configuration of q steps.
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

// stepsFor returns the number of steps that a rate needs.
func (c *covers) at(rps float64) int {
	return int(min(math.Ceil(rps/c.step*(1-1e-12)), float64(len(c.cost)-1)))
}

// appendCover appends the configurations of the cover of so many steps.
func (c *covers) trace(list []configured, steps int) []configured {
	for steps > 0 {
		q := c.first[steps]
		list = append(list, c.single[q])
		steps -= int(q)
	}
	return list
}
