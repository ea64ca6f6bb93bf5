package policytest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"inferplan/policy"
)

// Adversary is an interpreter that keeps the contract of package policy and is
// otherwise as unkind as a real machine may be: runs and transfers take any
// time, news and wakes come late, clients go away, requests come with deadlines
// that have passed, devices are lost with what they hold and come back, stages
// fail, the clock jumps ahead, slots are used again at once. With a Control, or with
// instances, it also lets batches come back for every reason, loads fail, inputs arrive late and
// where nobody wants them any more, searches find nothing or what is stale. It
// holds what the policy does against the contract.
//
// adversary.go is what happens, foetasks.go what becomes of requests and tasks,
// foework.go what devices do, foenews.go what only a Control brings.
type Adversary struct {
	Tables *policy.Tables
	Policy policy.Policy
	Rand   *rand.Rand
	// Check is called after every event; nil: nothing more is checked.
	Check func() error
	// Levels is how many levels answers may have: each is revealed at the end of
	// its batch, and the policy completes requests. 0: the end of a batch answers.
	Levels int
	// Modes is how many modes the policy may switch between.
	Modes int32
	// Control says which tasks requests have; nil: one each.
	Control policy.Control

	// What became of the requests.
	Requests, Answered, Dropped int

	now      time.Duration
	requests []foeRequest
	free     []int32
	tasks    []foeTask
	told     policy.Reveals
	telling  bool
	late     []int32     // tasks whose slots are free once their batch was told of
	batches  []*foeBatch // by the policy's slot
	devices  []foeDevice
	crossing []*foeBatch
	wakes    map[int32]time.Duration
	gone     []int32 // requests whose clients went while they were in a batch
	loads    []foeLoad
	places   []foePlace
	searches map[int32]func() []int32
	out      policy.Actions
	reveals  *foeBatch
	err      error
}

// Run lets so many things happen, then lets everything end.
func (a *Adversary) Run(steps int) error {
	a.devices = make([]foeDevice, len(a.Tables.Devices))
	a.wakes, a.searches = map[int32]time.Duration{}, map[int32]func() []int32{}
	a.tell(policy.Event{Kind: policy.PlanInstalled})
	for range steps {
		a.step()
		if a.err != nil {
			return a.err
		}
	}
	for n := 0; a.end(); n++ {
		if a.err != nil {
			return a.err
		}
		if n > 100*steps+100_000 {
			return fmt.Errorf("after %d further events %d requests are still open at %v, and no end in sight", n, len(a.requests)-len(a.free), a.now)
		}
	}
	if a.err != nil {
		return a.err
	}
	if open := len(a.requests) - len(a.free); open > 0 || a.Requests != a.Answered+a.Dropped {
		return fmt.Errorf("%d requests: %d answered, %d dropped, %d open when nothing is left to happen", a.Requests, a.Answered, a.Dropped, open)
	}
	return nil
}

// draw gives a number from lo to hi.
func (a *Adversary) draw(lo, hi int) int { return lo + a.Rand.IntN(hi-lo+1) }

func (a *Adversary) fail(format string, args ...any) {
	if a.err == nil {
		a.err = fmt.Errorf("at %v: %w", a.now, fmt.Errorf(format, args...))
	}
}

// step lets one thing happen.
func (a *Adversary) step() {
	switch k := a.draw(0, 19); {
	case k < 6:
		a.arrive()
	case k < 10:
		a.run(int32(a.draw(0, len(a.devices)-1)))
	case k < 12:
		a.cross(a.draw(0, 3))
	case k < 14:
		a.wake()
	case k == 14:
		a.leave()
	case k == 15:
		switch d := int32(a.draw(0, len(a.devices)-1)); {
		case a.devices[d].down:
			a.devices[d].down = false
			a.tell(policy.Event{Kind: policy.WorkerBack, Device: d})
		case a.draw(0, 3) == 0:
			a.lose(d)
		}
	case k == 16:
		if d := &a.devices[a.draw(0, len(a.devices)-1)]; a.draw(0, 3) == 0 && len(d.queue) > 0 {
			if b := d.queue[len(d.queue)-1]; !a.wide() {
				a.spoil(b)
			} else {
				a.sendBack(b, []policy.Return{policy.ReturnFull, policy.ReturnFailed, policy.ReturnNotLoaded}[a.draw(0, 2)])
			}
		}
	case k == 17 && a.draw(0, 9) == 0:
		a.now += time.Duration(a.draw(0, 20)) * time.Second
	case k == 18 && a.news():
	default:
		a.now += time.Duration(a.draw(0, 9000)) * time.Microsecond
	}
	a.settleGone()
	a.start()
}

// end lets what is under way go on; false when nothing is.
func (a *Adversary) end() bool {
	a.settleGone()
	a.start()
	a.now += time.Duration(a.draw(0, 3000)) * time.Microsecond
	if len(a.crossing) > 0 {
		a.cross(0)
		return true
	}
	if a.news() {
		return true
	}
	busy := false
	for d := range a.devices {
		if len(a.devices[d].queue) > 0 {
			a.run(int32(d))
			busy = true
		}
	}
	if busy {
		return true
	}
	if len(a.wakes) == 0 || len(a.requests) == len(a.free) && !a.due() {
		return false
	}
	next := time.Duration(1<<63 - 1)
	for _, at := range a.wakes {
		next = min(next, at)
	}
	a.now = max(a.now, next)
	a.wake()
	return true
}

func (a *Adversary) due() bool {
	for _, at := range a.wakes {
		if at <= a.now {
			return true
		}
	}
	return false
}

func (a *Adversary) tell(ev policy.Event) {
	if a.err != nil {
		return
	}
	a.out.Reset()
	a.Policy.Handle(a.now, &ev, &a.out)
	for i := range a.out.List {
		a.act(&ev, &a.out.List[i])
	}
	if a.Check != nil && a.err == nil {
		if err := a.Check(); err != nil {
			a.fail("after %+v: %w", ev, err)
		}
	}
}

// wake sends a wake that is due.
func (a *Adversary) wake() {
	first, at := int32(-1), a.now+1
	for tag, due := range a.wakes {
		if due < at || due == at && tag < first {
			first, at = tag, due
		}
	}
	if first < 0 {
		return
	}
	delete(a.wakes, first)
	a.tell(policy.Event{Kind: policy.Timer, Value: int64(first)})
}
