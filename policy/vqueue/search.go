package vqueue

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
)

// Search improves an order of queues by large-neighbourhood search. A step removes a few groups, puts each back where that
// costs least, and accepts the result by the rule of simulated annealing. Search allocates nothing once its
// buffers have grown.
type Search struct {
	// MaxRemoved is the largest number of groups that one step removes; 0 means 10.
	MaxRemoved int
	// KeepQueues keeps every group in its queue.
	KeepQueues bool

	current, bestOrder Assignment // the order that is being changed, and the best one so far
	differsFromBest    []bool     // by queue: whether current has another order of it than bestOrder
	changedQueues      []int32    // these queues, so that not all have to be looked at
	rng                *rand.Rand

	removed     []int32      // groups that the step has removed
	isRemoved   []bool       // by group: whether the step has removed it
	oldQueue    []int32      // by removed group: its queue before the step
	savedOrders []queueOrder // copies of the queues that the step has changed, as they were before it
	savedQueues []int32      // the indexes of these queues
	isSaved     []bool       // by queue: whether it is among them
	candidates  []int32      // groups that may be removed
	noise       float64      // relative amount by which the costs of queues are raised at random
}

// Run improves an assignment until it has looked at `work` positions of queues or ctx has ended.
// The result is never worse than before, and it is the same for the same work and random generator.
// Each step removes some groups and inserts them again; a worse order is accepted with a probability that falls with the temperature
// (simulated annealing).
func (s *Search) Run(ctx context.Context, assignment *Assignment, rng *rand.Rand, work int64) {
	s.prepare(assignment, rng)
	if len(s.candidates) < 1 {
		return
	}

	// Small problems are searched in several rounds, each from the best order so far at half the temperature.
	rounds, heatFactor := int64(1), firstHeatLarge
	if len(s.candidates) <= maxSmallProblem {
		rounds, heatFactor = smallRounds, firstHeatSmall
	}

	// heat is the temperature, in units of the objective: a worse order is accepted the more often, the larger it is against the increase of the
	// objective. So it is relative to the objective, and lower for more groups. 1 is added, so that it is above 0 even if the objective is 0.
	heat := heatFactor*assignment.total/math.Sqrt(float64(len(s.candidates))) + 1

	// Each round has an equal part of the work. searchWork counts the positions looked at so far, also those before this search, and limit is its
	// value at which the search ends. The temperature falls geometrically with the work done in the round, to finalHeatFactor of its first value.
	limit := assignment.searchWork + work
	for round := range rounds {
		laterRounds := rounds - 1 - round
		roundStart, roundEnd := s.current.searchWork, limit-work*laterRounds/rounds
		for step := 0; s.current.searchWork < roundEnd; step++ {
			if step%stepsPerCheck == 0 && ctx.Err() != nil {
				break
			}
			progress := float64(s.current.searchWork-roundStart) / float64(max(roundEnd-roundStart, 1))
			roundHeat := heat * math.Pow(finalHeatFactor, progress)
			// Try cheap moves, which exchange pieces of queues, and then one step that removes groups and inserts them where that costs least.
			for range exchangesPerStep {
				s.exchangePieces(roundHeat)
			}
			s.runStep(roundHeat)
			s.current.searchWork++ // so that a step that finds nothing ends, too
		}

		// The next round begins with the best order in all queues, so none differs from it.
		s.current.CopyOrder(&s.bestOrder)
		s.forgetChanges()
		heat /= 2
	}

	// Return the best order, with the count of all positions looked at.
	workDone := s.current.searchWork
	if s.bestOrder.total < assignment.total {
		assignment.CopyOrder(&s.bestOrder)
	}
	assignment.searchWork = workDone
}

const (
	// maxSmallProblem is the number of groups up to which a search runs smallRounds rounds.
	maxSmallProblem = 200
	smallRounds     = 3
	// The first temperature of small and large problems, relative to the objective divided by the root of the
	// number of groups. finalHeatFactor is the last temperature of a round relative to its first.
	firstHeatSmall  = 0.02
	firstHeatLarge  = 0.005
	finalHeatFactor = 1e-3
	// exchangesPerStep is the number of exchanges between two steps.
	exchangesPerStep = 20
	// stepsPerCheck is the number of steps after which a search looks whether its context has ended.
	stepsPerCheck = 64
	// noiseLevel is the part by which the costs of queues are raised at most in a noisy step.
	noiseLevel = 0.3
)

