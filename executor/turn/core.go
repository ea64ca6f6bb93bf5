package turn

import (
	"context"
	"io"
	"slices"
	"time"

	"inferplan/executor/drift"
	"inferplan/executor/loop"
	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/fair"
)

// Core is one plan in execution: a policy that one goroutine at a time turns to
// (package loop), and the backends that execute what it decides.
type Core struct {
	Options  *Options
	Kinds    *Kinds
	Plan     *formats.Plan
	Sha      string             // of the plan's file
	Spec     formats.PolicySpec // of policy
	Tables   *policy.Tables
	Served   offer
	Services []*Model // what tasks ask for; without a Control the models
	execution
	Answers Answer
	Control policy.Control // nil: one task per request
	Policy  policy.Policy
	mix     *drift.Mix // of a plan with several models; nil for others
	arrived []int64    // room for a count by model
	Stats   *Stats
	Metrics *Metrics
	loop    *loop.Loop
	inbox

	// What follows belongs to whoever has the turn.
	ledger
	batchTable
	events   []queued
	stopping bool
	moving   bool          // what is not answered goes to another plan of this process
	watched  time.Duration // when backends were looked at last
	watch    time.Duration // until they are again
	counted  time.Duration // when requests were counted last
}

// Prepare makes what a core has before anything executes.
func (c *Core) Prepare() (err error) {
	t := c.Tables
	c.Metrics = NewMetrics(t.Models)
	c.Metrics.plan.WithLabelValues(c.Sha, c.Plan.Kind, c.Spec.Name).Set(1)
	if c.Control != nil {
		c.Services = servicesOf(t, c.Metrics)
	}
	if c.Answers, err = newAnswer(c); err != nil {
		return err
	}
	c.Served = modelsOf(t, c.Metrics, c.Answers.OneFamily())
	c.Served.sizes = bucketsOf(c.Plan, c.Served.Named)
	if c.Control == nil {
		c.Services = c.Served.Models
	}
	c.Metrics.gauges.Models = c.Served.Models
	c.mix, c.arrived = drift.NewMix(c.Plan, t, drift.Limit{Distance: c.Options.MixLimit, Windows: c.Options.MixWindows}, c.Metrics.Registry), make([]int64, len(t.Models))
	c.Stats = &Stats{Core: c, Metrics: c.Metrics}
	if c.Options.RecordService {
		c.Stats.Service = NewRecorder(t)
	}
	c.ledger.c, c.ledger.shares, c.batchTable.c = c, fair.New(t), c
	c.watch = watchOf(t)
	return nil
}

// Begin starts the loop, with a log of its events (nil: none). The first one says that the
// plan is in force.
func (c *Core) Begin(log io.Writer) (err error) {
	if c.loop, err = loop.New(c.Policy, c, log); err != nil {
		return err
	}
	c.inbox.attend = c.loop.Attend
	c.loop.SearchLimit = c.Options.SearchLimit
	c.loop.SearchFailed = func(tag int32, err error) {
		c.Options.Log.Error("a search of the policy failed", "tag", tag, "error", err)
	}
	if c.Tables.Hears != 0 {
		c.loop.Deaf = ^c.Tables.Hears
	}
	c.loop.SetWake(watchTag, c.watch)
	c.loop.Start(func() { c.Tell(policy.Event{Kind: policy.PlanInstalled}) })
	for _, b := range c.backends {
		b.Begin()
	}
	return nil
}

func (c *Core) Now() time.Duration { return c.loop.Now() }

// Since is a moment of CLOCK_MONOTONIC on the core's clock.
func (c *Core) Since(mono int64) time.Duration { return c.loop.Since(mono) }

// Last is when the last event was told.
func (c *Core) Last() time.Duration { return c.loop.Last() }

// Epoch is when the core's clock began.
func (c *Core) Epoch() time.Time { return c.loop.Epoch() }

// Events returns the number of events that the policy has handled.
func (c *Core) Events() int64 { return c.loop.Told() }

// Call runs f in a round; false when the core has ended.
func (c *Core) Call(f func()) bool { return c.loop.Call(f) }

// Ready says whether some pipeline of a model executes at every stage, and of
// each service that its requests may come to.
func (c *Core) Ready(m *Model) bool {
	services := c.Answers.Needs(m.Index)
	for _, s := range services {
		own := &c.Tables.Services[s]
		if !c.whole(own.FirstPipeline, own.FirstPipeline+own.NumPipelines) {
			return false
		}
	}
	return services != nil || c.whole(c.Tables.PipelinesOf(m.Index))
}

// whole tells whether one of some pipelines executes at every stage.
func (c *Core) whole(first, last int32) bool {
	for p := first; p < last; p++ {
		pl := &c.Tables.Pipelines[p]
		whole := true
		for s := pl.FirstStage; whole && s < pl.FirstStage+pl.NumStages; s++ {
			whole = slices.ContainsFunc(c.Tables.DevicesOf(s), func(d int32) bool { return c.BackendOf(d).Up(d) })
		}
		if whole {
			return true
		}
	}
	return false
}

// Report adds to a report what backends, tiers and answers know of the time since the start.
func (c *Core) Report(r *formats.Report, elapsed time.Duration) {
	for _, b := range c.backends {
		if reports, ok := b.(interface {
			Report(r *formats.Report, elapsed time.Duration)
		}); ok {
			reports.Report(r, elapsed)
		}
	}
	r.Transfer = c.Stats.Tiers()
	c.Answers.Report(r)
}

// Drain takes no more jobs and waits until those inside are answered.
func (c *Core) Drain(ctx context.Context) error {
	c.inbox.shut()
	idle := make(chan struct{})
	if !c.Call(func() { c.ledger.idle = append(c.ledger.idle, idle) }) {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-c.loop.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Move takes no more jobs. What is not answered then goes to another plan of this process,
// and does not count here.
func (c *Core) Move() {
	c.inbox.shut()
	c.Call(func() { c.moving = true })
}

// Stop answers what is left, ends the rounds and what executes.
func (c *Core) Stop() error {
	c.inbox.shut()
	c.Call(func() {
		c.ledger.refuseAll(policy.ReasonDraining)
		c.stopping = true
	})
	<-c.loop.Done()
	c.CloseBackends()
	return c.loop.Close()
}
