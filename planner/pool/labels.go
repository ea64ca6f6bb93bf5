package pool

import (
	"cmp"
	"math"
	"slices"
	"time"

	"inferplan/planner/stages"
)

// label is the front part of a template.
type label struct {
	cost    float64
	spent   time.Duration // with the transfer that leaves it
	cut     int32
	arc     int32
	link    int32 // by which it leaves
	earlier int32 // label of the stage before; -1 for none
}

// closer is how much nearer to the bound than the limit exact looks first, and
// wider by how much the next look is.
const (
	closer = 1e-4
	wider  = 4
)

// exact finds the cheapest template that costs less than limit; nil tells that
// there is none. It looks close to the bound first, since what lies there
// is found with little work, and further away only where it finds none. It
// gives up with false after so many steps.
func (q *pricer) exact(limit float64, steps int) (t *stages.Template, ok bool) {
	if math.IsInf(limit, 1) {
		return q.cheapestTemplate(limit, &steps)
	}
	for step := closer * limit; ; step *= wider {
		near := min(q.least()+step, limit)
		if t, ok := q.cheapestTemplate(near, &steps); !ok || t != nil || near >= limit {
			return t, ok
		}
	}
}

// completion is a last stage.
type completion struct {
	cost  float64
	spent time.Duration
	arc   int32
}

// completions lists, per class, link and cut, the last stages worth taking: by
// falling cost, and so by rising time.
func (q *pricer) completions() [][][]completion {
	out := make([][][]completion, len(q.classes)*len(q.links))
	for class := range q.classes {
		for _, l := range q.link[class] {
			at := class*len(q.links) + l
			if out[at] != nil {
				continue
			}
			out[at] = make([][]completion, q.n)
			for j := 1; j < q.n; j++ {
				var front []completion
				for ai := range q.arcs {
					a := &q.arcs[ai]
					infer := a.Times.Of(j, q.n)
					x := completion{max(a.perNS*float64(a.Run(j, q.n)), a.perWire*q.wire[l][j]), infer, int32(ai)}
					if q.link[class][a.class] != l || !q.fits(a, q.Weights[q.n]-q.Weights[j]+a.Memory) ||
						slices.ContainsFunc(front, func(y completion) bool { return y.cost <= x.cost && y.spent <= x.spent }) {
						continue
					}
					front = slices.DeleteFunc(front, func(y completion) bool { return y.cost >= x.cost && y.spent >= x.spent })
					front = append(front, x)
				}
				slices.SortFunc(front, func(x, y completion) int { return cmp.Compare(x.cost, y.cost) })
				out[at][j] = front
			}
		}
	}
	return out
}

// labelling is a search for the cheapest template below a limit. It extends labels
// stage by stage, and leaves out those that the grids, or a label that is as
// cheap and as early at the same cut, tell to be of no use.
type labelling struct {
	*pricer
	limit float64 // falls with what is found
	steps *int
	ends  [][][]completion
	all   []label // of every stage so far
	best  []label // the cheapest template's last labels
}

// cheapestTemplate finds the cheapest template that costs less than limit; nil tells that
// there is none.
func (q *pricer) cheapestTemplate(limit float64, steps *int) (t *stages.Template, ok bool) {
	most := q.Problem.MaxPartitions
	l := &labelling{pricer: q, limit: limit, steps: steps, ends: q.completions()}
	if !l.extend(-1, label{arc: -1, link: -1, earlier: -1}, most) {
		return nil, false
	}
	begin := 0
	for s := most - 1; s >= 2; s-- {
		l.pareto(begin)
		end := len(l.all)
		for i := begin; i < end; i++ {
			if !l.extend(int32(i), l.all[i], s) {
				return nil, false
			}
		}
		begin = end
	}
	if len(l.best) == 0 {
		return nil, true
	}
	return q.template(l.path()), true
}

// extend puts the next stage behind a label, with s stages left. It is false where
// the steps do not suffice.
func (l *labelling) extend(from int32, x label, s int) bool {
	for ai := range l.arcs {
		if !l.along(from, x, ai, s) {
			return false
		}
	}
	return true
}

