package vqueue

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
)

// Search improves an order by large-neighbourhood search. A step removes a few groups, puts each back where that
// costs least, and accepts the result by the rule of simulated annealing. Search allocates nothing once its
// buffers have grown.
type Search struct {
	// MaxRemoved is the largest number of groups that one step removes; 0 means 10.
	Most int
	// KeepQueues keeps every group in its queue.
	Stay bool

	state, best State
	stale       []bool  // by queue: whether best has another order of it
	stales      []int32 // these queues
	rng         *rand.Rand

	out    []int32 // groups that the step has removed
	chosen []bool  // by group: whether it is removed
	home   []int32 // by removed group: its queue before
	saved  []line  // queues as they were before the step
	savedQ []int32 // their numbers
	saves  []bool  // by queue: whether it is saved
	pool   []int32 // groups that may be removed
	noise  float64 // relative amount by which the costs of queues are raised at random
}

// Run improves s until it has looked at `work` positions or ctx has ended. The result is never worse than s, and
// it is the same for the same work and random generator.
func (x *Search) Run(ctx context.Context, s *State, rng *rand.Rand, work int64) {
	x.begin(s, rng)
	if len(x.pool) < 1 {
		return
	}

	// Small problems are searched in several rounds, each from the best order so far at half the temperature.
	limit := s.work + work
	rounds, heat := int64(1), hottestLarge
	if len(x.pool) <= smallSearch {
		rounds, heat = smallRounds, hottestSmall
	}
	heat = heat*s.total/math.Sqrt(float64(len(x.pool))) + 1

	// The temperature falls geometrically with the work of the round.
	for r := range rounds {
		from, until := x.state.work, limit-work*(rounds-1-r)/rounds
		for step := 0; x.state.work < until; step++ {
			if step%64 == 0 && ctx.Err() != nil {
				break
			}
			done := float64(x.state.work-from) / float64(max(until-from, 1))
			h := heat * math.Pow(coldest, done)
			for range exchanges {
				x.exchange(h)
			}
			x.step(h)
			x.state.work++ // so that a step that finds nothing ends, too
		}
		x.keepBest(false)
		x.state.CopyOrder(&x.best)
		heat /= 2
	}

	// Return the best order.
	worked := x.state.work
	if x.best.total < s.total {
		s.CopyOrder(&x.best)
	}
	s.work = worked
}

const (
	// maxSmallProblem is the number of groups up to which a search runs smallRounds rounds.
	smallSearch = 200
	smallRounds = 3
	// The first temperature of small and large problems, relative to the objective divided by the root of the
	// number of groups. finalHeat is the last temperature relative to the first.
	hottestSmall = 0.02
	hottestLarge = 0.005
	coldest      = 1e-3
	// exchangesPerStep is the number of exchanges between two steps.
	exchanges = 20
)

// prepare copies the assignment and makes the buffers.
func (x *Search) begin(s *State, rng *rand.Rand) {
	if x.Most == 0 {
		x.Most = 10
	}
	x.rng = rng
	x.state.CopyFrom(s)
	x.best.CopyFrom(s)
	x.stale, x.saves, x.chosen = unset(x.stale, len(s.queues)), unset(x.saves, len(s.queues)), unset(x.chosen, len(s.where))
	x.home = append(x.home[:0], s.where...)
	x.stales, x.out, x.savedQ, x.pool = x.stales[:0], x.out[:0], x.savedQ[:0], x.pool[:0]
	for i := range s.where {
		if s.p.Groups[i].Size > 0 {
			x.pool = append(x.pool, int32(i))
		}
	}
}

// clearedFlags returns a slice of n times false, in the memory of b if that is large enough.
func unset(b []bool, n int) []bool {
	b = slices.Grow(b[:0], n)[:n]
	clear(b)
	return b
}

// CopyOrder takes over the queues of another assignment of the same problem, but not its search work.
func (s *State) CopyOrder(from *State) {
	work := s.work
	s.CopyFrom(from)
	s.work = work
}

