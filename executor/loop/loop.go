package loop

import (
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"inferplan/policy"
	"inferplan/policy/conform"
)

// Host is what a loop turns around. Its methods are called by whoever has the
// turn.
type Host interface {
	// Round does all that has come. It calls Found, Timers and Calls where they
	// belong in its order.
	Round()
	// Act does one action of the policy. Wakes and re-plans are the loop's.
	Act(a *policy.Action)
	// Flush hands over what actions brought about, until nothing more follows.
	Flush()
	// Woke follows a wake-up that the host asked for.
	Woke(tag int32)
}

// Loop turns to a policy. Make one with New.
type Loop struct {
	// SearchLimit is how long a search may take; 0: as long as it likes. Set it
	// before Start.
	SearchLimit time.Duration
	// SearchFailed hears of a search that panicked; nil: nobody does. Set it before
	// Start. It is called beside the loop.
	SearchFailed func(tag int32, err error)
	// Deaf has a bit (1 << kind) for every event that the policy is not told. Set
	// it before Start.
	Deaf uint32

	host     Host
	policy   policy.Policy
	searcher policy.Searcher
	log      *conform.Recorder // nil: no event log

	epoch     time.Time
	epochMono int64

	news   atomic.Bool   // something was left, or a wake-up is due, since the last round
	signal chan struct{} // wakes run
	done   chan struct{} // closed when the last round is over
	alarm  *alarm
	wg     sync.WaitGroup

	mu    sync.Mutex // of what others leave
	calls []func()
	found []result

	// What follows belongs to whoever has the turn.
	turn     sync.Mutex
	ended    bool
	last     time.Duration
	event    policy.Event
	actions  policy.Actions
	told     int64
	wakes    []wakeup
	searches []search
	taken    []func()
	results  []result
}

// New makes a loop around a policy. Where log is not nil, it gets all that the
// policy is told and answers, complete after Close. The clock starts here.
func New(p policy.Policy, host Host, log io.Writer) (*Loop, error) {
	l := &Loop{host: host, policy: p, signal: make(chan struct{}, 1), done: make(chan struct{})}
	l.searcher, _ = policy.As[policy.Searcher](p)
	if log != nil {
		l.log = conform.NewRecorder(p, log)
		l.policy = l.log
	}
	var err error
	if l.alarm, err = newAlarm(); err != nil {
		return nil, err
	}
	l.epochMono, l.epoch = monotonicNow()
	return l, nil
}

// Start begins to take turns that others leave. first runs before them and is
// the first thing that the policy hears.
func (l *Loop) Start(first func()) {
	l.turn.Lock()
	first()
	l.host.Flush()
	l.arm()
	l.turn.Unlock()
	l.wg.Go(func() { l.alarm.run(l.Attend) })
	l.wg.Go(l.run)
}

// Close frees what the loop has, after its last round, and completes the log.
func (l *Loop) Close() error {
	l.alarm.close()
	l.stopSearches()
	l.wg.Wait()
	if l.log != nil {
		return l.log.Close()
	}
	return nil
}

// Epoch is when the loop's clock was 0.
func (l *Loop) Epoch() time.Time { return l.epoch }

// Now is the time of the loop's clock.
func (l *Loop) Now() time.Duration { return time.Since(l.epoch) }

// Tick is now for the policy: it never goes back.
func (l *Loop) Tick() time.Duration {
	l.last = max(l.last, l.Now())
	return l.last
}

// Last is what Tick gave last.
func (l *Loop) Last() time.Duration { return l.last }

// Since is a moment of CLOCK_MONOTONIC, in ns, on the loop's clock.
func (l *Loop) Since(mono int64) time.Duration { return time.Duration(mono - l.epochMono) }

// Told is how many events the policy has been told.
func (l *Loop) Told() int64 { return l.told }

// Done is closed when the last round is over.
func (l *Loop) Done() <-chan struct{} { return l.done }

// Attend sees to it that what has come is looked at: at once and by this goroutine
// where nobody is at it, or else by whoever is.
func (l *Loop) Attend() {
	l.news.Store(true)
	if !l.turn.TryLock() {
		return // who has the turn looks again when it is over
	}
	l.runRound()
	if l.news.Load() {
		l.wake() // more has come: not for this goroutine, whose own is done
	}
}

// wake has run look.
func (l *Loop) wake() {
	select {
	case l.signal <- struct{}{}:
	default:
	}
}

// run takes the turns that others leave.
func (l *Loop) run() {
	for {
		select {
		case <-l.signal:
		case <-l.done:
			return
		}
		for l.news.Load() {
			l.turn.Lock()
			l.runRound()
		}
	}
}

// runRound runs a round and releases the lock of the turn. A panic ends the process: the
// transports, whose goroutine this may be, would keep it to the one request.
func (l *Loop) runRound() {
	whole := false
	defer func() {
		if p := recover(); !whole && p != nil {
			stack := debug.Stack()
			go func() { panic(fmt.Sprintf("%v\n\n%s", p, stack)) }()
			select {}
		}
		l.turn.Unlock()
	}()
	l.news.Store(false)
	if !l.ended {
		l.host.Round()
		l.arm()
	}
	whole = true
}

// End is called in a round and makes it the last.
func (l *Loop) End() {
	l.ended = true
	close(l.done)
}

// Tell has the policy handle an event, and does what it answers. The event is
// copied to a field: the address of a parameter would be memory from the heap.
func (l *Loop) Tell(ev policy.Event) {
	if l.Deaf>>ev.Kind&1 != 0 {
		return
	}
	now := l.Tick()
	l.event = ev
	l.actions.Reset()
	l.policy.Handle(now, &l.event, &l.actions)
	l.told++
	for i := range l.actions.List {
		switch a := &l.actions.List[i]; a.Kind {
		case policy.Wake:
			at := a.At
			if at >= 0 {
				at = max(at, l.last+soonest)
			}
			l.SetWake(a.Tag, at)
		case policy.Replan:
			l.replan(a.Tag)
		default:
			l.host.Act(a)
		}
	}
}

// Dispatched are the tasks and hops of the Dispatch that is being done.
func (l *Loop) Dispatched(a *policy.Action) ([]int32, []policy.Hop) { return l.actions.Dispatched(a) }

// Call runs f in a round and waits for that; false: the loop has ended.
func (l *Loop) Call(f func()) bool {
	ran := make(chan struct{})
	l.mu.Lock()
	l.calls = append(l.calls, func() { f(); close(ran) })
	l.mu.Unlock()
	l.Attend()
	select {
	case <-ran:
		return true
	case <-l.done:
		return false
	}
}

// Calls runs what other goroutines have asked for. It is part of a round.
func (l *Loop) Calls() {
	clear(l.taken)
	l.taken = l.taken[:0]
	l.mu.Lock()
	l.taken, l.calls = l.calls, l.taken
	l.mu.Unlock()
	for _, f := range l.taken {
		f()
	}
}
