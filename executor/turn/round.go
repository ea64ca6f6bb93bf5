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
	mu     sync.Mutex
	closed bool   // no further job is accepted
	attend func() // makes sure that a round looks at the inbox
	inboxContent
	taken inboxContent // content of the last round; belongs to the turn
}

// inboxContent is the content that a round takes from the inbox.
type inboxContent struct {
	news     []News
	arrivals []*Job
	cancels  []*Job
}

// SubmitJob hands over a job. It returns false once the core accepts no more.
func (in *inbox) Submit(j *Job) bool {
	in.mu.Lock()
	if in.closed {
		in.mu.Unlock()
		return false
	}
	in.arrivals = append(in.arrivals, j)
	in.mu.Unlock()
	in.attend()
	return true
}

// CancelJob says that nobody waits for a job any more. The message holds the job: it may have been answered, and be
// another client's job by the time it is read.
func (in *inbox) Cancel(j *Job) {
	j.Refs.Add(1)
	in.mu.Lock()
	in.cancels = append(in.cancels, j)
	in.mu.Unlock()
	in.attend()
}

// PostEvents leaves events of backends.
func (in *inbox) Post(n ...News) {
	in.mu.Lock()
	in.news = append(in.news, n...)
	in.mu.Unlock()
	in.attend()
}

// refuseJobs refuses further jobs.
func (in *inbox) shut() {
	in.mu.Lock()
	in.closed = true
	in.mu.Unlock()
}

// takeContent returns the content of the inbox, and leaves the emptied one of the last round in its place.
func (in *inbox) take() *inboxContent {
	t := &in.taken
	clear(t.news)
	clear(t.arrivals)
	clear(t.cancels)
	t.news, t.arrivals, t.cancels = t.news[:0], t.arrivals[:0], t.cancels[:0]
	in.mu.Lock()
	*t, in.inboxContent = in.inboxContent, *t
	in.mu.Unlock()
	return t
}

// UnhandledEvents returns the events that no round handled. It is called after the last one.
func (in *inbox) LeftNews() []News {
	in.mu.Lock()
	defer in.mu.Unlock()
	return append(in.taken.news, in.news...)
}

// Round handles everything that has arrived: events of backends, results of searches, jobs, cancels, timers and calls.
// It implements loop.Host.
func (c *Core) Round() {
	t := c.inbox.take()
	for i := range t.news {
		n := &t.news[i]
		c.BackendOf(n.Device).Took(n)
		c.Flush()
	}
	c.loop.Found()
	for _, j := range t.arrivals {
		// Timers that are due fire before the policy is told of the job.
		c.loop.Timers()
		c.ledger.arrive(j)
		c.Flush()
	}
	for _, j := range t.cancels {
		c.Refuse(j, policy.ReasonCancelled)
		c.Flush()
		j.Release()
	}
	c.loop.Timers()
	for _, b := range c.backends {
		b.Room()
	}
	c.loop.Calls()
	c.ledger.tellIdle()
	if c.stopping {
		c.end()
	}
}

// endRounds refuses the jobs that came in meanwhile. There are no further rounds.
func (c *Core) end() {
	c.inbox.shut()
	for _, j := range c.inbox.take().arrivals {
		c.ledger.turnAway(j, policy.ReasonDraining)
	}
	c.loop.End()
}

// TellPolicy makes the policy handle an event, and carries out its actions.
func (c *Core) Tell(ev policy.Event) { c.loop.Tell(ev) }

// watchTag is the tag of the core's own timer, which no policy uses.
const watchTag = loop.HostTag

// WatchInterval is the time between two watches of the backends, unless an SLO is so short that watches have to be more
// frequent (watchIntervalOf). countInterval is the time between two counts of requests.
const (
	WatchEvery    = 200 * time.Millisecond
	shortestWatch = 10 * time.Millisecond
	countEvery    = time.Second
)

// watchIntervalOf returns half of the shortest SLO, at most WatchInterval: a request that waits for a worker that hangs
// is answered one SLO after its deadline.
func watchOf(t *policy.Tables) time.Duration {
	every := WatchEvery
	for i := range t.Models {
		every = min(every, max(t.Models[i].SLO/2, shortestWatch))
	}
	return every
}

// TimerFired implements loop.Host: the core's own timer watches the backends and counts requests. Time in which no round
// ran, as on a machine that was suspended, says nothing about workers.
func (c *Core) Woke(int32) {
	now := c.Now()
	paused := max(0, now-c.watched-2*c.watch)
	c.watched = now
	for _, b := range c.backends {
		b.Look(now, paused)
	}
	if now >= c.counted+countEvery {
		c.counted = now
		c.count(now)
	}
	c.loop.SetWake(watchTag, now+c.watch)
}

// countRates passes the requests of the last second on to the check of the mix and to the answerer.
func (c *Core) count(now time.Duration) {
	if c.mix != nil {
		for i, m := range c.Served.Models {
			m.Stats.Mu.Lock()
			c.arrived[i] = m.Stats.Requests
			m.Stats.Mu.Unlock()
		}
		c.mix.Window(now, c.arrived, c.Options.Log)
	}
	c.Answers.Tick(now)
}

// pendingEvent is an event that follows from an action, or a batch whose hop is skipped.
type queued struct {
	ev     policy.Event
	batch  *Batch // nil if the event is of none
	serial uint64
	ticket int32 // of a PlaceInputs, without a batch
}

// hasEnded returns true if the batch has ended meanwhile.
func (q *queued) gone() bool { return !q.batch.live || q.batch.Serial != q.serial }

// Flush tells the policy what followed from its actions, until nothing more follows. It implements loop.Host.
func (c *Core) Flush() {
	for {
		switch {
		case len(c.events) > 0:
			q := c.events[0]
			c.events = c.events[:copy(c.events, c.events[1:])]
			switch {
			case q.batch != nil && q.gone():
			case q.ev.Kind == policy.TransferFinished && q.batch == nil && !c.Answers.Placed(&q.ev, q.ticket):
			default:
				c.Tell(q.ev)
			}
		case len(c.skips) > 0:
			q := c.skips[0]
			c.skips = c.skips[:copy(c.skips, c.skips[1:])]
			switch {
			case q.gone():
			case q.batch.returns:
				c.Returned(q.batch, cmp.Or(q.batch.Why, policy.ReturnFailed), nil)
			default:
				now := c.Now()
				c.FinishHop(q.batch, q.batch.Hops[q.batch.Hop].Device, now, now)
			}
		default:
			// Requests that nobody waits for come last.
			ev, more := c.ledger.forgo()
			if !more {
				return
			}
			if ev.Kind == policy.Cancel {
				c.Tell(ev)
			}
		}
	}
}
