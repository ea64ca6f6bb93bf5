package executor

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

// core is one plan in execution: a policy that one goroutine at a time turns to
// (package loop), and the backends that execute what it decides.
type core struct {
	opt      *Options
	kinds    *kinds
	plan     *formats.Plan
	sha      string             // of the plan's file
	spec     formats.PolicySpec // of policy
	tables   *policy.Tables
	served   offer
	services []*model // what tasks ask for; without a Control the models
	execution
	answers answer
	control policy.Control // nil: one task per request
	decides policy.Policy
	mix     *drift.Mix // of a plan with several models; nil for others
	arrived []int64    // room for a count by model
	stats   *stats
	metrics *metrics
	loop    *loop.Loop
	in      inbox

	// What follows belongs to whoever has the turn.
	book     ledger
	batches  batchTable
	events   []queued
	skips    []queued
	stopping bool
	moving   bool          // what is not answered goes to another plan of this process
	watched  time.Duration // when backends were looked at last
	watch    time.Duration // until they are again
	counted  time.Duration // when requests were counted last
}

// prepare makes what a core has before anything executes.
func (c *core) prepare() (err error) {
	t := c.tables
	c.metrics = newMetrics(t.Models)
	c.metrics.plan.WithLabelValues(c.sha, c.plan.Kind, c.spec.Name).Set(1)
	if c.control != nil {
		c.services = servicesOf(t, c.metrics)
	}
	if c.answers, err = newAnswer(c); err != nil {
		return err
	}
	c.served = modelsOf(t, c.metrics, c.answers.oneFamily())
	c.served.sizes = bucketsOf(c.plan, c.served.named)
	if c.control == nil {
		c.services = c.served.models
	}
	c.metrics.gauges.models = c.served.models
	c.mix, c.arrived = drift.NewMix(c.plan, t, drift.Limit{Distance: c.opt.MixLimit, Windows: c.opt.MixWindows}, c.metrics.registry), make([]int64, len(t.Models))
	c.stats = &stats{core: c, metrics: c.metrics}
	if c.opt.RecordService {
		c.stats.service = newRecorder(t)
	}
	c.book.c, c.book.shares = c, fair.New(t)
	c.watch = watchOf(t)
	return nil
}

// begin starts the loop. Its first event says that the plan is in force.
func (c *core) begin() {
	c.in.attend = c.loop.Attend
	c.loop.SearchLimit = c.opt.SearchLimit
	c.loop.SearchFailed = func(tag int32, err error) {
		c.opt.Log.Error("a search of the policy failed", "tag", tag, "error", err)
	}
	if c.tables.Hears != 0 {
		c.loop.Deaf = ^c.tables.Hears
	}
	c.loop.SetWake(watchTag, c.watch)
	c.loop.Start(func() { c.handle(policy.Event{Kind: policy.PlanInstalled}) })
	for _, b := range c.backends {
		b.begin()
	}
}

func (c *core) now() time.Duration { return c.loop.Now() }

// since is a moment of CLOCK_MONOTONIC on the core's clock.
func (c *core) since(mono int64) time.Duration { return c.loop.Since(mono) }

// call runs f in a round; false when the core has ended.
func (c *core) call(f func()) bool { return c.loop.Call(f) }

// ready says whether some pipeline of a model executes at every stage, and of
// each service that its requests may come to.
func (c *core) ready(m *model) bool {
	services := c.answers.needs(m.index)
	for _, s := range services {
		own := &c.tables.Services[s]
		if !c.whole(own.FirstPipeline, own.FirstPipeline+own.NumPipelines) {
			return false
		}
	}
	return services != nil || c.whole(c.tables.PipelinesOf(m.index))
}

// whole tells whether one of some pipelines executes at every stage.
func (c *core) whole(first, last int32) bool {
	for p := first; p < last; p++ {
		pl := &c.tables.Pipelines[p]
		whole := true
		for s := pl.FirstStage; whole && s < pl.FirstStage+pl.NumStages; s++ {
			whole = slices.ContainsFunc(c.tables.DevicesOf(s), func(d int32) bool { return c.backendOf(d).up(d) })
		}
		if whole {
			return true
		}
	}
	return false
}

// drain takes no more jobs and waits until those inside are answered.
func (c *core) drain(ctx context.Context) error {
	c.in.close()
	idle := make(chan struct{})
	if !c.call(func() { c.book.idle = append(c.book.idle, idle) }) {
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

// stop answers what is left, ends the rounds and what executes.
func (c *core) stop() error {
	c.in.close()
	c.call(func() {
		c.book.refuseAll(policy.ReasonDraining)
		c.stopping = true
	})
	<-c.loop.Done()
	c.closeBackends()
	return c.loop.Close()
}
