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
	MaxRemoved int
	// KeepQueues keeps every group in its queue.
	KeepQueues bool

	current, bestOrder Assignment
	isStale            []bool  // by queue: whether best has another order of it
	staleQueues        []int32 // these queues
	rng                *rand.Rand

	removed     []int32      // groups that the step has removed
	chosen      []bool       // by group: whether it is removed
	oldQueue    []int32      // by removed group: its queue before
	savedOrders []queueOrder // queues as they were before the step
	savedQueues []int32      // their numbers
	isSaved     []bool       // by queue: whether it is saved
	candidates  []int32      // groups that may be removed
	noise       float64      // relative amount by which the costs of queues are raised at random
}

// Run improves s until it has looked at `work` positions or ctx has ended. The result is never worse than s, and it
// is the same for the same work and random generator. Each step removes some groups and inserts them again; a worse
// order is accepted with a probability that falls with the temperature (simulated annealing). One position is a
// place of a queue for which a cost is computed.
func (x *Search) Run(ctx context.Context, s *Assignment, rng *rand.Rand, work int64) {
	x.prepare(s, rng)
	if len(x.candidates) < 1 {
		return
	}

	// Small problems are searched in several rounds, each from the best order so far at half the temperature.
	limit := s.searchWork + work
	rounds, heat := int64(1), firstHeatLarge
	if len(x.candidates) <= maxSmallProblem {
		rounds, heat = smallRounds, firstHeatSmall
	}
	heat = heat*s.total/math.Sqrt(float64(len(x.candidates))) + 1

	// The temperature falls geometrically with the work of the round.
	for r := range rounds {
		roundStart, roundEnd := x.current.searchWork, limit-work*(rounds-1-r)/rounds
		for step := 0; x.current.searchWork < roundEnd; step++ {
			if step%64 == 0 && ctx.Err() != nil {
				break
			}
			progress := float64(x.current.searchWork-roundStart) / float64(max(roundEnd-roundStart, 1))
			roundHeat := heat * math.Pow(finalHeat, progress)
			for range exchangesPerStep {
				x.exchangePieces(roundHeat)
			}
			x.runStep(roundHeat)
			x.current.searchWork++ // so that a step that finds nothing ends, too
		}
		x.updateBest(false)
		x.current.CopyOrder(&x.bestOrder)
		heat /= 2
	}

	// Return the best order.
	workDone := x.current.searchWork
	if x.bestOrder.total < s.total {
		s.CopyOrder(&x.bestOrder)
	}
	s.searchWork = workDone
}

const (
	// maxSmallProblem is the number of groups up to which a search runs smallRounds rounds.
	maxSmallProblem = 200
	smallRounds     = 3
	// The first temperature of small and large problems, relative to the objective divided by the root of the
	// number of groups. finalHeat is the last temperature relative to the first.
	firstHeatSmall = 0.02
	firstHeatLarge = 0.005
	finalHeat      = 1e-3
	// exchangesPerStep is the number of exchanges between two steps.
	exchangesPerStep = 20
)

// prepare copies the assignment into the present and the best order, sets defaults, and clears the buffers of an
// earlier run. Candidates for removal are the groups that have requests.
func (x *Search) prepare(s *Assignment, rng *rand.Rand) {
	if x.MaxRemoved == 0 {
		x.MaxRemoved = 10
	}
	x.rng = rng
	x.current.CopyFrom(s)
	x.bestOrder.CopyFrom(s)
	x.isStale, x.isSaved, x.chosen = clearedFlags(x.isStale, len(s.queues)), clearedFlags(x.isSaved, len(s.queues)), clearedFlags(x.chosen, len(s.queueOf))
	x.oldQueue = append(x.oldQueue[:0], s.queueOf...)
	x.staleQueues, x.removed, x.savedQueues, x.candidates = x.staleQueues[:0], x.removed[:0], x.savedQueues[:0], x.candidates[:0]
	for i := range s.queueOf {
		if s.problem.Groups[i].Size > 0 {
			x.candidates = append(x.candidates, int32(i))
		}
	}
}

// clearedFlags returns a slice of n times false, in the memory of b if that is large enough.
func clearedFlags(b []bool, n int) []bool {
	b = slices.Grow(b[:0], n)[:n]
	clear(b)
	return b
}

// CopyOrder takes over the queues of another assignment of the same problem, but not its search work.
func (s *Assignment) CopyOrder(source *Assignment) {
	work := s.searchWork
	s.CopyFrom(source)
	s.searchWork = work
}

