package drop

import "time"

// never is the start of a worker that takes no tasks.
const never = time.Duration(1<<63 - 1)

// starts finds the worker of a module that can start a further task first: a
// tournament tree, so that a change costs as many comparisons as it has levels.
type starts struct {
	at   []time.Duration // by worker, up to a power of two
	best []int32         // [1] is the winner; the children of i are 2i and 2i+1, from len(at) on the workers
}

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

// leaf is the worker at a place of the tree.
func (s *starts) leaf(i int) int32 {
	if i >= len(s.at) {
		return int32(i - len(s.at))
	}
	return s.best[i]
}

func (s *starts) winner(i int) int32 {
	a, b := s.leaf(2*i), s.leaf(2*i+1)
	if s.at[b] < s.at[a] {
		return b
	}
	return a
}

// first is the worker that can start first; the lowest of several.
func (s *starts) first() int32 {
	if len(s.at) == 1 {
		return 0
	}
	return s.best[1]
}

// set notes when a worker could start a further task.
func (s *starts) set(worker int, at time.Duration) {
	if s.at[worker] == at {
		return
	}
	s.at[worker] = at
	for i := (worker + len(s.at)) / 2; i > 0; i /= 2 {
		s.best[i] = s.winner(i)
	}
}