// along is extend on one arc, to every cut.
func (l *labelling) along(from int32, x label, ai, s int) bool {
	a, first := &l.arcs[ai], int(x.cut)
	wireIn := 0.0
	if from >= 0 {
		if l.link[l.arcs[x.arc].class][a.class] != int(x.link) {
			return true
		}
		wireIn = a.perWire * l.wire[x.link][first]
	}
	if l.short(s, ai, first, x.cost, x.spent) {
		return true
	}
	last := first + 1
	if s == 1 {
		last = l.n
	}
	for ; last <= l.n; last++ {
		if *l.steps--; *l.steps < 0 {
			return false
		}
		infer := a.Times.Of(first, last)
		at, busy := x.spent+infer, max(a.perNS*float64(a.Run(first, last)), wireIn)
		if at > l.Budget || x.cost+busy >= l.limit {
			if a.Rises() {
				break
			}
			continue
		}
		if last < l.n && (l.Model.CutBytes[last-1] < 0 || at+l.Rest[last] > l.Budget) {
			continue
		}
		if !l.fits(a, l.Weights[last]-l.Weights[first]+a.Memory) {
			break
		}
		if last == l.n {
			l.limit = x.cost + busy
			l.best = append(l.best[:0], label{l.limit, at, int32(last), int32(ai), -1, from})
			continue
		}
		for _, link := range a.leaves {
			y := label{x.cost + max(busy, a.perWire*l.wire[link][last]), at + l.xfer[link][last], int32(last), int32(ai), int32(link), from}
			if s == 2 {
				l.complete(y, a.class*len(l.links)+link)
				continue
			}
			if y.spent+l.Rest[last] <= l.Budget && y.cost < l.limit && !l.short(s-1, -1, last, y.cost, y.spent) {
				l.all = append(l.all, y)
			}
		}
	}
	return true
}

// complete puts the cheapest last stage behind a label that leaves time for it.
func (l *labelling) complete(x label, at int) {
	for _, end := range l.ends[at][x.cut] {
		if x.cost+end.cost >= l.limit {
			return
		}
		if x.spent+end.spent <= l.Budget {
			l.limit = x.cost + end.cost
			l.best = append(l.best[:0], x, label{l.limit, x.spent + end.spent, int32(l.n), end.arc, -1, -1})
			return
		}
	}
}

// short tells whether what has cost and taken so much at a cut, with s stages left
// and the next one on an arc (-1: any), cannot end below the limit.
func (l *labelling) short(s, arc, cut int, cost float64, spent time.Duration) bool {
	left := float64(l.Budget - spent)
	for i := range l.grids {
		g := &l.grids[i]
		to := g.to[s]
		if arc >= 0 {
			to = g.by[s][arc]
		}
		if cost+to[cut]-g.mu*left >= l.limit {
			return true
		}
	}
	return false
}

// pareto keeps, of the labels from begin on, the front of cost and latency per cut
// and link.
func (l *labelling) pareto(begin int) {
	layer := l.all[begin:]
	slices.SortFunc(layer, func(x, y label) int {
		return cmp.Or(cmp.Compare(x.cut, y.cut), cmp.Compare(x.link, y.link), cmp.Compare(l.arcs[x.arc].class, l.arcs[y.arc].class),
			cmp.Compare(x.spent, y.spent), cmp.Compare(x.cost, y.cost), cmp.Compare(x.arc, y.arc), cmp.Compare(x.earlier, y.earlier))
	})
	kept := layer[:0]
	for _, x := range layer {
		if n := len(kept); n > 0 && kept[n-1].cut == x.cut && kept[n-1].link == x.link &&
			l.arcs[kept[n-1].arc].class == l.arcs[x.arc].class && kept[n-1].cost <= x.cost {
			continue
		}
		kept = append(kept, x)
	}
	l.all = l.all[:begin+len(kept)]
}

// path is the stages of the cheapest template.
func (l *labelling) path() []stages.Stage {
	var path []stages.Stage
	last := int32(l.n)
	add := func(x label, first int32) {
		a := &l.arcs[x.arc]
		path = append(path, stages.Stage{First: int(first), Last: int(last), Pool: a.Pool, Share: a.Share})
		last = first
	}
	if len(l.best) > 1 {
		add(l.best[1], l.best[0].cut)
	}
	x := l.best[0]
	for ; x.earlier >= 0; x = l.all[x.earlier] {
		add(x, l.all[x.earlier].cut)
	}
	add(x, 0)
	slices.Reverse(path)
	return path
}
