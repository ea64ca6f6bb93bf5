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
	mu     sync.Mutex
	closed bool
	attend func() // sees to it that what was left is looked at
	inboxContent
	taken inboxContent // belongs to whoever has the turn
}

type inboxContent struct {
	news     []News
	arrivals []*Job
	cancels  []*Job
}

// Submit hands a job over; false once the core takes no more.
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

// Cancel notes that nobody waits for a job any more. The message holds the
// job: an answer may be quicker, and the job another client's by then.
func (in *inbox) Cancel(j *Job) {
	j.Refs.Add(1)
	in.mu.Lock()
	in.cancels = append(in.cancels, j)
	in.mu.Unlock()
	in.attend()
}

// Post leaves news.
func (in *inbox) Post(n ...News) {
	in.mu.Lock()
	in.news = append(in.news, n...)
	in.mu.Unlock()
	in.attend()
}

// shut refuses further jobs.
func (in *inbox) shut() {
	in.mu.Lock()
	in.closed = true
	in.mu.Unlock()
}

// take exchanges the inbox for the emptied one of the last round.
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

// LeftNews are the news that no round took. It is called after the last one.
func (in *inbox) LeftNews() []News {
	in.mu.Lock()
	defer in.mu.Unlock()
	return append(in.taken.news, in.news...)
}

// Round does all that has come. It implements loop.Host.
func (c *Core) Round() {
	t := c.inbox.take()
	for i := range t.news {
		n := &t.news[i]
		c.BackendOf(n.Device).Took(n)
		c.Flush()
	}
	c.loop.Found()
	for _, j := range t.arrivals {
		// A wake-up that is due was so before the policy hears of this one.
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

// end refuses what came in between; there are no further rounds.
func (c *Core) end() {
	c.inbox.shut()
	for _, j := range c.inbox.take().arrivals {
		c.ledger.turnAway(j, policy.ReasonDraining)
	}
	c.loop.End()
}

// Tell has the policy handle an event and does what it says.
func (c *Core) Tell(ev policy.Event) { c.loop.Tell(ev) }

// watchTag is the tag of the core's own wake-up, which no policy uses.
const watchTag = loop.HostTag

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

// queued is an event that follows from an action, or a batch that is to go on.
type queued struct {
	ev     policy.Event
	batch  *Batch // nil: of none
	serial uint64
	ticket int32 // of a place, with no batch
}

// gone returns true if the batch has ended meanwhile.
func (q *queued) gone() bool { return !q.batch.live || q.batch.Serial != q.serial }

// Flush hands over what actions brought about, until nothing more follows. It
// implements loop.Host.
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
