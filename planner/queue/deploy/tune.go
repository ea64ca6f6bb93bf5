package deploy

import (
	"context"
	"slices"
)

// move changes how many sequences run at once in a pool: one step up or down.
type move struct {
	kind   int   // of device, where models are given
	models []int // that cost the same
	class  int   // whose cap it is, where they are not
	step   int
	// hold keeps the room that a step up makes for the most urgent class: the others
	// are capped at what there was.
	hold bool
}

// moves are those of all that runs at once in a pool.
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

// classMoves are those of classes, but for the most urgent. Coarse ones come first: a
// step from no cap goes to half of what runs at once.
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

// classesOf lists the classes of items, in order.
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

// tune changes the caps of a pool one step at a time while that hurts less, judged
// by one run. All runs meet the same requests. Caps of classes are tried once
// nothing else helps and not much is missing. Where a run was broken off it has no
// figures to go by: then the first caps with which one ends are taken.
func (p *Search) tune(ctx context.Context, x *Pool, totals []int64) (Score, error) {
	best, err := p.trial(ctx, x)
	if err == nil && best.Broken {
		best, err = p.unbroken(ctx, x)
	}
	if err != nil || best.Broken {
		return best, err
	}
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

// unbroken looks for caps with which the run of a pool ends: the same for all that it
// runs, then others of a model on a device alone, those nearest to what it has first.
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
	for i := range list {
		s, err := p.trial(ctx, &list[i])
		if err != nil || !s.Broken {
			*x = list[i]
			return s, err
		}
	}
	return Score{ByItem: p.newScore().ByItem, Broken: true}, nil
}

func abs(n int) int { return max(n, -n) }

// moved is a pool after a move; false where there is none such.
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

// atOnce is the most sequences of a model that run at once in a pool.
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

// shared is a pool with the cap of a class one step up or down; there is none as
// large as what runs at once.
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
