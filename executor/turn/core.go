package turn

import (
	"context"
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
	Loop    *loop.Loop
	Inbox   inbox

	// What follows belongs to whoever has the turn.
	Ledger   ledger
	Batches  batchTable
	events   []Queued
	Skips    []Queued
	stopping bool
	Moving   bool          // what is not answered goes to another plan of this process
	Watched  time.Duration // when backends were looked at last
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
	c.Ledger.c, c.Ledger.shares = c, fair.New(t)
	c.watch = watchOf(t)
	return nil
}

// Begin starts the loop. Its first event says that the plan is in force.
func (c *Core) Begin() {
	c.Inbox.attend = c.Loop.Attend
	c.Loop.SearchLimit = c.Options.SearchLimit
	c.Loop.SearchFailed = func(tag int32, err error) {
		c.Options.Log.Error("a search of the policy failed", "tag", tag, "error", err)
	}
	if c.Tables.Hears != 0 {
		c.Loop.Deaf = ^c.Tables.Hears
	}
	c.Loop.SetWake(WatchTag, c.watch)
	c.Loop.Start(func() { c.Handle(policy.Event{Kind: policy.PlanInstalled}) })
	for _, b := range c.Backends {
		b.Begin()
	}
}

func (c *Core) Now() time.Duration { return c.Loop.Now() }

// Since is a moment of CLOCK_MONOTONIC on the core's clock.
func (c *Core) Since(mono int64) time.Duration { return c.Loop.Since(mono) }

// Call runs f in a round; false when the core has ended.
func (c *Core) Call(f func()) bool { return c.Loop.Call(f) }

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

// Drain takes no more jobs and waits until those inside are answered.
func (c *Core) Drain(ctx context.Context) error {
	c.Inbox.Close()
	idle := make(chan struct{})
	if !c.Call(func() { c.Ledger.idle = append(c.Ledger.idle, idle) }) {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-c.Loop.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stop answers what is left, ends the rounds and what executes.
func (c *Core) Stop() error {
	c.Inbox.Close()
	c.Call(func() {
		c.Ledger.refuseAll(policy.ReasonDraining)
		c.stopping = true
	})
	<-c.Loop.Done()
	c.CloseBackends()
	return c.Loop.Close()
}
