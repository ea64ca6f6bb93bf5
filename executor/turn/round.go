package turn

import (
	"cmp"
	"sync"
	"time"

	"inferplan/executor/loop"
	"inferplan/policy"
)

// inbox holds what other goroutines leave for the core.
type inbox struct {
	mu        sync.Mutex
	isClosed  bool   // no further job is accepted
	wakeLoop  func() // makes sure that a round looks at the inbox
	content   inboxContent
	lastTaken inboxContent // content of the last round; belongs to the turn
}

// inboxContent is the content that a round takes from the inbox.
type inboxContent struct {
	backendEvents []BackendEvent
	arrivals      []*Job
	cancels       []*Job
}

// SubmitJob puts a client's job into the inbox of the core, whose next round takes it; the caller's goroutine may run
// that round itself. Once the core accepts no more, it returns false, and the job still belongs to the caller.
func (in *inbox) SubmitJob(j *Job) bool {
	in.mu.Lock()
	if in.isClosed {
		in.mu.Unlock()
		return false
	}
	in.content.arrivals = append(in.content.arrivals, j)
	in.mu.Unlock()
	in.wakeLoop()
	return true
}

// CancelJob puts into the inbox that nobody waits for a job any more. The message counts as a holder of the job, so that
// the job does not return to the pool, and become another client's job, before the message is read.
func (in *inbox) CancelJob(j *Job) {
	j.Holds.Add(1)
	in.mu.Lock()
	in.content.cancels = append(in.content.cancels, j)
	in.mu.Unlock()
	in.wakeLoop()
}

// PostEvents puts events of backends into the inbox of the core, from any goroutine, and wakes its loop, which
// handles them in the next round.
func (in *inbox) PostEvents(n ...BackendEvent) {
	in.mu.Lock()
	in.content.backendEvents = append(in.content.backendEvents, n...)
	in.mu.Unlock()
	in.wakeLoop()
}

// refuseJobs refuses further jobs.
func (in *inbox) refuseJobs() {
	in.mu.Lock()
	in.isClosed = true
	in.mu.Unlock()
}

// takeContent returns the content of the inbox for this round, and leaves the emptied lists of the last round in
// its place, so that their memory is used again.
func (in *inbox) takeContent() *inboxContent {
	t := &in.lastTaken
	clear(t.backendEvents)
	clear(t.arrivals)
	clear(t.cancels)
	t.backendEvents, t.arrivals, t.cancels = t.backendEvents[:0], t.arrivals[:0], t.cancels[:0]
	in.mu.Lock()
	*t, in.content = in.content, *t
	in.mu.Unlock()
	return t
}

// UnhandledEvents returns the events that no round handled. It is called after the last one.
func (in *inbox) UnhandledEvents() []BackendEvent {
	in.mu.Lock()
	defer in.mu.Unlock()
	return append(in.lastTaken.backendEvents, in.content.backendEvents...)
}

// Round is one pass of the core's loop: it handles everything that has arrived, in a fixed order: events of
// backends, results of searches, jobs, cancels, timers and calls. It implements loop.Host.
func (c *Core) Round() {
	t := c.Inbox.takeContent()
	for i := range t.backendEvents {
		n := &t.backendEvents[i]
		c.Backends.BackendOf(n.Device).HandleEvent(n)
		c.Flush()
	}
	c.Loop.TellResults()
	for _, j := range t.arrivals {
		// Timers that are due fire before the policy is told of the job.
		c.Loop.FireTimers()
		c.Ledger.addJob(j)
		c.Flush()
	}
	for _, j := range t.cancels {
		c.Ledger.RefuseJob(j, policy.ReasonCancelled)
		c.Flush()
		j.Release()
	}
	c.Loop.FireTimers()
	for _, b := range c.Backends.backends {
		b.SendWaiting()
	}
	c.Loop.RunCalls()
	c.Ledger.notifyIdle()
	if c.isStopping {
		c.endRounds()
	}
}

// endRounds is called in the last round, when the core stops. It refuses the jobs that came in meanwhile, and ends
// the loop after this round.
func (c *Core) endRounds() {
	c.Inbox.refuseJobs()
	for _, j := range c.Inbox.takeContent().arrivals {
		c.Ledger.refuseUntold(j, policy.ReasonDraining)
	}
	c.Loop.EndAfterRound()
}

// watchTag is the tag of the core's own timer, which no policy uses.
const watchTag = loop.HostTag

