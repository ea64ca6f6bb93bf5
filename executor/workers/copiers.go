package workers

import (
	"runtime"
	"sync"
)

// copiers are goroutines that help to copy large samples into a batch: one core copies a batch of images in about the
// time in which a GPU runs it.
type copiers struct {
	tasks chan copyTask
	wg    sync.WaitGroup
}

// copyTask is a copy for a helper.
type copyTask struct{ dst, src []byte }

// Bounds of the helpers.
const (
	// minProcessors is the number of processors from which on there are helpers. With fewer they would take the time of
	// workers and transports.
	minProcessors = 4
	maxCopiers    = 3
	// minHelperBytes is the size from which on a copy is worth waking a helper.
	minHelperBytes = 128 << 10
)

// helperCount returns how many goroutines help to copy on this machine: one for four processors, within limits,
// and none on a small machine.
func helperCount() int {
	if n := runtime.GOMAXPROCS(0); n >= minProcessors {
		return min(maxCopiers, n/4)
	}
	return 0
}

// newCopiers returns n goroutines that help the core to copy the inputs and outputs of batches, until close ends them.
// If n is below 1, it returns nil: the methods of a nil *copiers copy on the caller's goroutine.
func newCopiers(n int) *copiers {
	if n < 1 {
		return nil
	}
	p := &copiers{tasks: make(chan copyTask)}
	for range n {
		go func() {
			for t := range p.tasks {
				copy(t.dst, t.src)
				p.wg.Done()
			}
		}()
	}
	return p
}

// copy copies src to dst: a piece of minHelperBytes or more by an idle helper, if there is one, and others at once. The
// caller must call wait before it uses dst.
func (p *copiers) copy(dst, src []byte) {
	if p == nil || len(dst) < minHelperBytes {
		copy(dst, src)
		return
	}
	p.wg.Add(1)
	select {
	case p.tasks <- copyTask{dst, src}:
	default:
		copy(dst, src)
		p.wg.Done()
	}
}

// wait returns when all copies are done.
func (p *copiers) wait() {
	if p != nil {
		p.wg.Wait()
	}
}

// close ends the helpers.
func (p *copiers) close() {
	if p != nil {
		close(p.tasks)
	}
}
