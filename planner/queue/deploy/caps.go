package deploy

import (
	"context"
	"slices"
)

// capMove changes a cap of a pool by one step, that of some models or that of a class.
type capMove struct {
	kind   int   // kind of server, for a cap of models
	models []int // with the same costs. If there are none, the move is one of a class.
	class  int   // class of the problem, for a cap of a class
	step   int
	// holdOthers leaves what a step up gains to the most urgent class: the other classes are capped at the
	// previous value.
	holdOthers bool
}

// capMoves returns the moves of the models' caps (limits on the sequences that run at once) in a pool of
// instances: one step up or down, for each kind of servers and group of models with equal costs there.
func (p *Problem) capMoves(x *Pool) []capMove {
	var moves []capMove
	for k, n := range x.Counts {
		if n == 0 {
			continue
		}
		for _, group := range p.identicalModels(x, k) {
			moves = append(moves, capMove{kind: k, models: group, step: -1}, capMove{kind: k, models: group, step: 1})
		}
	}
	return moves
}

// classMoves returns the moves that hold back classes other than the most urgent one, so that this finds room:
// more sequences of models with the others held where they are, or other limits (caps) of single classes. Moves
// with large effects come first: a step from no cap goes to half of the concurrent sequences.
func (p *Problem) classMoves(x *Pool) []capMove {
	_, otherItems := p.splitUrgentClass(x.Items)
	var moves []capMove
	for _, m := range p.capMoves(x) {
		if m.step > 0 && len(otherItems) > 0 {
			m.holdOthers = true
			moves = append(moves, m)
		}
	}
	for _, c := range p.classesOf(otherItems) {
		moves = append(moves, capMove{class: c, step: -1}, capMove{class: c, step: 1})
	}
	return moves
}

// classesOf returns the classes of items, in order.
func (p *Problem) classesOf(items []int) []int {
	var classes []int
	for _, i := range items {
		if c := p.Items[i].Class; !slices.Contains(classes, c) {
			classes = append(classes, c)
		}
	}
	slices.Sort(classes)
	return classes
}

// tuneCaps changes the caps of a pool (limits on the sequences that run at once) by one step at a time as long
// as the penalty falls (late requests by how many are allowed), judged by one run with the same requests each
// time. It returns the last score. Caps of classes are tried once nothing else helps and the penalty is small.
// A run that was broken off, for too many late requests, has no penalty to compare: then the first caps are
// taken with which a run ends.
func (p *Search) tuneCaps(ctx context.Context, x *Pool, requestCounts []int64) (Score, error) {
	bestScore, err := p.Trials.trialPool(ctx, x)
	if err == nil && bestScore.Broken {
		bestScore, err = p.findUnbrokenCaps(ctx, x)
	}
	if err != nil || bestScore.Broken {
		return bestScore, err
	}

	// tryMoves applies every move that lowers the penalty.
	tryMoves := func(list []capMove) (improved bool, err error) {
		for _, m := range list {
			y, ok := p.Problem.applyMove(x, m)
			if !ok || p.Problem.missPenalty(&bestScore, requestCounts) == 0 {
				continue
			}
			s, err := p.Trials.trialPool(ctx, &y)
			if err != nil {
				return improved, err
			}
			if p.Problem.missPenalty(&s, requestCounts) < p.Problem.missPenalty(&bestScore, requestCounts)*(1-1e-9) {
				*x, bestScore, improved = y, s, true
			}
		}
		return improved, nil
	}
	for improved := true; improved; {
		improved, err = tryMoves(p.Problem.capMoves(x))
		if err == nil && !improved && p.useClassCaps && p.Problem.missPenalty(&bestScore, requestCounts) < highPenalty {
			improved, err = tryMoves(p.Problem.classMoves(x))
		}
		if err != nil {
			return bestScore, err
		}
	}
	return bestScore, nil
}

