package loop

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"inferplan/policy"
	"inferplan/policy/conform"
)

// wakingPolicy asks for a wake-up at every event.
type wakingPolicy struct{ toldKinds int64 }

func (w *wakingPolicy) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	w.toldKinds += int64(ev.Kind)
	out.List = append(out.List, policy.Action{Kind: policy.Wake, Tag: 1, At: now + time.Hour})
}

// testHost is a host of tests: news are requests that have come.
type testHost struct {
	loop        *Loop
	mu          sync.Mutex
	newRequests int32
	actions     []policy.Action
	firedTags   []int32
	stop        bool
}

func (h *testHost) Round() {
	h.mu.Lock()
	n := h.newRequests
	h.newRequests = 0
	h.mu.Unlock()
	h.loop.TellResults()
	for range n {
		h.loop.FireTimers()
		h.loop.TellPolicy(policy.Event{Kind: policy.Arrival})
	}
	h.loop.FireTimers()
	h.loop.RunCalls()
	if h.stop {
		h.loop.EndAfterRound()
	}
}

func (h *testHost) Act(a *policy.Action) { h.actions = append(h.actions, *a) }
func (h *testHost) Flush()               {}
func (h *testHost) TimerFired(tag int32) { h.firedTags = append(h.firedTags, tag) }

func (h *testHost) arriveRequest() {
	h.mu.Lock()
	h.newRequests++
	h.mu.Unlock()
	h.loop.Wake()
}

func startLoop(t *testing.T, p policy.Policy, log *bytes.Buffer) *testHost {
	t.Helper()
	h := &testHost{}
	var err error
	if log == nil {
		h.loop, err = New(p, h, nil)
	} else {
		h.loop, err = New(p, h, log)
	}
	if err != nil {
		t.Fatal(err)
	}
	h.loop.Start(func() { h.loop.TellPolicy(policy.Event{Kind: policy.PlanInstalled}) })
	return h
}

func (h *testHost) endLoop(t *testing.T) {
	t.Helper()
	h.loop.CallInRound(func() { h.stop = true })
	<-h.loop.Done()
	if err := h.loop.Close(); err != nil {
		t.Fatal(err)
	}
}

