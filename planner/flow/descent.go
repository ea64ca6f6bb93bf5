package flow

import (
	"math/bits"
	"slices"
	"time"
)

// deploymentSearch looks for plans whose cost is close to the lower bound. Depth first, it serves one
// module after another by a deployment. The reduced costs of the chosen deployments add up, so that only
// deployments with small ones need be tried. Deadlines are kept to the nanosecond.
type descent struct {
	*master
	limit   float64         // plans that cost more are not looked for
	first   bool            // the search ends with the first plan
	steps   int64           // candidates that may still be tried
	order   []int           // modules, those with the fewest candidates first
	tries   [][]try         // candidates by module, those with the least reduced cost first
	left    []int           // free devices, by pool
	slack   []time.Duration // by path: its budget less the least times of its modules, and less the time beyond these of the chosen deployments
	loss    []float64       // accuracy loss of the chosen deployments, by application
	used    []bool          // by model: it has a chosen deployment
	chosen  []try
	best    *picked
	value   float64 // price of bestSolution
	devices int     // number of devices of bestSolution
}

// candidate is a module set with one of its deployments.
type try struct {
	s *serving
	c *cover
}

// searchDeployments looks for the best plan that costs at most maxPrice. done says that there is no better
// one; otherwise the steps ran out.
func (x *master) descend(limit float64, first bool, steps int64) (d *descent, done bool) {
	d = &descent{master: x, limit: limit, first: first, steps: steps, tries: make([][]try, len(x.apps)), loss: make([]float64, len(x.p.apps)), used: make([]bool, len(x.p.models))}

	// Collect the candidates of each module, and the least time that a module can take with any of them.
	quick := make([]time.Duration, len(x.apps))
	for i := range x.sets {
		s := &x.sets[i]
		for j := range s.covers {
			c := &s.covers[j]
			if x.least+c.excess > d.limit+d.tolerance() {
				continue
			}
			most := waiting * x.p.models[s.model].levels[c.level].most
			for _, t := range s.parts {
				if len(d.tries[t.place]) == 0 || most < quick[t.place] {
					quick[t.place] = most
				}
				d.tries[t.place] = append(d.tries[t.place], try{s, c})
			}
		}
	}

	// Try the candidates with the least reduced costs first, and the modules with the fewest candidates
	// first. A module without any candidate means that there is no plan.
	for at := range d.tries {
		if len(d.tries[at]) == 0 {
			return d, true
		}
		d.order = append(d.order, at)
		slices.SortStableFunc(d.tries[at], func(a, b try) int {
			switch {
			case a.c.excess < b.c.excess:
				return -1
			case a.c.excess > b.c.excess:
				return 1
			}
			return 0
		})
	}
	slices.SortStableFunc(d.order, func(a, b int) int { return len(d.tries[a]) - len(d.tries[b]) })

	// Start with all devices, and with what the least times leave of each path's budget.
	for k := range x.p.pools {
		d.left = append(d.left, x.p.pools[k].count)
	}
	for w := range x.paths {
		slack := x.paths[w].budget
		for _, at := range x.paths[w].places {
			slack -= quick[at]
		}
		if d.slack = append(d.slack, slack); slack < 0 {
			return d, true
		}
	}

	// Compute the least time of each set's modules on each path. It is part of pathSlack already.
	for i := range x.sets {
		s := &x.sets[i]
		for j := range s.along {
			w := &s.along[j]
			w.quick = 0
			for _, at := range x.paths[w.path].places {
				if s.places>>at&1 == 1 {
					w.quick += quick[at]
				}
			}
		}
	}
	d.down(0, x.least)
	return d, d.steps > 0
}

// priceTolerance returns the tolerance with which prices are compared.
func (d *descent) tolerance() float64 { return 1e-9 * d.most() }

// serveNextModule serves the next module by each of its candidates in turn, and so on with the modules
// after it. served has the bits of the modules that are served, partialPrice is the lower bound plus the
// reduced costs of the chosen deployments. It returns true if the search is over.
func (d *descent) down(served uint64, value float64) bool {
	if bits.OnesCount64(served) == len(d.apps) {
		return d.found()
	}

	// Find the first module that is not served.
	at := 0
	for _, at = range d.order {
		if served>>at&1 == 0 {
			break
		}
	}

	// Candidates come by rising reduced cost, so the first one that is too dear ends the loop.
	for _, t := range d.tries[at] {
		if d.steps--; d.steps <= 0 {
			return true
		}
		above := value + t.c.excess
		if above > d.limit+d.tolerance() {
			return false
		}
		if d.used[t.s.model] || t.s.places&served != 0 || !d.fits(t) {
			continue
		}
		d.put(t, 1)
		d.chosen = append(d.chosen, t)
		over := d.down(served|t.s.places, above)
		d.chosen = d.chosen[:len(d.chosen)-1]
		d.put(t, -1)
		if over {
			return true
		}
	}
	return false
}

// fits returns whether pools, time budgets and accuracy floors allow a candidate beside those that are
// chosen.
func (d *descent) fits(t try) bool {
	for k, n := range t.c.devices {
		if int(n) > d.left[k] {
			return false
		}
	}
	most := d.p.models[t.s.model].levels[t.c.level].most
	for i := range t.s.along {
		w := &t.s.along[i]
		if d.slack[w.path] < time.Duration(waiting*w.times)*most-w.quick {
			return false
		}
	}
	for a, loss := range t.s.loss {
		if loss > 0 && d.p.apps[a].floor > 0 && d.loss[a]+loss > d.p.apps[a].allowance() {
			return false
		}
	}
	return true
}

// apply books the devices, times and accuracy losses of a candidate. With sign -1 it takes them back.
func (d *descent) put(t try, sign int) {
	for k, n := range t.c.devices {
		d.left[k] -= sign * int(n)
	}
	most := d.p.models[t.s.model].levels[t.c.level].most
	for i := range t.s.along {
		w := &t.s.along[i]
		d.slack[w.path] -= time.Duration(sign) * (time.Duration(waiting*w.times)*most - w.quick)
	}
	for a, loss := range t.s.loss {
		d.loss[a] += float64(sign) * loss
	}
	d.used[t.s.model] = sign > 0
}

// keepIfBest keeps the chosen deployments as the best solution if they are: by the least price, then by the
// fewest devices. It returns true if the search may end.
func (d *descent) found() bool {
	s := d.picked()
	price, n := d.p.price(s), s.used()
	if !d.share && price > d.limit+d.tolerance() {
		return false // the reduced costs sum to less than the true cost
	}
	if d.best == nil || price < d.value-d.tolerance() || price <= d.value+d.tolerance() && n < d.devices {
		d.best, d.value, d.devices = s, price, n
		if !d.share {
			d.limit = price
		}
	}
	return d.first
}

// chosenSolution returns the chosen deployments as a solution of the problem.
func (d *descent) picked() *picked {
	s := &picked{level: make([]int, len(d.p.models))}
	for u := range d.p.models {
		s.level[u] = -1
		s.devices = append(s.devices, make([]int, len(d.p.pools)))
	}
	for a := range d.p.apps {
		s.choice = append(s.choice, make([]int, len(d.p.apps[a].nodes)))
	}
	for _, t := range d.chosen {
		s.level[t.s.model] = t.c.level
		for k, n := range t.c.devices {
			s.devices[t.s.model][k] = int(n)
		}
		for _, at := range t.s.parts {
			s.choice[at.app][at.node] = at.choice
		}
	}
	return s
}
