package deploy

import (
	"context"
	"slices"
)

// capMove changes a cap of a pool by one step, that of some models or that of a class.
type move struct {
	kind   int   // kind of server, for a cap of models
	models []int // with the same costs. If there are none, the move is one of a class.
	class  int   // class of the problem, for a cap of a class
	step   int
	// holdOthers leaves what a step up gains to the most urgent class: the other classes are capped at the
	// previous value.
	hold bool
}

// capMoves returns the moves of the models' caps in a pool.
func (p *Problem) moves(x *Pool) []move {
	var out []move
	for k, n := range x.Counts {
		if n == 0 {
			continue
		}
		for _, group := range p.alike(x, k) {
			out = append(out, move{kind: k, models: group, step: -1}, move{kind: k, models: group, step: 1})
		}
	}
	return out
}

// classMoves returns the moves of classes other than the most urgent. Moves with large effects come first:
// a step from no cap goes to half of the concurrent sequences.
func (p *Problem) classMoves(x *Pool) []move {
	_, rest := p.urgent(x.Items)
	var out []move
	for _, m := range p.moves(x) {
		if m.step > 0 && len(rest) > 0 {
			m.hold = true
			out = append(out, m)
		}
	}
	for _, c := range p.classesOf(rest) {
		out = append(out, move{class: c, step: -1}, move{class: c, step: 1})
	}
	return out
}

// classesOf returns the classes of items, in order.
func (p *Problem) classesOf(items []int) []int {
	var out []int
	for _, i := range items {
		if c := p.Items[i].Class; !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	slices.Sort(out)
	return out
}

// tuneCaps changes the caps of a pool by one step at a time as long as the penalty falls, judged by one run
// with the same requests each time. It returns the last score. Caps of classes are tried once nothing else
// helps and the penalty is small. A run that was broken off has no penalty to compare: then the first caps
// are taken with which a run ends.
func (p *Search) tune(ctx context.Context, x *Pool, totals []int64) (Score, error) {
	best, err := p.trial(ctx, x)
	if err == nil && best.Broken {
		best, err = p.unbroken(ctx, x)
	}
	if err != nil || best.Broken {
		return best, err
	}

	// tryMoves applies every move that lowers the penalty.
	try := func(list []move) (better bool, err error) {
		for _, m := range list {
			y, ok := p.moved(x, m)
			if !ok || p.pain(&best, totals) == 0 {
				continue
			}
			s, err := p.trial(ctx, &y)
			if err != nil {
				return better, err
			}
			if p.pain(&s, totals) < p.pain(&best, totals)*(1-1e-9) {
				*x, best, better = y, s, true
			}
		}
		return better, nil
	}
	for better := true; better; {
		better, err = try(p.moves(x))
		if err == nil && !better && p.byClass && p.pain(&best, totals) < far {
			better, err = try(p.classMoves(x))
		}
		if err != nil {
			return best, err
		}
	}
	return best, nil
}

// findUnbrokenCaps looks for caps with which the run of a pool ends. It tries the same cap for everything
// that the pool runs, then other caps of one model on one kind. Caps close to the present ones come first.
func (p *Search) unbroken(ctx context.Context, x *Pool) (Score, error) {
	var list []Pool
	add := func(groups []move) {
		now := slices.Index(p.Caps, x.Caps[groups[0].kind][groups[0].models[0]])
		order := slices.Clone(p.Caps)
		slices.SortStableFunc(order, func(a, b int) int { return abs(slices.Index(p.Caps, a)-now) - abs(slices.Index(p.Caps, b)-now) })
		for _, c := range order {
			y := x.clone()
			for _, g := range groups {
				for _, m := range g.models {
					of := p.capsOf(m, g.kind)
					after, _ := slices.BinarySearch(of, c+1)
					y.Caps[g.kind][m] = of[max(after-1, 0)]
				}
			}
			list = append(list, y)
		}
	}
	groups := slices.DeleteFunc(p.moves(x), func(m move) bool { return m.step < 0 })
	if add(groups); len(groups) > 1 {
		for i := range groups {
			add(groups[i : i+1])
		}
	}

	// Take the first that ends.
	for i := range list {
		s, err := p.trial(ctx, &list[i])
		if err != nil || !s.Broken {
			*x = list[i]
			return s, err
		}
	}
	return Score{ByItem: p.newScore().ByItem, Broken: true}, nil
}

// abs returns the absolute value.
func abs(n int) int { return max(n, -n) }

// applyMove returns the pool after a move. If there is no further step, it returns false.
func (p *Problem) moved(x *Pool, m move) (Pool, bool) {
	if m.models == nil {
		return p.shared(x, m.class, m.step)
	}
	caps := p.capsOf(m.models[0], m.kind)
	was := x.Caps[m.kind][m.models[0]]
	at := slices.Index(caps, was) + m.step
	if at < 0 || at >= len(caps) {
		return Pool{}, false
	}
	y := x.clone()
	for _, model := range m.models {
		y.Caps[m.kind][model] = caps[at]
	}

	// A class cap that limits nothing any more goes.
	if m.hold {
		_, rest := p.urgent(x.Items)
		for _, c := range p.classesOf(rest) {
			if y.Of[c] == 0 {
				y.Of[c] = was
			}
		}
	}
	most := p.atOnce(&y)
	for c := range y.Of {
		if y.Of[c] >= most {
			y.Of[c] = 0
		}
	}
	return y, true
}

// maxConcurrent returns the largest cap of a model on the pool's instances.
func (p *Problem) atOnce(x *Pool) int {
	most := 0
	for k, n := range x.Counts {
		for _, m := range p.ModelsOf(x.Items) {
			if n > 0 {
				most = max(most, x.Caps[k][m])
			}
		}
	}
	return most
}

// withClassCap returns the pool with the cap of a class changed by one step. A cap that would reach
// maxConcurrent becomes no cap. If there is no further step, it returns false.
func (p *Problem) shared(x *Pool, class, step int) (Pool, bool) {
	most := p.atOnce(x)
	at := slices.Index(p.Caps, x.Of[class]) + step
	switch {
	case x.Of[class] == 0 && step > 0:
		return Pool{}, false
	case x.Of[class] == 0:
		after, _ := slices.BinarySearch(p.Caps, most/2+1)
		at = after - 1
	}
	if at < 0 {
		return Pool{}, false
	}
	y := x.clone()
	if y.Of[class] = 0; at < len(p.Caps) && p.Caps[at] < most {
		y.Of[class] = p.Caps[at]
	}
	return y, true
}
