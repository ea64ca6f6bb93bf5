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

// capMoves returns the changes that a search may make to the models' caps in a pool (a cap limits the sequences that run at once on an
// instance): one step up or down in the problem's list of caps, for each kind of servers of which the pool has instances and each group
// of models that cost the same there, which share a cap.
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

// classMoves returns the changes of caps that hold back all classes but the most urgent one, so that its requests wait less: a higher cap
// of models while the other classes are limited to the previous one, or another cap of a single class. The search tries them once
// capMoves no longer helps.
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

// tuneCaps improves the caps of pool x (limits on the sequences that run at once) in place, and returns the score (the outcomes of one
// simulated run) with the caps that it leaves. It changes one cap by one step, simulates a run with the same requests, and takes the change
// if the penalty falls, until no change lowers it. The penalty of missPenalty is the number of late requests, each divided by how many
// its judge group (classes judged together) may have late of its requestCounts. Caps of classes are tried once nothing else helps and the
// penalty is small (below highPenalty).
//
// If the run with the caps of x is broken off, because too many requests are late, there is no penalty to lower. tuneCaps then begins with
// the nearest caps with which a run ends. If there are none, it returns a broken score.
func (p *Search) tuneCaps(ctx context.Context, x *Pool, requestCounts []int64) (Score, error) {
	bestScore, err := p.Trials.trialPool(ctx, x)
	if err == nil && bestScore.Broken {
		bestScore, err = p.findUnbrokenCaps(ctx, x)
	}
	if err != nil || bestScore.Broken {
		return bestScore, err
	}

	// tryMoves applies every move of a list that lowers the penalty, each to the caps that the moves before it left in x.
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

// findUnbrokenCaps sets the caps of pool x (limits on the sequences that run at once) to the first ones with which its run ends, instead
// of being broken off for too many late requests, and returns the score of that run. It tries one cap for everything that the pool runs,
// then another cap for a single group of models on one kind; in both, those closest to the present cap first. If no run ends, it returns
// a broken score and leaves x as it is. If a simulation fails, x has the caps of that simulation.
func (p *Search) findUnbrokenCaps(ctx context.Context, x *Pool) (Score, error) {
	// capMoves has one move up and one down for each group of models on a kind. Those up stand for the groups.
	groups := slices.DeleteFunc(p.Problem.capMoves(x), func(m capMove) bool { return m.step < 0 })
	candidates := p.Problem.poolsByCap(x, groups)
	if len(groups) > 1 {
		for i := range groups {
			candidates = append(candidates, p.Problem.poolsByCap(x, groups[i:i+1])...)
		}
	}

	// Take the first whose run ends.
	for i := range candidates {
		s, err := p.Trials.trialPool(ctx, &candidates[i])
		if err != nil || !s.Broken {
			*x = candidates[i]
			return s, err
		}
	}
	return Score{ByItem: p.Problem.newScore().ByItem, Broken: true}, nil
}

// poolsByCap returns copies of pool x, one for each cap of the problem's list, in which some groups of models all have that cap or, where
// their server cannot run as many sequences, the next lower one. The steps of the groups do not count. The first copies have the caps that
// are the fewest places away, in the problem's list, from the present cap of the first group.
func (p *Problem) poolsByCap(x *Pool, groups []capMove) []Pool {
	presentCap := x.Caps[groups[0].kind][groups[0].models[0]]
	presentIndex := slices.Index(p.Caps, presentCap)
	distance := func(c int) int { return abs(slices.Index(p.Caps, c) - presentIndex) }
	nearestCaps := slices.Clone(p.Caps)
	slices.SortStableFunc(nearestCaps, func(a, b int) int { return distance(a) - distance(b) })
	var pools []Pool
	for _, c := range nearestCaps {
		y := x.clone()
		for _, g := range groups {
			for _, m := range g.models {
				allowed := p.capsOf(m, g.kind)
				next, _ := slices.BinarySearch(allowed, c+1) // the first cap above c: the one before it is at most c
				y.Caps[g.kind][m] = allowed[max(next-1, 0)]
			}
		}
		pools = append(pools, y)
	}
	return pools
}

// abs returns the absolute value.
func abs(n int) int { return max(n, -n) }

// applyMove returns a copy of the pool with the caps that a move changes (limits on the sequences that run at once) one step further in
// the list of caps, together with the caps of classes that follow from it. If the list has no further step, it returns false.
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

// withClassCap returns a copy of the pool with the cap of a class (a limit on its sequences on an instance) changed by step, -1 or 1 in
// the problem's list of caps. A cap of 0 is no limit: a step down from it goes to half of MaxConcurrent, and a cap that would reach
// MaxConcurrent, or leave the list upward, becomes 0. If there is no further step, it returns false.
func (p *Problem) withClassCap(x *Pool, class, step int) (Pool, bool) {
	maxCap := x.MaxConcurrent(p.ModelsOf(x.Items)...)
	var nextIndex int // in the list of caps
	switch currentCap := x.ClassCaps[class]; {
	case currentCap == 0 && step > 0:
		return Pool{}, false
	case currentCap == 0:
		// The largest cap of at most half of maxCap stands before the first one above that.
		firstAbove, _ := slices.BinarySearch(p.Caps, maxCap/2+1)
		nextIndex = firstAbove - 1
	default:
		nextIndex = slices.Index(p.Caps, currentCap) + step
	}
	if nextIndex < 0 {
		return Pool{}, false
	}
	changed := x.clone()
	changed.ClassCaps[class] = 0 // no limit
	if nextIndex < len(p.Caps) && p.Caps[nextIndex] < maxCap {
		changed.ClassCaps[class] = p.Caps[nextIndex]
	}
	return changed, true
}