// prepare copies an assignment into the current and the best order, sets defaults, and clears the buffers of an earlier run.
// Groups that have requests may be removed by steps.
func (s *Search) prepare(assignment *Assignment, rng *rand.Rand) {
	if s.MaxRemoved == 0 {
		s.MaxRemoved = 10
	}
	s.rng = rng

	// Both orders begin with the assignment, so that they differ in no queue.
	s.current.CopyFrom(assignment)
	s.bestOrder.CopyFrom(assignment)
	s.differsFromBest = clearedFlags(s.differsFromBest, len(assignment.queues))
	s.isSaved = clearedFlags(s.isSaved, len(assignment.queues))
	s.isRemoved = clearedFlags(s.isRemoved, len(assignment.queueOf))
	s.oldQueue = append(s.oldQueue[:0], assignment.queueOf...)
	s.changedQueues, s.removed, s.savedQueues, s.candidates = s.changedQueues[:0], s.removed[:0], s.savedQueues[:0], s.candidates[:0]
	for i := range assignment.queueOf {
		if assignment.problem.Groups[i].Size > 0 {
			s.candidates = append(s.candidates, int32(i))
		}
	}
}

// clearedFlags returns a slice of `count` times false, in the memory of buffer if that is large enough.
func clearedFlags(buffer []bool, count int) []bool {
	buffer = slices.Grow(buffer[:0], count)[:count]
	clear(buffer)
	return buffer
}

// CopyOrder takes over the queues of another assignment of the same problem, but not the number of positions that it has looked at.
func (a *Assignment) CopyOrder(source *Assignment) {
	work := a.searchWork
	a.CopyFrom(source)
	a.searchWork = work
}

// runStep is one step of the search. It removes some groups and puts each back where that costs least.
// If the total is then higher, the result is accepted with probability exp(-increase/heat) only; otherwise the queues are restored.
func (s *Search) runStep(heat float64) {
	assignment := &s.current
	oldTotal := assignment.total
	s.chooseRemoved()

	// Remove the chosen groups.
	for _, groupIndex := range s.removed {
		s.oldQueue[groupIndex] = assignment.queueOf[groupIndex]
		if queueIndex := assignment.queueOf[groupIndex]; queueIndex >= 0 {
			s.saveQueue(queueIndex)
			assignment.Remove(groupIndex)
		}
	}

	// Put them back one by one, half of the time with noise.
	s.orderRemoved()
	s.noise = 0
	if s.rng.IntN(2) == 0 {
		s.noise = noiseLevel // costs raised at random lead to positions that are not quite the best
	}
	for _, groupIndex := range s.removed {
		s.isRemoved[groupIndex] = false
		if queueIndex, position := s.noisyBestPosition(groupIndex); queueIndex >= 0 {
			s.saveQueue(queueIndex)
			assignment.Insert(groupIndex, queueIndex, position)
		}
	}

	s.endStep(assignment.total-oldTotal, oldTotal, heat)
	s.removed = s.removed[:0]
}

// endStep keeps the result of a step or an exchange by the rule of simulated annealing: always if the objective does not increase, else with
// probability exp(-increase/heat). Otherwise it restores the queues, with the total before.
func (s *Search) endStep(increase, oldTotal, heat float64) {
	if increase <= 0 || s.rng.Float64() < math.Exp(-increase/heat) {
		s.acceptStep()
	} else {
		s.restoreQueues(oldTotal)
	}
	s.savedQueues = s.savedQueues[:0]
}

// noisyBestPosition returns the best queue and position for a removed group.
// If the step is noisy, the increase of the objective in each queue is first multiplied by a random factor of at least 1, which leads to
// other queues than the best.
// With KeepQueues the group stays in its queue. If no queue can serve the group, bestQueue is -1.
func (s *Search) noisyBestPosition(groupIndex int32) (bestQueue int32, bestPosition int) {
	assignment := &s.current
	if bestQueue := s.oldQueue[groupIndex]; s.KeepQueues && bestQueue >= 0 {
		bestPosition, _ := assignment.cheapestInsertion(groupIndex, bestQueue, math.Inf(1))
		return bestQueue, bestPosition
	}
	if s.noise == 0 {
		bestQueue, bestPosition, _ = assignment.BestPlace(groupIndex)
		return bestQueue, bestPosition
	}
	bestQueue = -1
	bound := math.Inf(1)
	for queueIndex := range assignment.queues {
		factor := 1 + s.noise*s.rng.Float64()
		if candidatePosition, increase := assignment.cheapestInsertion(groupIndex, int32(queueIndex), bound/factor); candidatePosition >= 0 {
			increase *= factor
			if increase < bound {
				bestQueue, bestPosition, bound = int32(queueIndex), candidatePosition, increase
			}
		}
	}
	return bestQueue, bestPosition
}

