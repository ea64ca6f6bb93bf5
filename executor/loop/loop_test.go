package loop

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"inferplan/policy"
	"inferplan/policy/conform"
)

// waker asks for a wake-up at every event.
type waker struct{ told int64 }

func (w *waker) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	w.told += int64(ev.Kind)
	out.List = append(out.List, policy.Action{Kind: policy.Wake, Tag: 1, At: now + time.Hour})
}

// host is a host of tests: news are requests that have come.
type host struct {
	l     *Loop
	mu    sync.Mutex
	news  int32
	acts  []policy.Action
	woken []int32
	stop  bool
}

func (h *host) Round() {
	h.mu.Lock()
	n := h.news
	h.news = 0
	h.mu.Unlock()
	h.l.Found()
	for range n {
		h.l.Timers()
		h.l.Tell(policy.Event{Kind: policy.Arrival})
	}
	h.l.Timers()
	h.l.Calls()
	if h.stop {
		h.l.End()
	}
}

func (h *host) Act(a *policy.Action) { h.acts = append(h.acts, *a) }
func (h *host) Flush()               {}
func (h *host) Woke(tag int32)       { h.woken = append(h.woken, tag) }

func (h *host) arrive() {
	h.mu.Lock()
	h.news++
	h.mu.Unlock()
	h.l.Attend()
}

func start(t *testing.T, p policy.Policy, log *bytes.Buffer) *host {
	t.Helper()
	h := &host{}
	var err error
	if log == nil {
		h.l, err = New(p, h, nil)
	} else {
		h.l, err = New(p, h, log)
	}
	if err != nil {
		t.Fatal(err)
	}
	h.l.Start(func() { h.l.Tell(policy.Event{Kind: policy.PlanInstalled}) })
	return h
}

func (h *host) end(t *testing.T) {
	t.Helper()
	h.l.Call(func() { h.stop = true })
	<-h.l.Done()
	if err := h.l.Close(); err != nil {
		t.Fatal(err)
	}
}

// An event on its way to the policy takes no memory from the heap.
func TestTellAllocatesNothing(t *testing.T) {
	w := &waker{}
	l, err := New(w, &host{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.alarm.close()
	const runs = 1000
	if n := testing.AllocsPerRun(runs, func() {
		l.Tell(policy.Event{Kind: policy.Timer, Value: 1})
	}); n != 0 {
		t.Errorf("%v allocations per event, expected none", n)
	}
	if want := int64(policy.Timer) * (runs + 1); w.told != want || l.Told() != runs+1 {
		t.Errorf("the policy was told kinds that add up to %d, expected %d", w.told, want)
	}
}

// A policy is not told what it does not want to hear.
func TestDeaf(t *testing.T) {
	w := &waker{}
	h := &host{}
	var err error
	if h.l, err = New(w, h, nil); err != nil {
		t.Fatal(err)
	}
	h.l.Deaf = ^uint32(1 << policy.Arrival)
	h.l.Start(func() { h.l.Tell(policy.Event{Kind: policy.PlanInstalled}) })
	h.arrive()
	h.end(t)
	if h.l.Told() != 1 || w.told != int64(policy.Arrival) {
		t.Errorf("told %d events, of kinds that add up to %d: expected the arrival alone", h.l.Told(), w.told)
	}
}

// thinker asks for a re-plan at every arrival; its search waits until it is let
// go, or until nobody wants it any more.
type thinker struct {
	free  chan struct{}
	kinds []policy.EventKind
	lists [][]int32
	asked int32
}

func (p *thinker) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	p.kinds = append(p.kinds, ev.Kind)
	switch ev.Kind {
	case policy.Arrival:
		p.asked++
		out.List = append(out.List, policy.Action{Kind: policy.Replan, Tag: 3})
	case policy.ReplanResult:
		p.lists = append(p.lists, slices.Clone(ev.List))
	}
}

func (p *thinker) Search(_ time.Duration, tag int32) func(context.Context, int64, []int32) ([]int32, int64) {
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
	p := &thinker{free: make(chan struct{})}
	var log bytes.Buffer
	h := start(t, p, &log)
	h.arrive()
	h.arrive() // the loop is not held up by the first search
	close(p.free)
	for done := false; !done; time.Sleep(time.Millisecond) {
		h.l.Call(func() { done = len(p.lists) > 0 })
	}
	h.end(t)
	if len(p.lists) != 1 || !slices.Equal(p.lists[0], []int32{3, 2}) {
		t.Errorf("results %v, expected that of the second search", p.lists)
	}
	again := &thinker{free: p.free}
	if n, err := conform.Replay(&log, again); err != nil || n != int64(len(p.kinds)) || !slices.Equal(again.kinds, p.kinds) {
		t.Errorf("replay of %d calls: %v", n, err)
	}
}

// A search that takes too long comes back with nothing.
func TestSearchLimit(t *testing.T) {
	p := &thinker{free: make(chan struct{})}
	h := &host{}
	var err error
	if h.l, err = New(p, h, nil); err != nil {
		t.Fatal(err)
	}
	h.l.SearchLimit = time.Millisecond
	h.l.Start(func() {})
	h.arrive()
	for done := false; !done; time.Sleep(time.Millisecond) {
		h.l.Call(func() { done = len(p.lists) > 0 })
	}
	h.arrive() // one under way does not keep the loop from ending
	h.end(t)
	if len(p.lists[0]) != 0 {
		t.Errorf("results %v, expected an empty one", p.lists)
	}
}

// panicker's searches fail.
type panicker struct{ thinker }

func (p *panicker) Search(time.Duration, int32) func(context.Context, int64, []int32) ([]int32, int64) {
	return func(context.Context, int64, []int32) ([]int32, int64) { panic("no such order") }
}

// A search that panics ends neither the process nor the loop: it comes back with
// nothing, and somebody hears why.
func TestSearchFails(t *testing.T) {
	p := &panicker{}
	h := &host{}
	var err error
	if h.l, err = New(p, h, nil); err != nil {
		t.Fatal(err)
	}
	why := make(chan error, 1)
	h.l.SearchFailed = func(_ int32, err error) { why <- err }
	h.l.Start(func() {})
	h.arrive()
	if err := <-why; !strings.Contains(err.Error(), "no such order") {
		t.Error(err)
	}
	for done := false; !done; time.Sleep(time.Millisecond) {
		h.l.Call(func() { done = len(p.lists) > 0 })
	}
	h.end(t)
	if len(p.lists[0]) != 0 {
		t.Errorf("results %v, expected an empty one", p.lists)
	}
}

// Wake-ups of the host are the host's, those of the policy the policy's.
func TestWakes(t *testing.T) {
	p := &thinker{}
	h := start(t, p, nil)
	h.l.Call(func() {
		h.l.SetWake(HostTag, h.l.Now()+time.Millisecond)
		h.l.SetWake(9, h.l.Now()+2*time.Millisecond)
		h.l.SetWake(8, h.l.Now()+time.Millisecond)
		h.l.SetWake(8, -1)
	})
	for done := false; !done; time.Sleep(time.Millisecond) {
		h.l.Call(func() { done = len(h.woken) == 1 && len(p.kinds) == 2 })
	}
	h.end(t)
	if h.woken[0] != HostTag || p.kinds[1] != policy.Timer {
		t.Errorf("the host was woken by %v, the policy told %v", h.woken, p.kinds)
	}
}
