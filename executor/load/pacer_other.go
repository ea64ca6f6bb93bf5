//go:build !linux

package load

import (
	"context"
	"time"
)

// pacer sleeps until a given time, as exactly as Go's timers do.
type pacer struct {
	ctx   context.Context
	timer *time.Timer
}

// newPacer returns a pacer whose sleep ends early when ctx ends.
func newPacer(ctx context.Context) (*pacer, error) {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &pacer{ctx, t}, nil
}

// sleep waits for d. It returns false if the context has ended.
func (p *pacer) sleep(d time.Duration) (bool, error) {
	p.timer.Reset(d)
	select {
	case <-p.timer.C:
		return true, nil
	case <-p.ctx.Done():
		return false, nil
	}
}

func (p *pacer) close() error {
	p.timer.Stop()
	return nil
}
