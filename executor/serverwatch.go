package executor

import (
	"context"
	"sync/atomic"
	"time"
)

// A server that works is looked at every aliveEvery, one that is gone every
// reviveEvery.
const (
	aliveEvery  = time.Second
	reviveEvery = 250 * time.Millisecond
)

// serverWatch looks after the servers of a device.
type serverWatch struct {
	alive atomic.Bool
	gen   atomic.Int32  // counts losses: news of before are old
	ask   chan struct{} // for a look at the servers
}

// watch has servers that work checked and lost ones revived, until ctx ends.
func (w *serverWatch) watch(ctx context.Context, check, revive func(context.Context)) {
	for {
		pause := aliveEvery
		if !w.alive.Load() {
			pause = reviveEvery
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-w.ask:
			timer.Stop()
		}
		if w.alive.Load() {
			check(ctx)
		} else {
			revive(ctx)
		}
	}
}

// lookNow has the servers looked at.
func (w *serverWatch) lookNow() {
	select {
	case w.ask <- struct{}{}:
	default:
	}
}
