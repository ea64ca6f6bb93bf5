package executor

import (
	"context"
	"slices"
	"sync"
	"time"

	"inferplan/engine/worker"
	"inferplan/executor/loop"
	"inferplan/executor/oip"
	"inferplan/formats"
	"inferplan/policy"
)

// core is one plan in execution: a policy that one goroutine at a time turns to
// (package loop), its workers and their supervisors.
type core struct {
	opt     *Options
	plan    *formats.Plan
	spec    formats.PolicySpec // of policy
	tables  *policy.Tables
	models  []*model
	named   *formats.Classes // of models
	catalog *oip.Catalog
	stages  []stagePlan
	devices []*device
	answers answer
	mix     *mix    // of a plan with several models; nil for others
	arrived []int64 // room for a count by model
	stats   *stats
	metrics *metrics
	loop    *loop.Loop

	in      inbox
	copiers *copiers
	ctx     context.Context // of supervisors and workers
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	// What follows belongs to whoever has the turn.
	reqs     []request
	freeReqs []int32
	batches  []*batch
	spare    []*batch
	freeRuns []*run
	nextRun  uint64
	serial   uint64
	events   []queued
	skips    []queued
	forsaken []int32 // slots of requests that nobody waits for
	cmd      [1]worker.Run
	open     int // jobs without answer
	idle     []chan<- struct{}
	stopping bool
	watched  time.Duration // when workers were looked at last
	taken    inboxContent
}

func (c *core) now() time.Duration { return c.loop.Now() }

// since is a moment of CLOCK_MONOTONIC on the core's clock.
func (c *core) since(mono int64) time.Duration { return c.loop.Since(mono) }

// call runs f in a round; false when the core has ended.
func (c *core) call(f func()) bool { return c.loop.Call(f) }

func (c *core) setUp(d *device, up bool) {
	d.up.Store(up)
	c.metrics.up(d.index, up)
}

// ready says whether some pipeline of a model has a worker at every stage.
func (c *core) ready(m *model) bool {
	first, last := c.tables.PipelinesOf(m.index)
	for p := first; p < last; p++ {
		pl := &c.tables.Pipelines[p]
		whole := true
		for s := pl.FirstStage; whole && s < pl.FirstStage+pl.NumStages; s++ {
			whole = slices.ContainsFunc(c.tables.DevicesOf(s), func(d int32) bool { return c.devices[d].up.Load() })
		}
		if whole {
			return true
		}
	}
	return false
}