// An event on its way to the policy takes no memory from the heap.
func TestTellAllocatesNothing(t *testing.T) {
	w := &wakingPolicy{}
	l, err := New(w, &testHost{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.alarm.close()
	const runs = 1000
	if n := testing.AllocsPerRun(runs, func() {
		l.TellPolicy(policy.Event{Kind: policy.Timer, Value: 1})
	}); n != 0 {
		t.Errorf("%v allocations per event, expected none", n)
	}
	if want := int64(policy.Timer) * (runs + 1); w.toldKinds != want || l.ToldEvents() != runs+1 {
		t.Errorf("the policy was told kinds that add up to %d, expected %d", w.toldKinds, want)
	}
}

// A policy is not told what it does not want to hear.
func TestPolicyIsNotToldIgnoredEvents(t *testing.T) {
	w := &wakingPolicy{}
	h := &testHost{}
	var err error
	if h.loop, err = New(w, h, nil); err != nil {
		t.Fatal(err)
	}
	h.loop.IgnoredEvents = ^uint32(1 << policy.Arrival)
	h.loop.Start(func() { h.loop.TellPolicy(policy.Event{Kind: policy.PlanInstalled}) })
	h.arriveRequest()
	h.endLoop(t)
	if h.loop.ToldEvents() != 1 || w.toldKinds != int64(policy.Arrival) {
		t.Errorf("told %d events, of kinds that add up to %d: expected the arrival alone", h.loop.ToldEvents(), w.toldKinds)
	}
}

// searchingPolicy asks for a re-plan at every arrival; its search waits until it is let
// go, or until nobody wants it any more.
type searchingPolicy struct {
	free  chan struct{}
	kinds []policy.EventKind
	lists [][]int32
	asked int32
}

func (p *searchingPolicy) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	p.kinds = append(p.kinds, ev.Kind)
	switch ev.Kind {
	case policy.Arrival:
		p.asked++
		out.List = append(out.List, policy.Action{Kind: policy.Replan, Tag: 3})
	case policy.ReplanResult:
		p.lists = append(p.lists, slices.Clone(ev.List))
	}
}

func (p *searchingPolicy) Search(_ time.Duration, tag int32) func(context.Context, int64, []int32) ([]int32, int64) {
	n := p.asked // copied in the turn
	return func(ctx context.Context, _ int64, dst []int32) ([]int32, int64) {
		select {
		case <-p.free:
			return append(dst, tag, n), 1
		case <-ctx.Done():
			return dst, 0
		}
	}
}

// A search runs beside the loop, which goes on meanwhile; its result is in an
// event and so in the log. A further one takes the place of one under way.
func TestSearchRunsBesideTheLoop(t *testing.T) {
	p := &searchingPolicy{free: make(chan struct{})}
	var log bytes.Buffer
	h := startLoop(t, p, &log)
	h.arriveRequest()
	h.arriveRequest() // the loop is not held up by the first search
	close(p.free)
	for done := false; !done; time.Sleep(time.Millisecond) {
		h.loop.CallInRound(func() { done = len(p.lists) > 0 })
	}
	h.endLoop(t)
	if len(p.lists) != 1 || !slices.Equal(p.lists[0], []int32{3, 2}) {
		t.Errorf("results %v, expected that of the second search", p.lists)
	}
	again := &searchingPolicy{free: p.free}
	if n, err := conform.Replay(&log, again); err != nil || n != int64(len(p.kinds)) || !slices.Equal(again.kinds, p.kinds) {
		t.Errorf("replay of %d calls: %v", n, err)
	}
}

// A search that takes too long comes back with nothing.
func TestSearchLimit(t *testing.T) {
	p := &searchingPolicy{free: make(chan struct{})}
	h := &testHost{}
	var err error
	if h.loop, err = New(p, h, nil); err != nil {
		t.Fatal(err)
	}
	h.loop.SearchLimit = time.Millisecond
	h.loop.Start(func() {})
	h.arriveRequest()
	for done := false; !done; time.Sleep(time.Millisecond) {
		h.loop.CallInRound(func() { done = len(p.lists) > 0 })
	}
	h.arriveRequest() // one under way does not keep the loop from ending
	h.endLoop(t)
	if len(p.lists[0]) != 0 {
		t.Errorf("results %v, expected an empty one", p.lists)
	}
}

// panickingPolicy's searches fail.
type panickingPolicy struct{ searchingPolicy }

func (p *panickingPolicy) Search(time.Duration, int32) func(context.Context, int64, []int32) ([]int32, int64) {
	return func(context.Context, int64, []int32) ([]int32, int64) { panic("no such order") }
}

// A search that panics ends neither the process nor the loop: it comes back with
// nothing, and somebody hears why.
func TestSearchFails(t *testing.T) {
	p := &panickingPolicy{}
	h := &testHost{}
	var err error
	if h.loop, err = New(p, h, nil); err != nil {
		t.Fatal(err)
	}
	why := make(chan error, 1)
	h.loop.SearchFailed = func(_ int32, err error) { why <- err }
	h.loop.Start(func() {})
	h.arriveRequest()
	if err := <-why; !strings.Contains(err.Error(), "no such order") {
		t.Error(err)
	}
	for done := false; !done; time.Sleep(time.Millisecond) {
		h.loop.CallInRound(func() { done = len(p.lists) > 0 })
	}
	h.endLoop(t)
	if len(p.lists[0]) != 0 {
		t.Errorf("results %v, expected an empty one", p.lists)
	}
}

// Wake-ups of the host are the host's, those of the policy the policy's.
func TestTimersOfHostAndPolicyAreSeparate(t *testing.T) {
	p := &searchingPolicy{}
	h := startLoop(t, p, nil)
	h.loop.CallInRound(func() {
		h.loop.SetTimer(HostTag, h.loop.Now()+time.Millisecond)
		h.loop.SetTimer(9, h.loop.Now()+2*time.Millisecond)
		h.loop.SetTimer(8, h.loop.Now()+time.Millisecond)
		h.loop.SetTimer(8, -1)
	})
	for done := false; !done; time.Sleep(time.Millisecond) {
		h.loop.CallInRound(func() { done = len(h.firedTags) == 1 && len(p.kinds) == 2 })
	}
	h.endLoop(t)
	if h.firedTags[0] != HostTag || p.kinds[1] != policy.Timer {
		t.Errorf("the host was woken by %v, the policy told %v", h.firedTags, p.kinds)
	}
}

// Readers of what belongs to the core take turns, in its rounds and after the last one.
func TestReadersTakeTurnsAfterLastRound(t *testing.T) {
	for _, hasEnded := range []bool{false, true} {
		h := startLoop(t, &wakingPolicy{}, nil)
		if hasEnded {
			h.endLoop(t)
		}
		var wg sync.WaitGroup
		var inside, reads atomic.Int32
		for range 8 {
			wg.Go(func() {
				h.loop.ReadInRound(func() {
					if n := inside.Add(1); n != 1 {
						t.Errorf("%d read at once", n)
					}
					time.Sleep(5 * time.Millisecond)
					inside.Add(-1)
					reads.Add(1)
				})
			})
		}
		wg.Wait()
		if n := reads.Load(); n != 8 {
			t.Errorf("%d of 8 have read", n)
		}
		if !hasEnded {
			h.endLoop(t)
		}
	}
}
