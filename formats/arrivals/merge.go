package arrivals

import "errors"

// Merge interleaves sources by time. Requests of the same instant come in the order of the sources, so that the
// result is deterministic.
func Merge(sources ...Source) Source {
	if len(sources) == 1 {
		return sources[0]
	}
	m := &merge{sources: sources, head: make([]Request, len(sources))}
	for i := range sources {
		if sources[i].Peek(&m.head[i]) {
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

func (m *merge) Peek(r *Request) bool {
	if len(m.heap) == 0 {
		return false
	}
	i := m.heap[0]
	*r = m.head[i]
	if !m.sources[i].Peek(&m.head[i]) {
		lastIndex := len(m.heap) - 1
		m.heap[0] = m.heap[lastIndex]
		m.heap = m.heap[:lastIndex]
	}
	m.siftDown(0)
	return true
}

func (m *merge) isBefore(a, b int32) bool {
	x, y := m.head[a].ArrivedAt, m.head[b].ArrivedAt
	return x < y || x == y && a < b
}

func (m *merge) siftDown(i int) {
	for {
		c := 2*i + 1
		if c >= len(m.heap) {
			return
		}
		if c+1 < len(m.heap) && m.isBefore(m.heap[c+1], m.heap[c]) {
			c++
		}
		if !m.isBefore(m.heap[c], m.heap[i]) {
			return
		}
		m.heap[i], m.heap[c] = m.heap[c], m.heap[i]
		i = c
	}
}

// Err joins the errors that stopped the sources.
func (m *merge) Err() error { return m.joinErrors(Err) }

// Close closes all sources.
func (m *merge) Close() error { return m.joinErrors(Close) }

func (m *merge) joinErrors(errOf func(Source) error) (err error) {
	for _, s := range m.sources {
		err = errors.Join(err, errOf(s))
	}
	return err
}
