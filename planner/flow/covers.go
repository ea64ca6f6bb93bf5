package flow

import (
	"math"
	"slices"
	"time"
)

// A deployment serves a set of modules by one model, at some level, on some devices. At a given rate only
// those deployments matter of which no device can be spared. All of them are listed here.

// moduleSet is a set of modules that one model can serve together.
type serving struct {
	model  int
	places uint64 // bits, by module
	parts  []part
	demand float64 // requests per second at rate factor 1
	along  []along
	loss   []float64 // by application: the set's loss of the logarithm of accuracy
	covers []cover   // at the current rate factor, sorted by level
}

// servedModule is a module with the choice that serves it. The module's index counts the modules of all
// applications, indexInApp those of its own application.
type part struct{ place, app, node, choice int }

// pathUse says how many modules of a set lie on a path.
type along struct {
	path, times int
	quick       time.Duration // the least time that they can take together, set by searchDeployments
}

// deployment is a level, and devices that together carry the rate of a module set.
type cover struct {
	level   int
	devices []int32 // by pool
	excess  float64 // a plan with this deployment costs at least lowerBound + reducedCost
}

// path is a path of an application, with the time that its modules may take together.
type path struct {
	places []int
	budget time.Duration
}

// moduleLayout is a problem as modules to serve and module sets to choose from.
type layout struct {
	p     *problem
	apps  []int // by module: its application
	sets  []serving
	paths []path
}

// Larger problems than these are left to the mixed-integer program.
const (
	mostPlaces = 64
	mostCovers = 400_000
)

// moduleLayout returns the modules, paths and module sets of the problem. If there are too many to list, it
// returns nil.
func (p *problem) layout() *layout {
	y := &layout{p: p}

	// Number the modules of all applications.
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

	// Translate the paths to these numbers.
	for a := range p.apps {
		for _, list := range p.apps[a].paths {
			w := path{budget: p.apps[a].budget()}
			for _, i := range list {
				w.places = append(w.places, first[a]+i)
			}
			y.paths = append(y.paths, w)
		}
	}

	// List the module sets of each model: what it has to serve, with every subset of what it may serve.
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

// modulesServedBy returns the modules that model u has to serve, because they have no other choice, and
// those that it may serve. firstModule is the index of each application's first module.
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

// newModuleSet returns the set of some modules for model u, with its demand, accuracy losses and path uses.
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

// listDeployments lists the deployments of every module set at a rate factor. It returns false if there are
// too many.
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

// deploymentLister lists the deployments of one module set.
type lister struct {
	p       *problem
	m       *model
	need    float64 // requests per second
	at      int     // level
	devices []int32
	most    int // the search stops when more deployments are listed
	out     []cover
}

// chooseDevices tries all numbers of devices of the pools from k on that may carry the missing rate, and
// adds the resulting deployments. anyChosen says that some device is chosen already.
func (l *lister) fill(k int, rate float64, some bool) {
	if some && rate <= 0 {
		l.add()
		return
	}
	if k == len(l.devices) || len(l.out) > l.most {
		return
	}

	// If all devices of the remaining pools cannot carry the missing rate, there is nothing to list.
	best, r := l.m.levels[l.at].best, 0.0
	for i := k; i < len(best); i++ {
		r += best[i].rate * float64(l.p.pools[i].count)
	}
	if r < rate {
		return
	}

	// The last pool needs at least as many devices as carry the rest; with any pool, more devices than that
	// can be spared.
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

// addIfMinimal adds the chosen devices as a deployment, unless one of them can be spared or a faster level
// carries the rate with the same devices.
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

// carriesRate returns whether the devices carry the required rate at a level. One device of sparedPool is
// left out of the count; if that is -1, none is.
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