// WatchInterval is the time between two watches of the backends, unless an SLO is so short that watches have to be more
// frequent (watchIntervalOf). countInterval is the time between two counts of requests.
const (
	WatchInterval    = 200 * time.Millisecond
	minWatchInterval = 10 * time.Millisecond
	countInterval    = time.Second
)

// watchIntervalOf returns half of the shortest SLO, at most WatchInterval: a request that waits for a worker that hangs
// is answered one SLO after its deadline.
func watchIntervalOf(t *policy.Tables) time.Duration {
	interval := WatchInterval
	for i := range t.Models {
		interval = min(interval, max(t.Models[i].SLO/2, minWatchInterval))
	}
	return interval
}

// TimerFired is called when the core's own timer is due. It has the backends look for hanging work, and counts
// requests each second. Time in which the loop did not run, as on a machine that was suspended, is passed to them
// as paused. It implements loop.Host.
func (c *Core) TimerFired(int32) {
	now := c.Loop.Now()
	paused := max(0, now-c.watchedAt-2*c.watchInterval) // a timer may be late by one interval
	c.watchedAt = now
	for _, b := range c.Backends.backends {
		b.Watch(now, paused)
	}
	if now >= c.countedAt+countInterval {
		c.countedAt = now
		c.countRates(now)
	}
	c.Loop.SetTimer(watchTag, now+c.watchInterval)
}

// countRates is called every second. It passes the requests so far, by model, to the watch of the mix (whether the
// models' shares are as planned), and lets the answerer do its own work.
func (c *Core) countRates(now time.Duration) {
	if c.mix != nil {
		for i, m := range c.ServedModels.Models {
			m.Stats.Mu.Lock()
			c.requestCounts[i] = m.Stats.Requests
			m.Stats.Mu.Unlock()
		}
		c.mix.Window(now, c.requestCounts, c.Options.Log)
	}
	c.Answerer.EverySecond(now)
}

// pendingEvent is an event that follows from an action, or a batch whose hop is skipped.
type pendingEvent struct {
	ev     policy.Event
	batch  *Batch // nil if the event is of none
	serial uint64
	ticket int32 // of a PlaceInputs, without a batch
}

// hasEnded returns true if the batch has ended meanwhile.
func (q *pendingEvent) hasEnded() bool { return !q.batch.isLive || q.batch.Serial != q.serial }

// Flush tells the policy what followed from its actions, until nothing more follows: queued events first, then runs
// that were skipped, then requests that nobody waits for. It implements loop.Host and is called after each event.
func (c *Core) Flush() {
	for {
		switch {
		case len(c.events) > 0:
			q := c.events[0]
			c.events = c.events[:copy(c.events, c.events[1:])]
			q.tell(c)
		case len(c.Batches.skippedRuns) > 0:
			q := c.Batches.skippedRuns[0]
			c.Batches.skippedRuns = c.Batches.skippedRuns[:copy(c.Batches.skippedRuns, c.Batches.skippedRuns[1:])]
			q.endHop(c)
		default:
			// Requests that nobody waits for come last.
			ev, more := c.Ledger.nextUnwanted()
			if !more {
				return
			}
			if ev.Kind == policy.Cancel {
				c.Loop.TellPolicy(ev)
			}
		}
	}
}

// tell tells the policy a queued event, unless it is void by now: its batch has ended, or its inputs were placed
// for a task that is gone.
func (q *pendingEvent) tell(c *Core) {
	switch {
	case q.batch != nil && q.hasEnded():
	case q.ev.Kind == policy.TransferFinished && q.batch == nil && !c.Answerer.InputsPlaced(&q.ev, q.ticket):
	default:
		c.Loop.TellPolicy(q.ev)
	}
}

// endHop ends a hop (the pass of a batch through one stage) that is skipped because the batch has failed. The policy is
// told that the hop ended now and took no time, or, if the batch goes back to its queue, gets the batch returned. If the
// batch has ended already, nothing is done.
func (q *pendingEvent) endHop(c *Core) {
	b := q.batch
	switch {
	case q.hasEnded():
	case b.goesBack:
		c.Batches.TellReturned(b, cmp.Or(b.ReturnReason, policy.ReturnFailed), nil)
	default:
		now := c.Loop.Now()
		c.Batches.FinishHop(b, b.Hops[b.CurrentHop].Device, now, now)
	}
}
