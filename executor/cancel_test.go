package executor

import (
	"context"
	"testing"
	"time"

	"inferplan/policy"
)

// A client goes away just when its answer is there. The job goes back to the
// pool only once the core has heard of it: the next client to get it would
// otherwise be told that it had gone.
func TestCancelThatCameTooLate(t *testing.T) {
	plan := onePlan(time.Hour, 2, 1, 10*time.Hour)
	plan.Policy.Params["eager"] = 0 // it waits for a fuller batch
	x := open(t, plan, replayOptions(true))
	c := x.core.Load()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		_, err := x.Infer(ctx, sample(x, 1))
		answered <- err
	}()
	var late *job
	until(func() bool { return c.served.models[0].waiting.Load() == 1 })
	c.call(func() { // what comes meanwhile waits
		for i := range c.book.reqs {
			if j := c.book.reqs[i].job; j != nil {
				late = j
			}
		}
		cancel()
		until(func() bool {
			c.in.mu.Lock()
			defer c.in.mu.Unlock()
			return len(c.in.cancels) == 1
		})
		c.book.refuse(late, policy.ReasonDeadline)
		c.Flush()
		if how := reasonOf(<-answered); how != "deadline" {
			t.Errorf("the client has %q", how)
		}
		if n := late.refs.Load(); n != 1 {
			t.Errorf("%d hold the job while the news of its client waits, expected 1", n)
		}
	})
	c.call(func() {
		if n := late.refs.Load(); n != 0 {
			t.Errorf("%d hold the job in the end", n)
		}
	})
}

// What is aborted with a lost worker and nobody waits for does not run again.
func TestAbortedAndCancelled(t *testing.T) {
	x := open(t, onePlan(time.Hour, 1, 1, 10*time.Hour), replayOptions(false))
	c := x.core.Load()
	ctx, cancel := context.WithCancel(context.Background())
	answered := make(chan error, 1)
	go func() {
		_, err := x.Infer(ctx, sample(x, 1))
		answered <- err
	}()
	until(func() bool { return c.served.models[0].running.Load() == 1 })
	cancel()
	if how := reasonOf(<-answered); how != "cancelled" {
		t.Fatal(how)
	}
	c.call(func() { workersOf(c).devices[0].proc.Kill() })
	until(func() (back bool) {
		c.call(func() { back = workersOf(c).devices[0].gen == 2 })
		return back
	})
	if q, slots := held(x); q != 0 || slots != 0 {
		t.Errorf("the policy still has %d requests, %d slots are in use", q, slots)
	}
}
