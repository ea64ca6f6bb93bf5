package executor

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
	news     []news
	arrivals []*job
	cancels  []*job
}

// submit hands a job over; false once the core takes no more.
func (in *inbox) submit(j *job) bool {
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

// cancelJob tells that nobody waits for a job any more. The message holds the
// job: an answer may be quicker, and the job another client's by then.
func (in *inbox) cancelJob(j *job) {
	j.refs.Add(1)
	in.mu.Lock()
	in.cancels = append(in.cancels, j)
	in.mu.Unlock()
	in.attend()
}

func (in *inbox) post(n ...news) {
	in.mu.Lock()
	in.news = append(in.news, n...)
	in.mu.Unlock()
	in.attend()
}

// close refuses further jobs.
func (in *inbox) close() {
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

// left are the news that no round took. It is called after the last one.
func (in *inbox) left() []news {
	in.mu.Lock()
	defer in.mu.Unlock()
	return append(in.taken.news, in.news...)
}

// Round does all that has come. It implements loop.Host.
func (c *core) Round() {
	t := c.in.take()
	for i := range t.news {
		n := &t.news[i]
		c.backendOf(n.device).took(n)
		c.Flush()
	}
	c.loop.Found()
	for _, j := range t.arrivals {
		// A wake-up that is due was so before the policy hears of this one.
		c.loop.Timers()
		c.book.arrive(j)
		c.Flush()
	}
	for _, j := range t.cancels {
		c.book.clientGone(j)
		c.Flush()
		j.release()
	}
	c.loop.Timers()
	for _, b := range c.backends {
		b.room()
	}
	c.loop.Calls()
	c.book.tellIdle()
	if c.stopping {
		c.end()
	}
}

// end refuses what came in between; there are no further rounds.
func (c *core) end() {
	c.in.close()
	for _, j := range c.in.take().arrivals {
		c.book.turnAway(j, policy.ReasonDraining)
	}
	c.loop.End()
}

// handle asks the policy and does what it says.
func (c *core) handle(ev policy.Event) { c.loop.Tell(ev) }

// watchTag is the tag of the core's own wake-up, which no policy uses.
const watchTag = loop.HostTag

// watchEvery is how often backends are looked at, where no SLO is so short that it has to be
// more often (see watchOf), countEvery how often requests
// are counted.
const (
	watchEvery    = 200 * time.Millisecond
	shortestWatch = 10 * time.Millisecond
	countEvery    = time.Second
)

// watchOf is how often backends are looked at: half of the shortest SLO, for who waits for a
// worker that hangs is answered an SLO past the deadline.
func watchOf(t *policy.Tables) time.Duration {
	every := watchEvery
	for i := range t.Models {
		every = min(every, max(t.Models[i].SLO/2, shortestWatch))
	}
	return every
}

// Woke implements loop.Host: the core's own wake-up looks after backends and
// counts. Time in which no round ran, as on a machine that was paused, says
// nothing of workers.
func (c *core) Woke(int32) {
	now := c.now()
	paused := max(0, now-c.watched-2*c.watch)
	c.watched = now
	for _, b := range c.backends {
		b.look(now, paused)
	}
	if now >= c.counted+countEvery {
		c.counted = now
		c.count(now)
	}
	c.loop.SetWake(watchTag, now+c.watch)
}

// count has the rates of the last second looked at.
func (c *core) count(now time.Duration) {
	if c.mix != nil {
		for i, m := range c.served.models {
			m.stats.mu.Lock()
			c.arrived[i] = m.stats.requests
			m.stats.mu.Unlock()
		}
		c.mix.Window(now, c.arrived, c.opt.Log)
	}
	c.answers.tick(now)
}

// queued is an event that follows from an action, or a batch that is to go on.
type queued struct {
	ev     policy.Event
	batch  *batch // nil: of none
	serial uint64
	ticket int32 // of a place, with Batch -1
}

// emit queues an event that follows from an action.
func (c *core) emit(q queued) { c.events = append(c.events, q) }

// Flush hands over what actions brought about, until nothing more follows. It
// implements loop.Host.
func (c *core) Flush() {
	for {
		switch {
		case len(c.events) > 0:
			q := c.events[0]
			c.events = c.events[:copy(c.events, c.events[1:])]
			switch {
			case q.batch != nil && (!q.batch.live || q.batch.serial != q.serial):
			case q.ev.Kind == policy.TransferFinished && q.batch == nil && !c.answers.placed(&q.ev, q.ticket):
			default:
				c.handle(q.ev)
			}
		case len(c.skips) > 0:
			q := c.skips[0]
			c.skips = c.skips[:copy(c.skips, c.skips[1:])]
			switch {
			case !q.batch.live || q.batch.serial != q.serial:
			case q.batch.returns:
				c.returned(q.batch, cmp.Or(q.batch.why, policy.ReturnFailed), nil)
			default:
				now := c.now()
				c.finishHop(q.batch, q.batch.hops[q.batch.hop].Device, now, now)
			}
		default:
			ev, more := c.book.forgo()
			if !more {
				return
			}
			if ev.Kind == policy.Cancel {
				c.handle(ev)
			}
		}
	}
}
