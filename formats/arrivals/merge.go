package arrivals

import "errors"

// Merge interleaves sources by time. Requests of the same instant come in the order of the sources, so that the
// result is deterministic. The result holds the next request of each source (head) and a heap of the sources by the
// time of theirs.
func Merge(sources ...Source) Source {
	if len(sources) == 1 {
		return sources[0]
	}
	m := &merge{sources: sources, head: make([]Request, len(sources))}
	for i := range sources {
		if sources[i].Next(&m.head[i]) {
			m.heap = append(m.heap, int32(i))
		}
	}
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.siftDown(i)
	}
	return m
}

// merge is a heap of source indexes, ordered by the time of their next request and then by index. container/heap
// would allocate an integer per step.
type merge struct {
	sources []Source
	head    []Request
	heap    []int32
}

// Next sets r to the earliest request left in all sources, and takes it out. It returns false at the end.
func (m *merge) Next(r *Request) bool {
	if len(m.heap) == 0 {
		return false
	}
	i := m.heap[0] // the source whose next request is the earliest
	*r = m.head[i]
	// Read that source's next request. A source at its end leaves the heap.
	if !m.sources[i].Next(&m.head[i]) {
		lastIndex := len(m.heap) - 1
		m.heap[0] = m.heap[lastIndex]
		m.heap = m.heap[:lastIndex]
	}
	m.siftDown(0)
	return true
}

// isBefore returns whether the next request of source a comes before that of source b: by time, then by index.
func (m *merge) isBefore(a, b int32) bool {
	x, y := m.head[a].ArrivedAt, m.head[b].ArrivedAt
	return x < y || x == y && a < b
}

// siftDown restores the heap below position i: it swaps the source there with its earlier child until neither child
// comes before it. Positions are indices into m.heap, whose entries are indices into m.sources.
func (m *merge) siftDown(i int) {
	for {
		child := 2*i + 1
		if child >= len(m.heap) {
			return
		}
		if child+1 < len(m.heap) && m.isBefore(m.heap[child+1], m.heap[child]) {
			child++
		}
		if !m.isBefore(m.heap[child], m.heap[i]) {
			return
		}
		m.heap[i], m.heap[child] = m.heap[child], m.heap[i]
		i = child
	}
}

// Err joins the errors that stopped the sources.
func (m *merge) Err() error { return m.joinErrors(Err) }

// Close closes all sources.
func (m *merge) Close() error { return m.joinErrors(Close) }

// joinErrors returns the errors of all sources joined, or nil if none has one.
func (m *merge) joinErrors(errOf func(Source) error) (err error) {
	for _, s := range m.sources {
		err = errors.Join(err, errOf(s))
	}
	return err
}