// runStep removes some groups and puts each back at its best place. If the total is then higher, the result is
// accepted with probability exp(-increase/heat) only; otherwise the queues are restored.
func (x *Search) runStep(heat float64) {
	s := &x.current
	oldTotal := s.total
	x.chooseRemoved()

	// Remove the chosen groups.
	for _, g := range x.removed {
		x.oldQueue[g] = s.queueOf[g]
		if q := s.queueOf[g]; q >= 0 {
			x.saveQueue(q)
			s.Remove(g)
		}
	}

	// Put them back one by one, half of the time with noise.
	x.orderRemoved()
	x.noise = 0
	if x.rng.IntN(2) == 0 {
		// Costs raised by up to 30 % lead to places that are not quite the best.
		x.noise = 0.3
	}
	for _, g := range x.removed {
		x.chosen[g] = false
		if q, place := x.noisyBestPlace(g); q >= 0 {
			x.saveQueue(q)
			s.Insert(g, q, place)
		}
	}

	// Accept the result by the rule of simulated annealing.
	increase := s.total - oldTotal
	if increase <= 0 || x.rng.Float64() < math.Exp(-increase/heat) {
		x.acceptStep()
	} else {
		x.restoreQueues(oldTotal)
	}
	x.removed, x.savedQueues = x.removed[:0], x.savedQueues[:0]
}

// noisyBestPlace returns the best queue and place for a group. If the step is noisy, each queue's cost is first
// raised by a random factor. With KeepQueues a group stays in its queue. If no queue can serve the group, queue is
// -1.
func (x *Search) noisyBestPlace(g int32) (queue int32, place int) {
	s := &x.current
	if q := x.oldQueue[g]; x.KeepQueues && q >= 0 {
		place, _ := s.cheapestInsertion(g, q, math.Inf(1))
		return q, place
	}
	if x.noise == 0 {
		queue, place, _ = s.BestPlace(g)
		return queue, place
	}
	queue = -1
	bound := math.Inf(1)
	for q := range s.queues {
		factor := 1 + x.noise*x.rng.Float64()
		if candidatePlace, d := s.cheapestInsertion(g, int32(q), bound/factor); candidatePlace >= 0 {
			// Noise raises a cost. It does not enlarge a gain.
			if d *= factor; d < bound {
				queue, place, bound = int32(q), candidatePlace, d
			}
		}
	}
	return queue, place
}

// saveQueue keeps a copy of a queue before a step first changes it, so that restoreQueues can undo the step.
// Buffers of earlier steps are reused.
func (x *Search) saveQueue(q int32) {
	if x.isSaved[q] {
		return
	}
	x.isSaved[q] = true
	n := len(x.savedQueues)
	x.savedQueues = append(x.savedQueues, q)
	if n == len(x.savedOrders) {
		x.savedOrders = append(x.savedOrders, queueOrder{})
	}
	x.savedOrders[n].cost = x.current.queues[q].cost
	x.savedOrders[n].slots = append(x.savedOrders[n].slots[:0], x.current.queues[q].slots...)
}

// restoreQueues undoes a step that was not accepted: it copies the saved queues back, with the total before the
// step. Removed groups that were in no queue before are in none again.
func (x *Search) restoreQueues(total float64) {
	s := &x.current
	for _, g := range x.removed {
		s.queueOf[g] = -1
	}
	for i, q := range x.savedQueues {
		x.isSaved[q] = false
		order := &s.queues[q]
		order.cost = x.savedOrders[i].cost
		order.slots = append(order.slots[:0], x.savedOrders[i].slots...)
		s.nonEmpty.set(q, len(order.slots) > 0)
		for k := range order.slots {
			s.queueOf[order.slots[k].group] = q
		}
	}
	s.total = total
}

// acceptStep keeps the result of a step. It notes which queues now differ from those of the best order (isStale)
// and, if the total is a new best, copies them there.
func (x *Search) acceptStep() {
	for _, q := range x.savedQueues {
		x.isSaved[q] = false
		if !x.isStale[q] {
			x.isStale[q] = true
			x.staleQueues = append(x.staleQueues, q)
		}
	}
	if x.current.total < x.bestOrder.total-1e-9 {
		x.updateBest(true)
	}
}

// updateBest copies the queues that have changed since the last best order. If the present order is not better, it only
// forgets which have changed: the caller then copies the best order back.
func (x *Search) updateBest(isBetter bool) {
	for _, q := range x.staleQueues {
		x.isStale[q] = false
		if isBetter {
			current, best := &x.current.queues[q], &x.bestOrder.queues[q]
			best.cost, best.slots = current.cost, append(best.slots[:0], current.slots...)
			x.bestOrder.nonEmpty.set(q, len(best.slots) > 0)
		}
	}
	x.staleQueues = x.staleQueues[:0]
	if isBetter {
		x.bestOrder.total = x.current.total
		copy(x.bestOrder.queueOf, x.current.queueOf)
	}
}

// orderRemoved sorts the removed groups into the order in which they go back: by deadline, by work, or at random.
func (x *Search) orderRemoved() {
	p := x.current.problem
	switch x.rng.IntN(3) {
	case 0:
		slices.SortFunc(x.removed, p.compareDeadlines)
	case 1:
		slices.SortFunc(x.removed, p.compareWork)
	default:
		x.rng.Shuffle(len(x.removed), func(i, j int) { x.removed[i], x.removed[j] = x.removed[j], x.removed[i] })
	}
}
