package vqueue

import (
	"cmp"
	"math"
)

// Numbers of random groups of which a method of chooseRemoved takes the best.
const (
	nearDeadlineTries = 8  // chooseSameModel
	costlyTries       = 16 // chooseCostly
)

// chooseRemoved chooses the groups that a step of the search removes and inserts again, by one of four methods at random: random ones, some
// of one network with near deadlines, a piece of a queue, or costly ones with their predecessors.
func (s *Search) chooseRemoved() {
	maxCount := min(s.MaxRemoved, len(s.candidates))
	removedCount := 1 + s.rng.IntN(maxCount)
	switch s.rng.IntN(4) {
	case 0:
		s.chooseRandom(removedCount)
	case 1:
		s.chooseSameModel(removedCount)
	case 2:
		s.choosePiece(removedCount)
	default:
		s.chooseCostly(removedCount)
	}
}

// addRemoved adds a group to those that this step of the search removes, unless it is among them.
func (s *Search) addRemoved(groupIndex int32) {
	if !s.isRemoved[groupIndex] {
		s.isRemoved[groupIndex] = true
		s.removed = append(s.removed, groupIndex)
	}
}

// randomGroup returns a random one of the groups that steps may remove.
func (s *Search) randomGroup() int32 { return s.candidates[s.rng.IntN(len(s.candidates))] }

// chooseRandom chooses up to maxCount random groups for this step to remove.
func (s *Search) chooseRandom(maxCount int) {
	for range maxCount {
		s.addRemoved(s.randomGroup())
	}
}

// chooseSameModel chooses a random group for this step to remove, and groups of its network with near deadlines, until maxCount are chosen:
// each is the nearest of nearDeadlineTries random ones. Such groups can often change places.
func (s *Search) chooseSameModel(maxCount int) {
	problem := s.current.problem
	seedGroup := s.randomGroup()
	s.addRemoved(seedGroup)
	for len(s.removed) < maxCount {
		nearestGroup, nearestDistance := int32(-1), math.Inf(1)
		// Find the nearest of some random groups of the network.
		for range nearDeadlineTries {
			groupIndex := s.randomGroup()
			distance := math.Abs(problem.Groups[groupIndex].Deadline[Quantiles-1] - problem.Groups[seedGroup].Deadline[Quantiles-1])
			if !s.isRemoved[groupIndex] && problem.Groups[groupIndex].Model == problem.Groups[seedGroup].Model && distance < nearestDistance {
				nearestGroup, nearestDistance = groupIndex, distance
			}
		}
		if nearestGroup < 0 {
			return
		}
		s.addRemoved(nearestGroup)
	}
}

// choosePiece chooses up to maxCount groups for this step to remove that stand one behind the other in a random queue, from a random
// position on. The queue is that of a random group; if this is in no queue, it is chosen alone.
func (s *Search) choosePiece(maxCount int) {
	groupIndex := s.randomGroup()
	queueIndex := s.current.queueOf[groupIndex]
	if queueIndex < 0 {
		s.addRemoved(groupIndex)
		return
	}

	// The piece is cut off at the end of the queue.
	entries := s.current.queues[queueIndex].entries
	firstPosition := s.rng.IntN(len(entries))
	for i := firstPosition; i < min(firstPosition+maxCount, len(entries)); i++ {
		s.addRemoved(entries[i].group)
	}
}

// chooseCostly chooses up to maxCount groups for this step to remove: the costliest of costlyTries random ones, about half of the groups just before
// it in its queue, which delay it, up to half of maxCount, and random ones. If none costs anything, all are random.
func (s *Search) chooseCostly(maxCount int) {
	problem, assignment := s.current.problem, &s.current

	// Find the costliest of some random groups.
	costliest, highestCost := int32(-1), 0.0
	for range costlyTries {
		groupIndex := s.randomGroup()
		cost := problem.unplacedCost(&problem.Groups[groupIndex])
		if queueIndex := assignment.queueOf[groupIndex]; queueIndex >= 0 {
			cost = assignment.queues[queueIndex].entries[assignment.positionOf(groupIndex)].cost
		}
		if cost > highestCost {
			costliest, highestCost = groupIndex, cost
		}
	}
	if costliest < 0 {
		s.chooseRandom(maxCount)
		return
	}
	s.addRemoved(costliest)

	// Choose about half of its predecessors, from the nearest on.
	if queueIndex := assignment.queueOf[costliest]; queueIndex >= 0 {
		entries, position := assignment.queues[queueIndex].entries, assignment.positionOf(costliest)
		for len(s.removed) < (maxCount+1)/2 && position > 0 {
			position--
			if s.rng.IntN(2) == 0 {
				s.addRemoved(entries[position].group)
			}
		}
	}
	s.chooseRandom(maxCount - len(s.removed))
}

// compareWork compares two groups, by index, for sorting: by their work on the first kind of device that can run them, largest first, then by index.
func (p *Problem) compareWork(indexA, indexB int32) int {
	if c := cmp.Compare(p.firstFiniteWork(indexB), p.firstFiniteWork(indexA)); c != 0 {
		return c
	}
	return cmp.Compare(indexA, indexB)
}

// firstFiniteWork returns the seconds of work of a group on the first kind of device that can run it. If none can, it is infinite.
func (p *Problem) firstFiniteWork(groupIndex int32) float64 {
	for kind := range p.Kinds {
		if work := p.Cost(groupIndex, int32(kind)).Work; !math.IsInf(work, 1) {
			return work
		}
	}
	return math.Inf(1)
}
