package executor

import (
	"context"
	"testing"
	"time"

	"inferplan/executor/turn"
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
	var late *turn.Job
	until(func() bool { return c.ServedModels.Models[0].Waiting.Load() == 1 })
	c.Loop.CallInRound(func() { // what comes meanwhile waits
		late = c.Ledger.RequestIn(0).Job
		cancel()
		until(func() bool { return late.Holds.Load() == 3 }) // of the client, the core and this news
		c.Ledger.RefuseJob(late, policy.ReasonDeadline)
		c.Flush()
		if how := reasonOf(<-answered); how != "deadline" {
			t.Errorf("the client has %q", how)
		}
		if n := late.Holds.Load(); n != 1 {
			t.Errorf("%d hold the job while the news of its client waits, expected 1", n)
		}
	})
	c.Loop.CallInRound(func() {
		if n := late.Holds.Load(); n != 0 {
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
	until(func() bool { return c.ServedModels.Models[0].Running.Load() == 1 })
	cancel()
	if how := reasonOf(<-answered); how != "cancelled" {
		t.Fatal(how)
	}
	c.Loop.CallInRound(func() { workersOf(c).Devices[0].Process.Kill() })
	until(func() (back bool) {
		c.Loop.CallInRound(func() { back = workersOf(c).Devices[0].Generation == 2 })
		return back
	})
	if q, slots := held(x); q != 0 || slots != 0 {
		t.Errorf("the policy still has %d requests, %d slots are in use", q, slots)
	}
}
