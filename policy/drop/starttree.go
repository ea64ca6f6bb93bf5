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

// newStartTree returns a tournament tree of n workers that take no tasks (farFuture). Its root names the worker
// with the earliest start. Its size is a power of two, so that a node's children are 2i and 2i+1.
func newStartTree(n int) startTree {
	size := 1
	for size < n {
		size *= 2
	}
	s := startTree{startTimes: make([]time.Duration, size), winners: make([]int32, size)}
	for i := range s.startTimes {
		s.startTimes[i] = farFuture
	}
	for i := size - 1; i > 0; i-- {
		s.winners[i] = s.winner(i)
	}
	return s
}

// workerAt returns the worker at a node of the tree: its winner, or the worker of a leaf.
func (s *startTree) workerAt(i int) int32 {
	if i >= len(s.startTimes) {
		return int32(i - len(s.startTimes))
	}
	return s.winners[i]
}

// winner returns the worker with the earlier start of a node's children.
func (s *startTree) winner(i int) int32 {
	a, b := s.workerAt(2*i), s.workerAt(2*i+1)
	if s.startTimes[b] < s.startTimes[a] {
		return b
	}
	return a
}

// earliestWorker returns the worker with the earliest start; of several, the first.
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
	for i := (worker + len(s.startTimes)) / 2; i > 0; i /= 2 {
		s.winners[i] = s.winner(i)
	}
}
