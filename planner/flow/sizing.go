package flow

import (
	"fmt"
	"math"
	"slices"
)

// sizing is a search for the cheapest solution that attains what is asked.
//
// A device joins where it helps most (as InferLine's planner does, SoCC '20, section
// 5.2), then devices leave, the dearest first. Where none can leave, batches of the
// solution with one less change until it attains enough, or until no change of one
// batch helps any more.
type sizing struct {
	p       *problem
	asked   float64
	batches bool // batches may change
	shown   func(s *picked, hint bool) (float64, error)
	starts  []*picked
	hints   map[string]float64 // by solution
	full    map[string]float64 // likewise, of all arrivals
	best    *picked
	failed  error
}

const (
	// doubt is by how much a hint may be below what all arrivals show.
	doubt = .005
	// far is so much less than what is asked that other batches are not tried.
	far = .05
	// gain is the least by which the hint of other batches must rise.
	gain = 1e-4
)

func newSizing(p *problem, asked float64, batches bool, shown func(*picked, bool) (float64, error)) *sizing {
	return &sizing{p: p, asked: asked, batches: batches, shown: shown, hints: map[string]float64{}, full: map[string]float64{}}
}

// begin adds a solution to start from.
func (z *sizing) begin(s *picked) {
	if !slices.ContainsFunc(z.starts, func(o *picked) bool { return o.key() == s.key() }) {
		z.starts = append(z.starts, s)
	}
}

func (s *picked) key() string { return fmt.Sprint(s.choice, s.level, s.devices) }

// cheapest is the best of what the starts lead to; nil: none of them to anything.
func (z *sizing) cheapest() (*picked, error) {
	for _, s := range z.starts {
		if s = z.spared(z.joined(s)); s != nil && z.failed == nil {
			z.best = s
		}
	}
	return z.best, z.failed
}

// dear tells whether a solution is no cheaper than the best.
func (z *sizing) dear(s *picked) bool {
	return z.best != nil && z.p.price(s) >= z.p.price(z.best)*(1-1e-9)
}

// hint is what the first arrivals show of a solution.
func (z *sizing) hint(s *picked) float64 {
	has, ok := z.hints[s.key()]
	if !ok && z.failed == nil {
		has, z.failed = z.shown(s, true)
		z.hints[s.key()] = has
	}
	return has
}

// enough tells whether a solution attains what is asked.
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

// joined is a solution that attains enough, with more devices if it must; nil: it would
// be no cheaper than the best.
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

// spared is a solution that attains enough with as few devices as can be; nil: it is no
// cheaper than the best.
func (z *sizing) spared(s *picked) *picked {
	for s != nil && z.failed == nil {
		less := z.resized(s, -1)
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

// most is the solution of a list of which the hint is best; nil: the list is empty.
func (z *sizing) most(list []*picked) *picked {
	best, has := (*picked)(nil), math.Inf(-1)
	for _, s := range list {
		if x := z.hint(s); x > has {
			best, has = s, x
		}
	}
	return best
}

// changed is a solution with other batches that attains enough: batches change one after
// the other as long as the hint rises; nil: that leads to none.
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

// moved is a solution with the next larger or smaller batch of a model that keeps the
// deadlines and carries the rates; nil: there is none. To make room for a larger one
// the other models' batches shrink, that of the model with most to spare first.
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

// stepped is a solution with another level of a model, the next of which its devices
// do something else; nil: none that carries the rates.
func (p *problem) stepped(s *picked, u, by int) *picked {
	if s.level[u] < 0 {
		return nil
	}
	t := *s
	t.level = slices.Clone(s.level)
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

// carries tells whether a model's devices carry its rate.
func (p *problem) carries(s *picked, u int) bool {
	return p.capacity(s, u) >= p.asked(s)[u]*(1-1e-9)
}

// resized are the solutions with a device more, or with one less, of a kind that a model
// is on. They carry the rates, and the dearest device comes first.
func (z *sizing) resized(s *picked, by int) []*picked {
	type change struct {
		s     *picked
		price float64
	}
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