// step removes groups and puts them back. Unless the result is accepted, it restores the queues.
func (x *Search) step(heat float64) {
	s := &x.state
	before := s.total
	x.choose()

	// Remove the chosen groups.
	for _, g := range x.out {
		x.home[g] = s.where[g]
		if q := s.where[g]; q >= 0 {
			x.save(q)
			s.Remove(g)
		}
	}

	// Put them back one by one, half of the time with noise.
	x.shuffle()
	x.noise = 0
	if x.rng.IntN(2) == 0 {
		x.noise = 0.3
	}
	for _, g := range x.out {
		x.chosen[g] = false
		if q, place := x.bestPlace(g); q >= 0 {
			x.save(q)
			s.Insert(g, q, place)
		}
	}

	// Accept the result by the rule of simulated annealing.
	rise := s.total - before
	if rise <= 0 || x.rng.Float64() < math.Exp(-rise/heat) {
		x.accept()
	} else {
		x.undo(before)
	}
	x.out, x.savedQ = x.out[:0], x.savedQ[:0]
}

// noisyBestPlace returns the best queue and place for a group. If the step is noisy, each queue's cost is first
// raised by a random factor.
func (x *Search) bestPlace(g int32) (queue int32, place int) {
	s := &x.state
	if q := x.home[g]; x.Stay && q >= 0 {
		place, _ := s.insertion(g, q, math.Inf(1))
		return q, place
	}
	if x.noise == 0 {
		queue, place, _ = s.Best(g)
		return queue, place
	}
	queue = -1
	bound := math.Inf(1)
	for q := range s.queues {
		factor := 1 + x.noise*x.rng.Float64()
		if at, d := s.insertion(g, int32(q), bound/factor); at >= 0 {
			// Noise raises a cost. It does not enlarge a gain.
			if d *= factor; d < bound {
				queue, place, bound = int32(q), at, d
			}
		}
	}
	return queue, place
}

// saveQueue keeps a copy of a queue as it was before the step.
func (x *Search) save(q int32) {
	if x.saves[q] {
		return
	}
	x.saves[q] = true
	n := len(x.savedQ)
	x.savedQ = append(x.savedQ, q)
	if n == len(x.saved) {
		x.saved = append(x.saved, line{})
	}
	x.saved[n].cost = x.state.queues[q].cost
	x.saved[n].slots = append(x.saved[n].slots[:0], x.state.queues[q].slots...)
}

// restoreQueues returns to the queues and the total before the step.
func (x *Search) undo(total float64) {
	s := &x.state
	for _, g := range x.out {
		s.where[g] = -1
	}
	for i, q := range x.savedQ {
		x.saves[q] = false
		l := &s.queues[q]
		l.cost = x.saved[i].cost
		l.slots = append(l.slots[:0], x.saved[i].slots...)
		s.filled.set(q, len(l.slots) > 0)
		for k := range l.slots {
			s.where[l.slots[k].group] = q
		}
	}
	s.total = total
}

// acceptStep keeps the result of a step, and copies it if it is the best so far.
func (x *Search) accept() {
	for _, q := range x.savedQ {
		x.saves[q] = false
		if !x.stale[q] {
			x.stale[q] = true
			x.stales = append(x.stales, q)
		}
	}
	if x.state.total < x.best.total-1e-9 {
		x.keepBest(true)
	}
}

// updateBest copies the queues that have changed since the last best order. If the present order is not better, it only
// forgets which have changed: the caller then copies the best order back.
func (x *Search) keepBest(better bool) {
	for _, q := range x.stales {
		x.stale[q] = false
		if better {
			from, to := &x.state.queues[q], &x.best.queues[q]
			to.cost, to.slots = from.cost, append(to.slots[:0], from.slots...)
			x.best.filled.set(q, len(to.slots) > 0)
		}
	}
	x.stales = x.stales[:0]
	if better {
		x.best.total = x.state.total
		copy(x.best.where, x.state.where)
	}
}

// orderRemoved sorts the removed groups into the order in which they go back: by deadline, by work, or at random.
func (x *Search) shuffle() {
	p := x.state.p
	switch x.rng.IntN(3) {
	case 0:
		slices.SortFunc(x.out, p.byDeadline)
	case 1:
		slices.SortFunc(x.out, p.byWork)
	default:
		x.rng.Shuffle(len(x.out), func(i, j int) { x.out[i], x.out[j] = x.out[j], x.out[i] })
	}
}
