package workers

import (
	"runtime"
	"sync"
)

// copiers help to lay large samples into a batch: one core
// copies a batch of images in about the time in which a GPU runs it.
type copiers struct {
	tasks chan copyTask
	wg    sync.WaitGroup
}

type copyTask struct{ dst, src []byte }

const (
	// fewestToCopy is from how many processors on there are helpers, which would
	// otherwise take the time of workers and transports.
	fewestToCopy = 4
	mostCopiers  = 3
	// leastCopy is worth waking a helper for.
	leastCopy = 128 << 10
)

// helpers is how many copiers this machine has.
func helpers() int {
	if n := runtime.GOMAXPROCS(0); n >= fewestToCopy {
		return min(mostCopiers, n/4)
	}
	return 0
}

// newCopiers starts helpers; close ends them. None (nil) copies all the same.
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

// copy copies, or lets a helper do it that has nothing to do; wait returns when
// all is done.
func (p *copiers) copy(dst, src []byte) {
	if p == nil || len(dst) < leastCopy {
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

func (p *copiers) wait() {
	if p != nil {
		p.wg.Wait()
	}
}

func (p *copiers) close() {
	if p != nil {
		close(p.tasks)
	}
}
