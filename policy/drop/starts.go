package drop

import "time"

// farFuture is the start time of a worker that takes no tasks.
const never = time.Duration(1<<63 - 1)

// startTree finds the worker of a module with the earliest start: a tournament tree, so that a change costs one
// comparison per level.
type starts struct {
	at []time.Duration // by worker: earliest start of a further task; up to a power of two
	// by node: worker with the earliest start below; [1] is the root, 2i and 2i+1 are the children of i
	best []int32
}

// newStartTree returns a tree of n workers that take no tasks.
func newStarts(n int) starts {
	size := 1
	for size < n {
		size *= 2
	}
	s := starts{at: make([]time.Duration, size), best: make([]int32, size)}
	for i := range s.at {
		s.at[i] = never
	}
	for i := size - 1; i > 0; i-- {
		s.best[i] = s.winner(i)
	}
	return s
}

// workerAt returns the worker at a node of the tree: its winner, or the worker of a leaf.
func (s *starts) leaf(i int) int32 {
	if i >= len(s.at) {
		return int32(i - len(s.at))
	}
	return s.best[i]
}

// winner returns the worker with the earlier start of a node's children.
func (s *starts) winner(i int) int32 {
	a, b := s.leaf(2*i), s.leaf(2*i+1)
	if s.at[b] < s.at[a] {
		return b
	}
	return a
}

// earliestWorker returns the worker with the earliest start; of several, the first.
func (s *starts) first() int32 {
	if len(s.at) == 1 {
		return 0
	}
	return s.best[1]
}

// setStart sets the earliest start of a worker.
func (s *starts) set(worker int, at time.Duration) {
	if s.at[worker] == at {
		return
	}
	s.at[worker] = at
	for i := (worker + len(s.at)) / 2; i > 0; i /= 2 {
		s.best[i] = s.winner(i)
	}
}
