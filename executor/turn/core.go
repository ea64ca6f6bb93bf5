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
	Options       *Options
	Factories     *Factories
	Plan          *formats.Plan
	PlanSHA       string             // SHA-256 of the plan's file
	Spec          formats.PolicySpec // of the policy
	Tables        *policy.Tables
	ServedModels  servedModels
	Services      []*Model // what tasks ask for; without a Control these are the models
	Backends      backendSet
	Answerer      Answerer
	Control       policy.Control // nil if every request has one task
	Policy        policy.Policy
	mix           *drift.MixDrift // nil for plans with a single model
	requestCounts []int64         // scratch: requests by model
	Stats         *Stats
	Metrics       *Metrics
	Loop          *loop.Loop
	Inbox         inbox

	// The next fields belong to the goroutine that has the turn.
	Ledger        requestLedger
	Batches       batchTable
	events        []pendingEvent
	isStopping    bool
	isMoving      bool          // unanswered requests go to another plan of this process
	watchedAt     time.Duration // when backends were last watched
	watchInterval time.Duration // time between two watches
	countedAt     time.Duration // when requests were last counted
}

// Prepare creates the parts of a core that are needed before anything executes: metrics, the models and services
// that clients see, the answerer, statistics. It returns an error if the plan does not fit them.
func (c *Core) Prepare() (err error) {
	t := c.Tables
	c.Metrics = NewMetrics(t.Models)
	c.Metrics.plan.WithLabelValues(c.PlanSHA, c.Plan.Kind, c.Spec.Name).Set(1)
	// With a control, requests have several tasks, which ask for services; else each model is its own service.
	if c.Control != nil {
		c.Services = servicesOf(t, c.Metrics)
	}
	if c.Answerer, err = newAnswerer(c); err != nil {
		return err
	}
	c.ServedModels = modelsOf(t, c.Metrics, c.Answerer.IsOneFamily())
	c.ServedModels.bucketSets = bucketsOf(c.Plan, c.ServedModels.ClassNames)
	if c.Control == nil {
		c.Services = c.ServedModels.Models
	}
	c.Metrics.gauges.Models = c.ServedModels.Models
	c.mix, c.requestCounts = drift.NewMixDrift(c.Plan, t, drift.Limit{Distance: c.Options.MixLimit, Windows: c.Options.MixWindows}, c.Metrics.Registry), make([]int64, len(t.Models))
	c.Stats = &Stats{Core: c, Metrics: c.Metrics}
	if c.Options.RecordService {
		c.Stats.Recorder = NewRecorder(t)
	}
	c.Ledger.core, c.Ledger.clientShares, c.Batches.core = c, fair.New(t), c
	c.watchInterval = watchIntervalOf(t)
	return nil
}

// StartLoop starts the loop, in whose rounds everything of the core happens, with a log of its events if `log` is not
// nil. The policy first gets the event that the plan is in force. Then the backends are told that the loop runs, from
// which time on they may post events.
func (c *Core) StartLoop(log io.Writer) (err error) {
	if c.Loop, err = loop.New(c.Policy, c, log); err != nil {
		return err
	}
	c.Inbox.wakeLoop = c.Loop.Wake
	c.Loop.SearchLimit = c.Options.SearchLimit
	c.Loop.SearchFailed = func(tag int32, err error) {
		c.Options.Log.Error("a search of the policy failed", "tag", tag, "error", err)
	}
	// Do not pass events to the policy that it never handles; 0 stands for a policy that handles all.
	if c.Tables.HandledEvents != 0 {
		c.Loop.IgnoredEvents = ^c.Tables.HandledEvents
	}
	c.Loop.SetTimer(watchTag, c.watchInterval)
	c.Loop.Start(func() { c.Loop.TellPolicy(policy.Event{Kind: policy.PlanInstalled}) })
	for _, b := range c.Backends.backends {
		b.LoopStarted()
	}
	return nil
}

// IsReady returns true if requests for model m can be served now: some pipeline of each service that they may need has a
// working device at every stage. If the plan's kind has no services apart from models (nil), it asks this of the model's
// pipelines.
func (c *Core) IsReady(m *Model) bool {
	services := c.Answerer.ServicesNeeded(m.Index)
	for _, s := range services {
		service := &c.Tables.Services[s]
		if !c.hasFullPipeline(service.FirstPipeline, service.FirstPipeline+service.NumPipelines) {
			return false
		}
	}
	return services != nil || c.hasFullPipeline(c.Tables.PipelinesOf(m.Index))
}

// hasFullPipeline returns true if one of the pipelines with the indexes first to last-1 has, at every stage, a device
// that is up. A pipeline is a model cut into stages that run on different devices.
func (c *Core) hasFullPipeline(first, last int32) bool {
	for p := first; p < last; p++ {
		pipeline := &c.Tables.Pipelines[p]
		complete := true
		for s := pipeline.FirstStage; complete && s < pipeline.FirstStage+pipeline.NumStages; s++ {
			complete = slices.ContainsFunc(c.Tables.DevicesOf(s), func(d int32) bool { return c.Backends.BackendOf(d).IsUp(d) })
		}
		if complete {
			return true
		}
	}
	return false
}

// Report adds to a report what the backends, the transfers of tensors and the answerer have counted in `elapsed`, the
// time since the core started. Backends without a part in reports are passed over.
func (c *Core) Report(r *formats.Report, elapsed time.Duration) {
	for _, b := range c.Backends.backends {
		if reports, ok := b.(interface {
			Report(r *formats.Report, elapsed time.Duration)
		}); ok {
			reports.Report(r, elapsed)
		}
	}
	r.Transfer = c.Stats.TierReport()
	c.Answerer.Report(r)
}

// Drain refuses new jobs and waits until all accepted ones are answered or the loop has ended; then it returns nil. If
// ctx ends before, it returns the error of ctx. It is called before a plan is replaced or the process ends.
func (c *Core) Drain(ctx context.Context) error {
	c.Inbox.refuseJobs()
	idle := make(chan struct{})
	if !c.Loop.CallInRound(func() { c.Ledger.idleWaiters = append(c.Ledger.idleWaiters, idle) }) {
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

// MoveRequests accepts no more jobs. Unanswered ones go to another plan of this process and do not count here.
func (c *Core) MoveRequests() {
	c.Inbox.refuseJobs()
	c.Loop.CallInRound(func() { c.isMoving = true })
}

// Stop ends a core: it refuses new jobs, answers the remaining ones as dropped (draining) in a last round, waits for the
// loop to end, and closes the backends. It returns an error of the event log.
func (c *Core) Stop() error {
	c.Inbox.refuseJobs()
	c.Loop.CallInRound(func() {
		c.Ledger.refuseAll(policy.ReasonDraining)
		c.isStopping = true
	})
	<-c.Loop.Done()
	c.Backends.CloseBackends()
	return c.Loop.Close()
}
