package drop

import "time"

// farFuture is the start time of a worker that takes no tasks.
const farFuture = time.Duration(1<<63 - 1)

// startTree finds the worker of a module with the earliest start: a tournament tree, so that a change costs one
// comparison per level.
type startTree struct {
	startTimes []time.Duration // by worker: earliest start of a further task; up to a power of two
	// by node: worker with the earliest start below; [1] is the root, 2i and 2i+1 are the children of i
	winners []int32
}

// newStartTree returns a tournament tree of a number of workers of a module, which finds the one with the earliest start.
// At first no worker takes tasks: all starts are farFuture. The number of leaves is the next power of two, so that the
// children of node i are 2i and 2i+1. The leaves stand for the workers, and the root, winners[1], has the worker with the
// earliest start of all.
func newStartTree(workers int) startTree {
	size := 1
	for size < workers {
		size *= 2
	}
	tree := startTree{startTimes: make([]time.Duration, size), winners: make([]int32, size)}
	for worker := range tree.startTimes {
		tree.startTimes[worker] = farFuture
	}
	for node := size - 1; node > 0; node-- {
		tree.winners[node] = tree.winner(node)
	}
	return tree
}

// workerAt returns the worker that a node of the tree stands for: of a leaf its own, else the one with the earliest
// start below.
func (s *startTree) workerAt(node int) int32 {
	if node >= len(s.startTimes) {
		return int32(node - len(s.startTimes))
	}
	return s.winners[node]
}

// winner returns, of the two children of a node, the worker with the earlier start.
func (s *startTree) winner(node int) int32 {
	left, right := s.workerAt(2*node), s.workerAt(2*node+1)
	if s.startTimes[right] < s.startTimes[left] {
		return right
	}
	return left
}

// earliestWorker returns the worker that can start a further task first, by its index in the module; of several, the first.
func (s *startTree) earliestWorker() int32 {
	if len(s.startTimes) == 1 {
		return 0
	}
	return s.winners[1]
}

// setStart sets when a worker could start a further task, and updates the winners on the way to the root.
func (s *startTree) setStart(worker int, startAt time.Duration) {
	if s.startTimes[worker] == startAt {
		return
	}
	s.startTimes[worker] = startAt
	for node := (worker + len(s.startTimes)) / 2; node > 0; node /= 2 {
		s.winners[node] = s.winner(node)
	}
}
