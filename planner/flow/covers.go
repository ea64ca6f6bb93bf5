package flow

import (
	"math"
	"slices"
	"time"
)

// A deployment of a model serves a set of modules with some level and devices.
// At a given rate only those deployments count of which no device can be spared:
// covers of the rate that the set needs. All of them are listed.

// serving is a model with modules that it may serve together.
type serving struct {
	model  int
	places uint64 // bits of places
	parts  []part
	demand float64 // requests per second where every application has its weight
	along  []along
	loss   []float64 // by application: of the logarithm of its accuracy
	covers []cover
}

// part is a module that is served by one of its choices.
type part struct{ place, app, node, choice int }

// along says how many of a serving's modules lie on a path.
type along struct {
	path, times int
	quick       time.Duration // the least they can take, see descent
}

// cover is a level with devices that carry what is needed.
type cover struct {
	level   int
	devices []int32 // by pool
	excess  float64 // reduced cost: by how much a plan with it is above the bound at least
}

// path is a path of an application as places.
type path struct {
	places []int
	budget time.Duration
}

// layout is a problem as places to serve and servings to choose from.
type layout struct {
	p     *problem
	apps  []int // by place: its application
	sets  []serving
	paths []path
}

// The limits of what is listed. Larger problems are left to the solver.
const (
	mostPlaces = 64
	mostCovers = 400_000
)

// layout lists places, paths and servings; nil where they are too many.
func (p *problem) layout() *layout {
	y := &layout{p: p}
	first := make([]int, len(p.apps))
	for a := range p.apps {
		first[a] = len(y.apps)
		for range p.apps[a].nodes {
			y.apps = append(y.apps, a)
		}
	}
	if len(y.apps) > mostPlaces {
		return nil
	}
	for a := range p.apps {
		for _, list := range p.apps[a].paths {
			w := path{budget: p.apps[a].budget()}
			for _, i := range list {
				w.places = append(w.places, first[a]+i)
			}
			y.paths = append(y.paths, w)
		}
	}
	for u := range p.models {
		must, may := p.served(u, first)
		if len(may) > 6 {
			return nil
		}
		for bits := range 1 << len(may) {
			parts := slices.Clone(must)
			for i := range may {
				if bits>>i&1 == 1 {
					parts = append(parts, may[i])
				}
			}
			if len(parts) > 0 {
				y.sets = append(y.sets, y.serving(u, parts))
			}
		}
	}
	return y
}

// served lists the modules that a model has to serve, because nothing else can,
// and those that it may.
func (p *problem) served(u int, first []int) (must, may []part) {
	for a := range p.apps {
		for i := range p.apps[a].nodes {
			n := &p.apps[a].nodes[i]
			for c := range n.of {
				switch one := (part{first[a] + i, a, i, c}); {
				case n.of[c].model != u:
				case len(n.of) == 1:
					must = append(must, one)
				default:
					may = append(may, one)
				}
			}
		}
	}
	return must, may
}

func (y *layout) serving(u int, parts []part) serving {
	s := serving{model: u, parts: parts, loss: make([]float64, len(y.p.apps))}
	for _, t := range parts {
		n := &y.p.apps[t.app].nodes[t.node]
		s.places |= 1 << t.place
		s.demand += n.chance * y.p.apps[t.app].weight
		s.loss[t.app] += n.of[t.choice].loss()
	}
	for w := range y.paths {
		n := 0
		for _, at := range y.paths[w].places {
			n += int(s.places >> at & 1)
		}
		if n > 0 {
			s.along = append(s.along, along{path: w, times: n})
		}
	}
	return s
}

// cover lists the covers of every serving at a common factor of the rates; false
// where they are too many.
func (y *layout) cover(factor float64) bool {
	left := mostCovers
	for i := range y.sets {
		s := &y.sets[i]
		l := lister{p: y.p, m: &y.p.models[s.model], need: factor * s.demand * (1 - 1e-9), devices: make([]int32, len(y.p.pools)), most: left, out: s.covers[:0]}
		for l.at = range l.m.levels {
			l.fill(0, l.need, false)
		}
		if s.covers = l.out; len(l.out) > left {
			return false
		}
		left -= len(l.out)
	}
	return true
}

// lister lists the covers of a model.
type lister struct {
	p       *problem
	m       *model
	need    float64
	at      int // level
	devices []int32
	most    int
	out     []cover
}

// fill chooses devices of the pools from k on for a rate that is left.
func (l *lister) fill(k int, rate float64, some bool) {
	if some && rate <= 0 {
		l.add()
		return
	}
	if k == len(l.devices) || len(l.out) > l.most {
		return
	}
	best, r := l.m.levels[l.at].best, 0.0
	for i := k; i < len(best); i++ {
		r += best[i].rate * float64(l.p.pools[i].count)
	}
	if r < rate {
		return
	}
	r = best[k].rate
	least := 0
	if k == len(l.devices)-1 && r > 0 {
		least = int(math.Ceil(rate/r - 1e-12))
	}
	for n := least; n <= l.p.pools[k].count; n++ {
		if n > 0 && r == 0 {
			break
		}
		l.devices[k] = int32(n)
		l.fill(k+1, rate-float64(n)*r, some || n > 0)
		if float64(n)*r >= rate && n > 0 {
			break
		}
	}
	l.devices[k] = 0
}

// add adds what is chosen, unless a device can be spared or a faster level will
// do with the same.
func (l *lister) add() {
	if l.at > 0 && l.carries(l.at-1, -1) {
		return
	}
	for k, n := range l.devices {
		if n > 0 && l.carries(l.at, k) {
			return
		}
	}
	l.out = append(l.out, cover{level: l.at, devices: slices.Clone(l.devices)})
}

// carries tells whether the devices are enough at a level, without one of a pool.
func (l *lister) carries(at, without int) bool {
	sum, some := 0.0, false
	for k, n := range l.devices {
		r := l.m.levels[at].best[k].rate
		if k == without {
			n--
		}
		if n > 0 && r == 0 {
			return false
		}
		sum, some = sum+float64(n)*r, some || n > 0
	}
	return some && sum >= l.need
}
