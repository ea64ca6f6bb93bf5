package flow

import (
	"math/bits"
	"slices"
	"time"
)

// descent looks for plans whose covers exceed the bound by little: every place is
// served by a cover, in turn. What the covers exceed it by adds up, so that few
// of them are worth a try. Deadlines are kept to the nanosecond.
type descent struct {
	*master
	limit   float64 // no plan above it
	first   bool    // the first plan will do
	steps   int64   // still allowed
	order   []int   // places, those with the fewest covers first
	tries   [][]try // by place
	left    []int
	slack   []time.Duration
	loss    []float64
	used    []bool // by model
	chosen  []try
	best    *picked
	value   float64 // price of the best
	devices int     // of the best
}

// try is a cover of a serving.
type try struct {
	s *serving
	c *cover
}

// descend looks for the best plan up to a limit. done says that there is no better one.
func (x *master) descend(limit float64, first bool, steps int64) (d *descent, done bool) {
	d = &descent{master: x, limit: limit, first: first, steps: steps, tries: make([][]try, len(x.apps)), loss: make([]float64, len(x.p.apps)), used: make([]bool, len(x.p.models))}
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

// tolerance of comparisons.
func (d *descent) tolerance() float64 { return 1e-9 * d.most() }

// down serves the next place. It tells whether the search is over.
func (d *descent) down(served uint64, value float64) bool {
	if bits.OnesCount64(served) == len(d.apps) {
		return d.found()
	}
	at := 0
	for _, at = range d.order {
		if served>>at&1 == 0 {
			break
		}
	}
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

// fits tells whether pools, deadlines and floors allow a cover beside those chosen.
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

// put takes a cover in, or out again.
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

// found keeps what is chosen if it is the best so far: the least price, then the
// fewest devices.
func (d *descent) found() bool {
	s := d.picked()
	price, n := d.p.price(s), s.used()
	if !d.share && price > d.limit+d.tolerance() {
		return false // what its covers exceed the bound by is less than what it does
	}
	if d.best == nil || price < d.value-d.tolerance() || price <= d.value+d.tolerance() && n < d.devices {
		d.best, d.value, d.devices = s, price, n
		if !d.share {
			d.limit = price
		}
	}
	return d.first
}

// picked is what is chosen as a solution of the problem.
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
