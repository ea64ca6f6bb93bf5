package vqueue

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
)

// Search improves an order by large-neighbourhood search: it takes a few groups
// out, puts each back where that costs least, and keeps the result by the rule of
// simulated annealing. It allocates nothing once its buffers have grown.
type Search struct {
	// Most is the largest number of groups that one step takes out; 0 is 10.
	Most int
	// Stay keeps every group in its queue.
	Stay bool

	state, best State
	stale       []bool // queues in which best is not up to date
	stales      []int32
	rng         *rand.Rand

	out    []int32 // groups taken out
	chosen []bool  // by group
	home   []int32 // by group taken out: its queue before
	saved  []line  // queues as they were before the step
	savedQ []int32
	saves  []bool // by queue
	pool   []int32
	noise  float64
}

// Run improves s until it has looked at so many positions or ctx has ended. The
// result is never worse than s, and the same for the same work and generator.
func (x *Search) Run(ctx context.Context, s *State, rng *rand.Rand, work int64) {
	x.begin(s, rng)
	if len(x.pool) < 1 {
		return
	}
	limit := s.work + work
	rounds, heat := int64(1), hottestLarge
	if len(x.pool) <= smallSearch {
		rounds, heat = smallRounds, hottestSmall
	}
	heat = heat*s.total/math.Sqrt(float64(len(x.pool))) + 1
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
	worked := x.state.work
	if x.best.total < s.total {
		s.CopyOrder(&x.best)
	}
	s.work = worked
}

const (
	// smallSearch is the number of groups up to which a search starts again from its
	// best order, smallRounds times in all.
	smallSearch = 200
	smallRounds = 3
	// The first temperature relative to the objective per root of the number of groups,
	// for small and large searches; coldest is the last relative to the first.
	hottestSmall = 0.02
	hottestLarge = 0.005
	coldest      = 1e-3
	// exchanges is the number of exchanges between two steps.
	exchanges = 20
)

// begin copies the state and makes the buffers.
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

// unset is a buffer of n times false.
func unset(b []bool, n int) []bool {
	b = slices.Grow(b[:0], n)[:n]
	clear(b)
	return b
}

// CopyOrder takes over the queues of another state of the same problem, but not
// its count of work.
func (s *State) CopyOrder(from *State) {
	work := s.work
	s.CopyFrom(from)
	s.work = work
}

// step takes groups out, puts them back, and undoes it unless it is accepted.
func (x *Search) step(heat float64) {
	s := &x.state
	before := s.total
	x.choose()
	for _, g := range x.out {
		x.home[g] = s.where[g]
		if q := s.where[g]; q >= 0 {
			x.save(q)
			s.Remove(g)
		}
	}
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
	rise := s.total - before
	if rise <= 0 || x.rng.Float64() < math.Exp(-rise/heat) {
		x.accept()
	} else {
		x.undo(before)
	}
	x.out, x.savedQ = x.out[:0], x.savedQ[:0]
}

// bestPlace is State.Best, with each queue's cost made a little larger at random
// where the step is noisy.
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
			// A gain is not made larger by noise.
			if d *= factor; d < bound {
				queue, place, bound = int32(q), at, d
			}
		}
	}
	return queue, place
}

// save keeps a queue as it was before the step.
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

// keepBest copies what changed since the last best. If the state is not better, it
// only forgets what changed: the caller copies the best back.
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

// shuffle brings the chosen groups into the order in which they go back: by
// deadline, by work, or any.
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
