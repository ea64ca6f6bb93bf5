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
// adversary.go draws the events, foetasks.go follows requests and tasks, foework.go
// plays the devices, foenews.go has the events of a Control. foebook.go keeps the books, foereferee.go checks, foeDraws decides by chance.
type Adversary struct {
	Tables *policy.Tables
	Policy policy.Policy
	Rand   *rand.Rand
	// Check is called after every event. If it is nil, nothing more is checked.
	Check func() error
	// Levels is how many levels answers may have: each is revealed at the end of
	// its batch, and the policy completes requests. If it is 0, the end of a batch answers.
	Levels int
	// Modes is how many modes the policy may switch between.
	Modes int32
	// Control says which tasks requests have. If it is nil, each has one.
	Control policy.Control

	// What became of the requests.
	Requests, Answered, Dropped int

	now      time.Duration
	draws    foeDraws
	book     foeBook
	judge    referee
	news     foeNews
	wakes    map[int32]time.Duration
	crossing []*foeBatch
	late     []int32 // tasks whose slots are free once their batch was told of
	telling  bool
	reveals  *foeBatch // whose levels are being told
	out      policy.Actions
}

// foeDraws decides by chance.
type foeDraws struct{ rand *rand.Rand }

// number is one from lo to hi.
func (d foeDraws) number(lo, hi int) int { return lo + d.rand.IntN(hi-lo+1) }

// oneOf is one of some reasons.
func (d foeDraws) oneOf(reasons ...policy.ReturnReason) policy.ReturnReason {
	return reasons[d.number(0, len(reasons)-1)]
}

// Run lets so many things happen, then lets everything end.
func (a *Adversary) Run(steps int) error {
	a.draws = foeDraws{a.Rand}
	a.book = foeBook{tables: a.Tables, flows: a.Control != nil, devices: make([]foeDevice, len(a.Tables.Devices))}
	a.judge = referee{book: &a.book, now: &a.now}
	a.news = foeNews{a: a, searches: map[int32]func() []int32{}}
	a.wakes = map[int32]time.Duration{}
	a.tell(policy.Event{Kind: policy.PlanInstalled})
	for range steps {
		a.step()
		if a.judge.err != nil {
			return a.judge.err
		}
	}
	for n := 0; a.end(); n++ {
		if a.judge.err != nil {
			return a.judge.err
		}
		if n > 100*steps+100_000 {
			return fmt.Errorf("after %d further events %d requests are still open at %v, and no end in sight", n, len(a.book.requests)-len(a.book.free), a.now)
		}
	}
	if a.judge.err != nil {
		return a.judge.err
	}
	if open := len(a.book.requests) - len(a.book.free); open > 0 || a.Requests != a.Answered+a.Dropped {
		return fmt.Errorf("%d requests: %d answered, %d dropped, %d open when nothing is left to happen", a.Requests, a.Answered, a.Dropped, open)
	}
	return nil
}

// step lets one thing happen.
func (a *Adversary) step() {
	switch k := a.draws.number(0, 19); {
	case k < 6:
		a.arrive()
	case k < 10:
		a.run(int32(a.draws.number(0, len(a.book.devices)-1)))
	case k < 12:
		a.cross(a.draws.number(0, 3))
	case k < 14:
		a.wake()
	case k == 14:
		a.leave()
	case k == 15:
		switch d := int32(a.draws.number(0, len(a.book.devices)-1)); {
		case a.book.devices[d].down:
			a.book.devices[d].down = false
			a.tell(policy.Event{Kind: policy.WorkerBack, Device: d})
		case a.draws.number(0, 3) == 0:
			a.lose(d)
		}
	case k == 16:
		if d := &a.book.devices[a.draws.number(0, len(a.book.devices)-1)]; a.draws.number(0, 3) == 0 && len(d.queue) > 0 {
			if b := d.queue[len(d.queue)-1]; !a.wide() {
				a.spoil(b)
			} else {
				a.sendBack(b, a.draws.oneOf(policy.ReturnFull, policy.ReturnFailed, policy.ReturnNotLoaded))
			}
		}
	case k == 17 && a.draws.number(0, 9) == 0:
		a.now += time.Duration(a.draws.number(0, 20)) * time.Second
	case k == 18 && a.news.happen():
	default:
		a.now += time.Duration(a.draws.number(0, 9000)) * time.Microsecond
	}
	a.settleGone()
	a.start()
}

// end lets what is under way go on; false when nothing is.
func (a *Adversary) end() bool {
	a.settleGone()
	a.start()
	a.now += time.Duration(a.draws.number(0, 3000)) * time.Microsecond
	if len(a.crossing) > 0 {
		a.cross(0)
		return true
	}
	if a.news.happen() {
		return true
	}
	busy := false
	for d := range a.book.devices {
		if len(a.book.devices[d].queue) > 0 {
			a.run(int32(d))
			busy = true
		}
	}
	if busy {
		return true
	}
	if len(a.wakes) == 0 || len(a.book.requests) == len(a.book.free) && !a.due() {
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
	if a.judge.err != nil {
		return
	}
	a.out.Reset()
	a.Policy.Handle(a.now, &ev, &a.out)
	for i := range a.out.List {
		a.act(&ev, &a.out.List[i])
	}
	if a.Check != nil && a.judge.err == nil {
		if err := a.Check(); err != nil {
			a.judge.fail("after %+v: %w", ev, err)
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
