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

// Host is the owner of a loop, for which the loop runs rounds. Its methods are called by the goroutine that has the turn.
type Host interface {
	// Round handles everything that has arrived. It calls TellResults, FireTimers and RunCalls where they belong in its
	// order.
	Round()
	// Act carries out one action of the policy. Timers and searches are the loop's own.
	Act(a *policy.Action)
	// Flush tells the policy what followed from its actions, until nothing more follows.
	Flush()
	// TimerFired is called when a timer of the host fires.
	TimerFired(tag int32)
}

// Loop runs rounds of a host around a policy. New returns one.
type Loop struct {
	// SearchLimit bounds the time of a search. 0 stands for no limit. It must be set before Start.
	SearchLimit time.Duration
	// SearchFailed is called for a search that panicked, beside the loop. It may be nil, and must be set before Start.
	SearchFailed func(tag int32, err error)
	// IgnoredEvents has a bit (1 << kind) for every event that the policy is not told. It must be set before Start.
	IgnoredEvents uint32

	host     Host
	policy   policy.Policy
	searcher policy.Searcher
	log      *conform.Recorder // nil without an event log

	epoch     time.Time
	epochMono int64

	hasWork atomic.Bool   // something has arrived, or a timer is due, since the last round
	signal  chan struct{} // makes takeTurns run a round
	done    chan struct{} // closed when the last round is over
	alarm   *alarm
	wg      sync.WaitGroup

	mu         sync.Mutex // guards what other goroutines leave
	calls      []func()
	newResults []searchResult // results of searches that no round has taken

	// The next fields belong to the goroutine that has the turn.
	turnLock   sync.Mutex
	hasEnded   bool
	lastTime   time.Duration // the policy's latest time
	event      policy.Event
	actions    policy.Actions
	toldEvents int64 // number of events
	timers     []timer
	searches   []runningSearch
	takenCalls []func()       // scratch of RunCalls
	results    []searchResult // scratch of TellResults
}

