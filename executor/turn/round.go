package turn

import (
	"cmp"
	"sync"
	"time"

	"inferplan/executor/loop"
	"inferplan/policy"
)

// inbox is what others leave for the core.
type inbox struct {
	Mu     sync.Mutex
	closed bool
	attend func() // sees to it that what was left is looked at
	inboxContent
	taken inboxContent // belongs to whoever has the turn
}

type inboxContent struct {
	news     []News
	Arrivals []*Job
	Cancels  []*Job
}

// Submit hands a job over; false once the core takes no more.
func (in *inbox) Submit(j *Job) bool {
	in.Mu.Lock()
	if in.closed {
		in.Mu.Unlock()
		return false
	}
	in.Arrivals = append(in.Arrivals, j)
	in.Mu.Unlock()
	in.attend()
	return true
}

// CancelJob tells that nobody waits for a job any more. The message holds the
// job: an answer may be quicker, and the job another client's by then.
func (in *inbox) CancelJob(j *Job) {
	j.Refs.Add(1)
	in.Mu.Lock()
	in.Cancels = append(in.Cancels, j)
	in.Mu.Unlock()
	in.attend()
}

func (in *inbox) Post(n ...News) {
	in.Mu.Lock()
	in.news = append(in.news, n...)
	in.Mu.Unlock()
	in.attend()
}

// Close refuses further jobs.
func (in *inbox) Close() {
	in.Mu.Lock()
	in.closed = true
	in.Mu.Unlock()
}

// take exchanges the inbox for the emptied one of the last round.
func (in *inbox) take() *inboxContent {
	t := &in.taken
	clear(t.news)
	clear(t.Arrivals)
	clear(t.Cancels)
	t.news, t.Arrivals, t.Cancels = t.news[:0], t.Arrivals[:0], t.Cancels[:0]
	in.Mu.Lock()
	*t, in.inboxContent = in.inboxContent, *t
	in.Mu.Unlock()
	return t
}

// Left are the news that no round took. It is called after the last one.
func (in *inbox) Left() []News {
	in.Mu.Lock()
	defer in.Mu.Unlock()
	return append(in.taken.news, in.news...)
}

// Round does all that has come. It implements loop.Host.
func (c *Core) Round() {
	t := c.Inbox.take()
	for i := range t.news {
		n := &t.news[i]
		c.BackendOf(n.Device).Took(n)
		c.Flush()
	}
	c.Loop.Found()
	for _, j := range t.Arrivals {
		// A wake-up that is due was so before the policy hears of this one.
		c.Loop.Timers()
		c.Ledger.arrive(j)
		c.Flush()
	}
	for _, j := range t.Cancels {
		c.Ledger.ClientGone(j)
		c.Flush()
		j.Release()
	}
	c.Loop.Timers()
	for _, b := range c.Backends {
		b.Room()
	}
	c.Loop.Calls()
	c.Ledger.tellIdle()
	if c.stopping {
		c.end()
	}
}

// end refuses what came in between; there are no further rounds.
func (c *Core) end() {
	c.Inbox.Close()
	for _, j := range c.Inbox.take().Arrivals {
		c.Ledger.turnAway(j, policy.ReasonDraining)
	}
	c.Loop.End()
}

// Handle asks the policy and does what it says.
func (c *Core) Handle(ev policy.Event) { c.Loop.Tell(ev) }

// WatchTag is the tag of the core's own wake-up, which no policy uses.
const WatchTag = loop.HostTag

// WatchEvery is how often backends are looked at, where no SLO is so short that it has to be
// more often (see watchOf), countEvery how often requests
// are counted.
const (
	WatchEvery    = 200 * time.Millisecond
	shortestWatch = 10 * time.Millisecond
	countEvery    = time.Second
)

// watchOf is how often backends are looked at: half of the shortest SLO, for who waits for a
// worker that hangs is answered an SLO past the deadline.
func watchOf(t *policy.Tables) time.Duration {
	every := WatchEvery
	for i := range t.Models {
		every = min(every, max(t.Models[i].SLO/2, shortestWatch))
	}
	return every
}

// Woke implements loop.Host: the core's own wake-up looks after backends and
// counts. Time in which no round ran, as on a machine that was paused, says
// nothing of workers.
func (c *Core) Woke(int32) {
	now := c.Now()
	paused := max(0, now-c.Watched-2*c.watch)
	c.Watched = now
	for _, b := range c.Backends {
		b.Look(now, paused)
	}
	if now >= c.counted+countEvery {
		c.counted = now
		c.count(now)
	}
	c.Loop.SetWake(WatchTag, now+c.watch)
}

// count has the rates of the last second looked at.
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

// Queued is an event that follows from an action, or a batch that is to go on.
type Queued struct {
	Ev     policy.Event
	Batch  *Batch // nil: of none
	Serial uint64
	ticket int32 // of a place, with Batch -1
}

// Emit queues an event that follows from an action.
func (c *Core) Emit(q Queued) { c.events = append(c.events, q) }

// Flush hands over what actions brought about, until nothing more follows. It
// implements loop.Host.
func (c *Core) Flush() {
	for {
		switch {
		case len(c.events) > 0:
			q := c.events[0]
			c.events = c.events[:copy(c.events, c.events[1:])]
			switch {
			case q.Batch != nil && (!q.Batch.live || q.Batch.Serial != q.Serial):
			case q.Ev.Kind == policy.TransferFinished && q.Batch == nil && !c.Answers.Placed(&q.Ev, q.ticket):
			default:
				c.Handle(q.Ev)
			}
		case len(c.Skips) > 0:
			q := c.Skips[0]
			c.Skips = c.Skips[:copy(c.Skips, c.Skips[1:])]
			switch {
			case !q.Batch.live || q.Batch.Serial != q.Serial:
			case q.Batch.Returns:
				c.Returned(q.Batch, cmp.Or(q.Batch.Why, policy.ReturnFailed), nil)
			default:
				now := c.Now()
				c.FinishHop(q.Batch, q.Batch.Hops[q.Batch.Hop].Device, now, now)
			}
		default:
			ev, more := c.Ledger.forgo()
			if !more {
				return
			}
			if ev.Kind == policy.Cancel {
				c.Handle(ev)
			}
		}
	}
}
