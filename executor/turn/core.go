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

// Core is a plan in execution: a policy that one goroutine at a time calls (package loop), and the backends that execute
// its decisions.
type Core struct {
	Options  *Options
	Kinds    *Kinds
	Plan     *formats.Plan
	Sha      string             // SHA-256 of the plan's file
	Spec     formats.PolicySpec // of the policy
	Tables   *policy.Tables
	Served   offer
	Services []*Model // what tasks ask for; without a Control these are the models
	execution
	Answers Answer
	Control policy.Control // nil if every request has one task
	Policy  policy.Policy
	mix     *drift.Mix // nil for plans with a single model
	arrived []int64    // scratch: requests by model
	Stats   *Stats
	Metrics *Metrics
	loop    *loop.Loop
	inbox

	// The next fields belong to the goroutine that has the turn.
	ledger
	batchTable
	events   []queued
	stopping bool
	moving   bool          // unanswered requests go to another plan of this process
	watched  time.Duration // when backends were last watched
	watch    time.Duration // time between two watches
	counted  time.Duration // when requests were last counted
}

// Prepare creates what a core has before anything executes.
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

// StartLoop starts the loop, with a log of its events if `log` is not nil. The first event says that the plan is in
// force.
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

// OnCoreClock converts a time of CLOCK_MONOTONIC to the core's clock.
func (c *Core) Since(mono int64) time.Duration { return c.loop.Since(mono) }

// LastEventTime returns when the policy was last told an event.
func (c *Core) Last() time.Duration { return c.loop.Last() }

// Epoch returns when the core's clock started.
func (c *Core) Epoch() time.Time { return c.loop.Epoch() }

// Events returns the number of events that the policy has handled.
func (c *Core) Events() int64 { return c.loop.Told() }

// CallInRound runs f in a round. If the core has ended, it returns false.
func (c *Core) Call(f func()) bool { return c.loop.Call(f) }

// IsReady returns true if some pipeline of a model executes at every stage, and some pipeline of each service that its
// requests may need.
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

// hasFullPipeline returns true if one of a range of pipelines executes at every stage.
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

// Report adds to a report what backends, transfers and the answerer know of the time since the start.
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

// Drain accepts no more jobs, and waits until all accepted ones are answered.
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

// MoveRequests accepts no more jobs. Unanswered ones go to another plan of this process and do not count here.
func (c *Core) Move() {
	c.inbox.shut()
	c.Call(func() { c.moving = true })
}

// Stop answers the remaining jobs, and ends the rounds and the backends.
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