// findUnbrokenCaps looks for caps (limits on the sequences that run at once) with which the run of a pool ends,
// and is not broken off for too many late requests. It tries the same cap for everything that the pool runs,
// then other caps of one model on one kind. Caps close to the present ones come first.
func (p *Search) findUnbrokenCaps(ctx context.Context, x *Pool) (Score, error) {
	var list []Pool
	add := func(groups []capMove) {
		current := slices.Index(p.Problem.Caps, x.Caps[groups[0].kind][groups[0].models[0]])
		nearestCaps := slices.Clone(p.Problem.Caps)
		slices.SortStableFunc(nearestCaps, func(a, b int) int {
			return abs(slices.Index(p.Problem.Caps, a)-current) - abs(slices.Index(p.Problem.Caps, b)-current)
		})
		for _, c := range nearestCaps {
			y := x.clone()
			for _, g := range groups {
				for _, m := range g.models {
					allowed := p.Problem.capsOf(m, g.kind)
					next, _ := slices.BinarySearch(allowed, c+1)
					y.Caps[g.kind][m] = allowed[max(next-1, 0)]
				}
			}
			list = append(list, y)
		}
	}
	groups := slices.DeleteFunc(p.Problem.capMoves(x), func(m capMove) bool { return m.step < 0 })
	if add(groups); len(groups) > 1 {
		for i := range groups {
			add(groups[i : i+1])
		}
	}

	// Take the first that ends.
	for i := range list {
		s, err := p.Trials.trialPool(ctx, &list[i])
		if err != nil || !s.Broken {
			*x = list[i]
			return s, err
		}
	}
	return Score{ByItem: p.Problem.newScore().ByItem, Broken: true}, nil
}

// abs returns the absolute value.
func abs(n int) int { return max(n, -n) }

// applyMove returns the pool after a move of one cap (a limit on the sequences that run at once) to the next
// value of the list. If there is no further step, it returns false.
func (p *Problem) applyMove(x *Pool, m capMove) (Pool, bool) {
	if m.models == nil {
		return p.withClassCap(x, m.class, m.step)
	}
	caps := p.capsOf(m.models[0], m.kind)
	currentCap := x.Caps[m.kind][m.models[0]]
	index := slices.Index(caps, currentCap) + m.step
	if index < 0 || index >= len(caps) {
		return Pool{}, false
	}
	y := x.clone()
	for _, model := range m.models {
		y.Caps[m.kind][model] = caps[index]
	}

	// With holdOthers the classes that are less urgent keep the limit that the models had.
	if m.holdOthers {
		_, otherItems := p.splitUrgentClass(x.Items)
		for _, c := range p.classesOf(otherItems) {
			if y.ClassCaps[c] == 0 {
				y.ClassCaps[c] = currentCap
			}
		}
	}
	// A class cap that limits nothing any more goes.
	maxCap := y.MaxConcurrent(p.ModelsOf(y.Items)...)
	for c := range y.ClassCaps {
		if y.ClassCaps[c] >= maxCap {
			y.ClassCaps[c] = 0
		}
	}
	return y, true
}

// MaxConcurrent returns how many sequences of some models run at once at most on an instance of the pool: their
// largest cap on a kind of which it has instances, at least 1.
func (x *Pool) MaxConcurrent(models ...int) int {
	maxCap := 1
	for k, n := range x.Counts {
		for _, m := range models {
			if n > 0 {
				maxCap = max(maxCap, x.Caps[k][m])
			}
		}
	}
	return maxCap
}

// withClassCap returns the pool with the cap of a class (a limit on its sequences on an instance) changed by
// one step. A cap that would reach MaxConcurrent limits nothing, and becomes no cap (0). If there is no further
// step, it returns false.
func (p *Problem) withClassCap(x *Pool, class, step int) (Pool, bool) {
	maxCap := x.MaxConcurrent(p.ModelsOf(x.Items)...)
	index := slices.Index(p.Caps, x.ClassCaps[class]) + step
	switch {
	case x.ClassCaps[class] == 0 && step > 0:
		return Pool{}, false
	case x.ClassCaps[class] == 0:
		next, _ := slices.BinarySearch(p.Caps, maxCap/2+1)
		index = next - 1
	}
	if index < 0 {
		return Pool{}, false
	}
	y := x.clone()
	if y.ClassCaps[class] = 0; index < len(p.Caps) && p.Caps[index] < maxCap {
		y.ClassCaps[class] = p.Caps[index]
	}
	return y, true
}