// saveQueue keeps a copy of a queue before a step first changes it, so that restoreQueues can undo the step. Buffers of earlier steps are reused.
func (s *Search) saveQueue(queueIndex int32) {
	if s.isSaved[queueIndex] {
		return
	}
	s.isSaved[queueIndex] = true

	// savedOrders[i] is the copy of the queue savedQueues[i]. It may be longer, because its buffers are kept.
	savedIndex := len(s.savedQueues)
	s.savedQueues = append(s.savedQueues, queueIndex)
	if savedIndex == len(s.savedOrders) {
		s.savedOrders = append(s.savedOrders, queueOrder{})
	}
	s.savedOrders[savedIndex].cost = s.current.queues[queueIndex].cost
	s.savedOrders[savedIndex].entries = append(s.savedOrders[savedIndex].entries[:0], s.current.queues[queueIndex].entries...)
}

// restoreQueues undoes a step that was not accepted: it copies the saved queues back, with the total before the step.
// Removed groups that were in no queue before are in none again.
func (s *Search) restoreQueues(total float64) {
	assignment := &s.current
	for _, groupIndex := range s.removed {
		assignment.queueOf[groupIndex] = -1
	}

	// savedOrders[i] is the copy of the queue savedQueues[i].
	for savedIndex, queueIndex := range s.savedQueues {
		s.isSaved[queueIndex] = false
		order := &assignment.queues[queueIndex]
		order.cost = s.savedOrders[savedIndex].cost
		order.entries = append(order.entries[:0], s.savedOrders[savedIndex].entries...)
		assignment.nonEmpty.set(queueIndex, len(order.entries) > 0)
		for position := range order.entries {
			assignment.queueOf[order.entries[position].group] = queueIndex
		}
	}
	assignment.total = total
}

// acceptStep keeps the result of a step. It notes which queues now differ from those of the best order and, if the total is lower than its
// total, updates the best order.
func (s *Search) acceptStep() {
	for _, queueIndex := range s.savedQueues { // the queues that the step has changed
		s.isSaved[queueIndex] = false
		if !s.differsFromBest[queueIndex] {
			s.differsFromBest[queueIndex] = true
			s.changedQueues = append(s.changedQueues, queueIndex)
		}
	}
	if s.current.total < s.bestOrder.total-1e-9 {
		s.updateBest()
	}
}

// updateBest makes the current order the best one. Only the queues that differ (changedQueues) are copied.
func (s *Search) updateBest() {
	for _, queueIndex := range s.changedQueues {
		current, best := &s.current.queues[queueIndex], &s.bestOrder.queues[queueIndex]
		best.cost, best.entries = current.cost, append(best.entries[:0], current.entries...)
		s.bestOrder.nonEmpty.set(queueIndex, len(best.entries) > 0)
	}
	s.bestOrder.total = s.current.total
	copy(s.bestOrder.queueOf, s.current.queueOf)
	s.forgetChanges()
}

// forgetChanges notes that no queue of the current order differs from the best order. changedQueues lists the queues for which
// differsFromBest is true, so that only these are reset.
func (s *Search) forgetChanges() {
	for _, queueIndex := range s.changedQueues {
		s.differsFromBest[queueIndex] = false
	}
	s.changedQueues = s.changedQueues[:0]
}

// orderRemoved sorts the removed groups into the order in which they are put back: by deadline, by work or at random, chosen at random.
func (s *Search) orderRemoved() {
	problem := s.current.problem
	switch s.rng.IntN(3) {
	case 0:
		slices.SortFunc(s.removed, problem.compareDeadlines)
	case 1:
		slices.SortFunc(s.removed, problem.compareWork)
	default:
		s.rng.Shuffle(len(s.removed), func(i, j int) { s.removed[i], s.removed[j] = s.removed[j], s.removed[i] })
	}
}
