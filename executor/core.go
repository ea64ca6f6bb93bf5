package executor

import (
	"context"
	"slices"
	"sync"
	"time"

	"inferplan/engine/worker"
	"inferplan/executor/oip"
	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/conform"
)

// core is one plan in execution: a policy that one goroutine at a time turns to
// (loop.go), its workers and their supervisors.
type core struct {
	opt     *Options
	plan    *formats.Plan
	spec    formats.PolicySpec // of policy
	tables  *policy.Tables
	policy  policy.Policy
	models  []*model
	named   *formats.Classes // of models
	catalog *oip.Catalog
	stages  []stagePlan
	devices []*device
	answers answer
	mix     *mix     // of a plan with several models; nil for others
	arrived []int64  // room for a count by model
	stats   *stats
	metrics *metrics
	log     *conform.Recorder // nil: no event log

	epoch     time.Time
	epochMono int64

	in      inbox
	alarm   *alarm
	copiers *copiers
	ctx     context.Context // of supervisors and workers
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	done    chan struct{} // closed when the last round is over

	// What follows belongs to whoever has the turn.
	turn     sync.Mutex
	ended    bool
	last     time.Duration
	reqs     []request
	freeReqs []int32
	batches  []*batch
	spare    []*batch
	freeRuns []*run
	nextRun  uint64
	serial   uint64
	event    policy.Event // that the policy is told; see handle
	actions  policy.Actions
	events   []queued
	skips    []queued
	forsaken []int32 // slots of requests that nobody waits for
	wakes    []wakeup
	cmd      [1]worker.Run
	open     int // jobs without answer
	idle     []chan<- struct{}
	stopping bool
	watched  time.Duration // when workers were looked at last
	taken    inboxContent
}

func (c *core) now() time.Duration { return time.Since(c.epoch) }

// tick is now for the policy: it never goes back.
func (c *core) tick() time.Duration {
	c.last = max(c.last, c.now())
	return c.last
}

func (c *core) since(mono int64) time.Duration { return time.Duration(mono - c.epochMono) }

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
