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

// A server that works is checked every checkInterval. Preparing one that is gone is tried every reviveInterval.
const (
	checkInterval  = time.Second
	reviveInterval = 250 * time.Millisecond
)

// serverWatch watches the servers of a device.
type serverWatch struct {
	alive          atomic.Bool
	lossCount      atomic.Int32  // number of losses of the servers; events with an earlier number are ignored
	checkRequested chan struct{} // has an element if a check was requested
}

// newServerWatch returns the watch of servers that count as lost until they are found.
func newServerWatch() serverWatch { return serverWatch{checkRequested: make(chan struct{}, 1)} }

// run watches servers in the background until ctx ends: those that work are checked every checkInterval, or at once
// on request, and lost ones are revived every reviveInterval.
func (w *serverWatch) run(ctx context.Context, check, revive func(context.Context)) {
	for {
		pause := checkInterval
		if !w.alive.Load() {
			pause = reviveInterval
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-w.checkRequested:
			timer.Stop()
		}
		if w.alive.Load() {
			check(ctx)
		} else {
			revive(ctx)
		}
	}
}

// requestCheck requests a check of the servers now.
func (w *serverWatch) requestCheck() {
	select {
	case w.checkRequested <- struct{}{}:
	default:
	}
}

// serverRequests are the requests that a backend has at its servers.
type serverRequests struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
}

// openRequests allows requests.
func (s *serverRequests) openRequests() {
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
}

// endRequests cancels all requests to servers, when a backend closes, and waits until they have ended, or until ctx
// ends, which it logs.
func (s *serverRequests) endRequests(ctx context.Context, log *slog.Logger) {
	s.cancel(errNobodyWaits)
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

// checkServers returns an error if a server belongs to an instance that the plan does not have.
func checkServers(list []InstanceServer, instances int) error {
	for _, s := range list {
		if s.Instance < 0 || s.Instance >= instances {
			return fmt.Errorf("%w: a server of instance %d: the plan has the instances 0 to %d", turn.ErrPlan, s.Instance, instances-1)
		}
	}
	return nil
}

// describeTimeout returns the error of a check for the log. If the check has timed out, it says in words that there
// was no answer for that long.
func describeTimeout(err error, limit time.Duration) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer for %v", limit)
	}
	return err
}
