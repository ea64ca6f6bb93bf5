package flow

import (
	"fmt"
	"math"
	"slices"
)

// sizeSearch looks for the cheapest solution that attains a requested share in simulation.
//
// First, devices are added one by one, where each helps most (as in InferLine's planner, SoCC '20, section
// 5.2). Then devices are removed, the dearest first. If none can be removed, batch sizes of the solution
// with one device less change, until it attains enough or no change of one batch size helps.
type sizing struct {
	p       *problem
	asked   float64                                     // share of the requests, from 0 to 1
	batches bool                                        // batch sizes may change
	shown   func(s *picked, hint bool) (float64, error) // returns the attainment; with hint, of the first arrivals only
	starts  []*picked
	hints   map[string]float64 // by mapKey of the solution
	full    map[string]float64 // by mapKey, of all arrivals
	best    *picked
	failed  error // ends the search
}

const (
	// maxHintError is how far a hint may be below the attainment of all arrivals.
	doubt = .005
	// maxBatchShortfall: if a hint falls short by more than this, other batch sizes are not tried.
	far = .05
	// minHintGain is the least rise of the hint for which a batch size changes.
	gain = 1e-4
)

// newSizeSearch returns a search without a solution to start from.
func newSizing(p *problem, asked float64, batches bool, shown func(*picked, bool) (float64, error)) *sizing {
	return &sizing{p: p, asked: asked, batches: batches, shown: shown, hints: map[string]float64{}, full: map[string]float64{}}
}

// addStart adds a solution to start from, unless it is there.
func (z *sizing) begin(s *picked) {
	if !slices.ContainsFunc(z.starts, func(o *picked) bool { return o.key() == s.key() }) {
		z.starts = append(z.starts, s)
	}
}

// mapKey returns a text that two solutions share only if they are equal.
func (s *picked) key() string { return fmt.Sprint(s.choice, s.level, s.devices) }

// cheapest returns the best solution that the starts lead to. If none of them leads to one, it returns nil.
func (z *sizing) cheapest() (*picked, error) {
	for _, s := range z.starts {
		if s = z.spared(z.joined(s)); s != nil && z.failed == nil {
			z.best = s
		}
	}
	return z.best, z.failed
}

// isNoCheaper returns whether a solution costs at least as much as the best one.
func (z *sizing) dear(s *picked) bool {
	return z.best != nil && z.p.price(s) >= z.p.price(z.best)*(1-1e-9)
}

// hintAttainment returns the attainment of a solution over the first arrivals.
func (z *sizing) hint(s *picked) float64 {
	has, ok := z.hints[s.key()]
	if !ok && z.failed == nil {
		has, z.failed = z.shown(s, true)
		z.hints[s.key()] = has
	}
	return has
}

// attainsEnough returns whether a solution attains the requested share over all arrivals. It asks the hint
// first, which costs less.
func (z *sizing) enough(s *picked) bool {
	if z.hint(s) < z.asked-doubt || z.failed != nil {
		return false
	}
	has, ok := z.full[s.key()]
	if !ok {
		has, z.failed = z.shown(s, false)
		z.full[s.key()] = has
	}
	return z.failed == nil && has >= z.asked
}

// growUntilEnough adds devices or changes batch sizes until a solution attains enough, and returns it. It
// returns nil once the solution would be no cheaper than the best.
func (z *sizing) joined(s *picked) *picked {
	for s != nil && z.failed == nil {
		if z.dear(s) && len(z.resized(s, -1)) == 0 {
			return nil
		}
		if z.enough(s) {
			return s
		}
		if z.dear(s) {
			return nil
		}
		if other := z.changed(s); other != nil {
			return other
		}
		s = z.most(z.resized(s, 1))
	}
	return nil
}

// shrinkWhileEnough removes devices as long as the solution attains enough. It returns nil if the result is
// no cheaper than the best solution.
func (z *sizing) spared(s *picked) *picked {
	for s != nil && z.failed == nil {
		less := z.resized(s, -1)

		// Remove the dearest device that can be spared. If there is none, remove the device whose loss
		// hurts least and try other batch sizes.
		next := (*picked)(nil)
		if i := slices.IndexFunc(less, z.enough); i >= 0 {
			next = less[i]
		} else if other := z.most(less); other != nil {
			next = z.changed(other)
		}
		if next == nil {
			break
		}
		s = next
	}
	if s == nil || z.dear(s) {
		return nil
	}
	return s
}