// New returns a loop that runs a policy in wall-clock time; host carries out the policy's actions and handles what is in
// the inbox. If log is not nil, it receives all events and actions, and is complete after Close. The loop's clock starts
// here, at 0.
func New(p policy.Policy, host Host, log io.Writer) (*Loop, error) {
	l := &Loop{host: host, policy: p, signal: make(chan struct{}, 1), done: make(chan struct{})}
	l.searcher, _ = policy.FindExtension[policy.Searcher](p)
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

// Start begins to run rounds that other goroutines leave. `first` runs before them; it tells the policy its first event.
func (l *Loop) Start(first func()) {
	l.turnLock.Lock()
	first()
	l.host.Flush()
	l.setAlarm()
	l.turnLock.Unlock()
	l.wg.Go(func() { l.alarm.callOnExpiry(l.Wake) })
	l.wg.Go(l.takeTurns)
}

// Close releases the loop's resources after its last round, and completes the log.
func (l *Loop) Close() error {
	l.alarm.close()
	l.stopSearches()
	l.wg.Wait()
	if l.log != nil {
		return l.log.Close()
	}
	return nil
}

// Epoch returns when the loop's clock was 0.
func (l *Loop) Epoch() time.Time { return l.epoch }

// Now returns the time of the loop's clock.
func (l *Loop) Now() time.Duration { return time.Since(l.epoch) }

// AdvanceTime advances the policy's time to now, and returns it. The policy's time never goes back.
func (l *Loop) AdvanceTime() time.Duration {
	l.lastTime = max(l.lastTime, l.Now())
	return l.lastTime
}

// LastTime returns the policy's time.
func (l *Loop) LastTime() time.Duration { return l.lastTime }

// OnLoopClock converts a time of CLOCK_MONOTONIC, in ns, to the loop's clock.
func (l *Loop) OnLoopClock(mono int64) time.Duration { return time.Duration(mono - l.epochMono) }

// ToldEvents returns the number of events that the policy has been told.
func (l *Loop) ToldEvents() int64 { return l.toldEvents }

// Done returns a channel that is closed when the last round is over.
func (l *Loop) Done() <-chan struct{} { return l.done }

// Wake makes sure that a round handles what has arrived: this goroutine runs one at once if no other one has the turn.
// Otherwise the goroutine that has it sees hasWork after its round.
func (l *Loop) Wake() {
	l.hasWork.Store(true)
	if !l.turnLock.TryLock() {
		return // the goroutine that has the turn looks again after its round
	}
	l.runRound()
	if l.hasWork.Load() {
		l.signalRun() // more has arrived; this goroutine's own work is done, so another one continues
	}
}

// signalRun makes takeTurns run a round.
func (l *Loop) signalRun() {
	select {
	case l.signal <- struct{}{}:
	default:
	}
}

// takeTurns runs, on a goroutine of its own, the rounds for which no other goroutine was free: whoever posts an event
// runs the round itself if it gets the turn (the lock), and otherwise leaves a signal. It returns when the loop is done.
func (l *Loop) takeTurns() {
	for {
		select {
		case <-l.signal:
		case <-l.done:
			return
		}
		for l.hasWork.Load() {
			l.turnLock.Lock()
			l.runRound()
		}
	}
}

// runRound runs one round (one pass over the inbox, in which the policy decides) and sets the alarm for the next timer.
// The caller holds turnLock, and runRound unlocks it. A panic ends the process: transports, whose goroutine this may be,
// would confine it to their one request.
func (l *Loop) runRound() {
	completed := false
	defer func() {
		if p := recover(); !completed && p != nil {
			stack := debug.Stack()
			// Panic on a goroutine that nobody recovers, and stop here.
			go func() { panic(fmt.Sprintf("%v\n\n%s", p, stack)) }()
			select {}
		}
		l.turnLock.Unlock()
	}()
	l.hasWork.Store(false)
	if !l.hasEnded {
		l.host.Round()
		l.setAlarm()
	}
	completed = true
}

// EndAfterRound is called in a round and makes it the last.
func (l *Loop) EndAfterRound() {
	l.hasEnded = true
	close(l.done)
}

// TellPolicy makes the policy handle an event, unless its kind is set in IgnoredEvents (a bit for each kind), and
// carries out the policy's actions: it sets timers, starts searches, and passes the rest to the host. The event is
// copied to a field, because the address of a parameter would have to be allocated. The caller has the turn.
func (l *Loop) TellPolicy(ev policy.Event) {
	if l.IgnoredEvents>>ev.Kind&1 != 0 {
		return
	}
	now := l.AdvanceTime()
	l.event = ev
	l.actions.Reset()
	l.policy.Handle(now, &l.event, &l.actions)
	l.toldEvents++
	// A Wake sets the timer of a tag, not sooner than minTimerDelay from now; a time below 0 removes it.
	for i := range l.actions.List {
		switch a := &l.actions.List[i]; a.Kind {
		case policy.Wake:
			firesAt := a.At
			if firesAt >= 0 {
				firesAt = max(firesAt, l.lastTime+minTimerDelay)
			}
			l.SetTimer(a.Tag, firesAt)
		case policy.Replan:
			l.startSearch(a.Tag)
		default:
			l.host.Act(a)
		}
	}
}

// Dispatched returns the tasks and hops of the Dispatch that is being carried out.
func (l *Loop) Dispatched(a *policy.Action) ([]int32, []policy.Hop) { return l.actions.BatchOf(a) }

// CallInRound has the next round run f, which may then read and change all that belongs to the core, and waits until f
// has returned. If the loop has ended, or ends before that, it returns false.
func (l *Loop) CallInRound(f func()) bool {
	finished := make(chan struct{})
	l.mu.Lock()
	l.calls = append(l.calls, func() { f(); close(finished) })
	l.mu.Unlock()
	l.Wake()
	select {
	case <-finished:
		return true
	case <-l.done:
		return false
	}
}

// ReadInRound has the next round run f, which reads what belongs to the core, and waits until f has returned. If the last round is over, f
// runs at once on this goroutine. No two such functions run at the same time, because a policy may bring up to date what it shows.
func (l *Loop) ReadInRound(f func()) {
	if l.CallInRound(f) {
		return
	}
	l.turnLock.Lock()
	defer l.turnLock.Unlock()
	f()
}

// RunCalls runs the functions that other goroutines passed to CallInRound since the last round. It is part of a round.
// The list's memory is used again in turns with that of the last round.
func (l *Loop) RunCalls() {
	clear(l.takenCalls)
	l.takenCalls = l.takenCalls[:0]
	l.mu.Lock()
	l.takenCalls, l.calls = l.calls, l.takenCalls
	l.mu.Unlock()
	for _, f := range l.takenCalls {
		f()
	}
}
