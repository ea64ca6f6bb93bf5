package text

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"inferplan/executor/turn"
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

// serverCalls are the requests of a backend to its servers.
type serverCalls struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
}

func (s *serverCalls) open() { s.ctx, s.cancel = context.WithCancelCause(context.Background()) }

// end ends the requests, and returns when they have ended or ctx does.
func (s *serverCalls) end(ctx context.Context, log *slog.Logger) {
	s.cancel(errOver)
	done := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		log.Warn("requests to servers did not end in time")
	}
}

// checkServers refuses servers of instances that the plan does not have.
func checkServers(list []InstanceServer, instances int) error {
	for _, s := range list {
		if s.Instance < 0 || s.Instance >= instances {
			return fmt.Errorf("%w: a server of instance %d: the plan has the instances 0 to %d", turn.ErrPlan, s.Instance, instances-1)
		}
	}
	return nil
}

// silent returns the error of a look at servers; of one that took longer than a limit, what
// that means.
func silent(err error, limit time.Duration) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer for %v", limit)
	}
	return err
}