// bestByHint returns the solution of a list with the highest hint. If the list is empty, it returns nil.
func (z *sizing) most(list []*picked) *picked {
	best, has := (*picked)(nil), math.Inf(-1)
	for _, s := range list {
		if x := z.hint(s); x > has {
			best, has = s, x
		}
	}
	return best
}

// rebatchUntilEnough changes one batch size after another as long as the hint rises. It returns the first
// solution that attains enough. If it finds none, it returns nil.
func (z *sizing) changed(s *picked) *picked {
	for rises := z.batches && z.hint(s) >= z.asked-far; rises && z.failed == nil; {
		rises = false
		for u := range z.p.models {
			for _, by := range []int{1, -1} {
				for t := z.p.moved(s, u, by); t != nil && z.hint(t) > z.hint(s)+gain; t = z.p.moved(s, u, by) {
					s, rises = t, true
				}
			}
		}
		if rises && z.enough(s) {
			return s
		}
	}
	return nil
}

// withNeighbourBatch returns the solution with the next larger (delta 1) or smaller (delta -1) batch size
// of model u that keeps the deadlines and carries the rates. To make time for a larger one, the batches of
// the other models shrink, that of the model with the most spare capacity first. If there is no such
// solution, it returns nil.
func (p *problem) moved(s *picked, u, by int) *picked {
	t := p.stepped(s, u, by)
	for t != nil && !p.keeps(t) {
		next, most := (*picked)(nil), 0.
		for v, rate := range p.asked(s) {
			if v == u || rate == 0 {
				continue
			}
			if o := p.stepped(t, v, -1); o != nil && p.capacity(o, v)/rate > most {
				next, most = o, p.capacity(o, v)/rate
			}
		}
		t = next
	}
	return t
}

// withNextLevel returns the solution with the next level of model u, up or down by delta, at which its
// devices run other templates. If that level does not exist or does not carry the rate, it returns nil.
func (p *problem) stepped(s *picked, u, by int) *picked {
	if s.level[u] < 0 {
		return nil
	}
	t := *s
	t.level = slices.Clone(s.level)

	// Skip levels that change nothing on the pools where the model has devices.
	was := p.models[u].levels[s.level[u]].best
	for t.level[u] += by; t.level[u] >= 0 && t.level[u] < len(p.models[u].levels); t.level[u] += by {
		now := p.models[u].levels[t.level[u]].best
		same := true
		for k, n := range s.devices[u] {
			if n > 0 && now[k].rate == 0 {
				return nil
			}
			same = same && (n == 0 || now[k] == was[k])
		}
		if !same {
			if p.carries(&t, u) {
				return &t
			}
			return nil
		}
	}
	return nil
}

// carriesRate returns whether the devices of model u carry its rate.
func (p *problem) carries(s *picked, u int) bool {
	return p.capacity(s, u) >= p.asked(s)[u]*(1-1e-9)
}

// neighbours returns the solutions with one device more (delta 1) or less (delta -1) of a kind that a model
// is on, as far as there are devices and the rates are carried. The dearest device comes first.
func (z *sizing) resized(s *picked, by int) []*picked {
	type change struct {
		s     *picked
		price float64
	}

	// Change one number of devices at a time, and keep what is possible.
	var list []change
	for u := range s.devices {
		for k, n := range s.devices[u] {
			if n == 0 {
				continue
			}
			t, used := *s, 0
			t.devices = slices.Clone(s.devices)
			t.devices[u] = slices.Clone(s.devices[u])
			t.devices[u][k] += by
			for v := range t.devices {
				used += t.devices[v][k]
			}
			if used <= z.p.pools[k].count && z.p.carries(&t, u) {
				list = append(list, change{&t, z.p.pools[k].price})
			}
		}
	}

	// Sort by the price of the device, the dearest first.
	slices.SortStableFunc(list, func(a, b change) int {
		switch {
		case a.price > b.price:
			return -1
		case a.price < b.price:
			return 1
		}
		return 0
	})
	var out []*picked
	for _, c := range list {
		out = append(out, c.s)
	}
	return out
}
