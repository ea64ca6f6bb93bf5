package vqueue_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/policy"
	"inferplan/policy/vqueue"
	"inferplan/testkit/queuetest"
)

// grantCounter counts the re-plans that a policy asks for, and the work that they may do.
type grantCounter struct {
	*vqueue.Policy
	replans, work int64
}

func (a *grantCounter) Handle(now time.Duration, event *policy.Event, actions *policy.Actions) {
	a.Policy.Handle(now, event, actions)
	for i := range actions.List {
		if actions.List[i].Kind == policy.Replan {
			a.replans, a.work = a.replans+1, a.work+a.GrantedWork()
		}
	}
}

// TestLongQueueIsCheap: what re-plans of one instance may work grows with the requests,
// and not with the length of the queue times the seconds that it takes to drain.
func TestLongQueueIsCheap(t *testing.T) {
	each := map[int32]int64{}
	for _, n := range []int32{2000, 8000} {
		tab := instanceTables([]int32{0}, 1, 8)
		pol, err := vqueue.New(tab, vqueue.Options{GroupBatches: 1})
		if err != nil {
			t.Fatal(err)
		}
		a := &grantCounter{Policy: pol}
		p := &play{t: tab, pol: a, outputs: slices.Repeat([]int32{100}, int(n)), endTimes: make([]time.Duration, n)}
		for requestNumber := range n {
			at := time.Duration(requestNumber) * time.Millisecond
			m := requestNumber % 2
			p.schedule(at, policy.Event{Kind: policy.Arrival, Req: requestNumber, Task: requestNumber, Model: m, Service: m, Tokens: 200, Limit: 400, ArrivedAt: at, Deadline: at + tab.Models[m].SLO}, nil)
		}
		p.run(t)
		if slices.Contains(p.endTimes, 0) {
			t.Fatalf("%d requests: one has no answer", n)
		}
		each[n] = a.work / int64(n)
		t.Logf("%d requests: %d re-plans, %d positions a request", n, a.replans, each[n])
	}
	if each[2000] == 0 || each[8000] > 5000 {
		t.Errorf("re-plans may look at %d positions a request, expected some and at most 5000", each[8000])
	}
}

// TestLongLoadsAreCheap: however long a load takes, ticks are few while requests wait for it.
func TestLongLoadsAreCheap(t *testing.T) {
	for _, load := range []time.Duration{5 * time.Second, 80 * time.Hour} {
		tab := instanceTables([]int32{0}, 2, 8)
		for n := range tab.Networks {
			tab.Networks[n].LoadTimes = [][2]time.Duration{{load, load}, {load, load}}
		}
		pol, err := vqueue.New(tab, vqueue.Options{})
		if err != nil {
			t.Fatal(err)
		}
		const requests = 200
		p := &play{t: tab, pol: pol, outputs: slices.Repeat([]int32{100}, requests), endTimes: make([]time.Duration, requests)}
		for requestNumber := range int32(requests) { // of the other network than the loaded one
			at := time.Duration(requestNumber) * load / requests
			p.schedule(at, policy.Event{Kind: policy.Arrival, Req: requestNumber, Task: requestNumber, Model: 2, Service: 2, Tokens: 200, Limit: 400, ArrivedAt: at, Deadline: at + tab.Models[2].SLO}, nil)
		}
		p.run(t)
		if slices.Contains(p.endTimes, 0) || p.loads != 1 {
			t.Fatalf("a load of %v: %d loads, and a request has no answer: %v", load, p.loads, slices.Contains(p.endTimes, 0))
		}
		after := slices.Max(p.endTimes) - load // served after the load
		if most := 500 + int(after/time.Second); p.ticks > most {
			t.Errorf("a load of %v: %d ticks, expected at most %d", load, p.ticks, most)
		}
		t.Logf("a load of %v: %d ticks, served %v after it", load, p.ticks, after)
	}
}

// TestQueuesPassedOver: where the objective cannot grow by less, the queues that follow
// are not looked at, and the position is that of a look at all, or one that is as good but for rounding.
func TestQueuesPassedOver(t *testing.T) {
	const roundingError = 1e-12 // increases are sums of a few terms of about 1e-3
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t, 30)
		s := vqueue.NewAssignment(p)
		for g := range p.Groups {
			queue, position, delta := s.BestPlace(int32(g))
			q, at, d := vqueue.BestSoon(s, int32(g))
			if samePosition := q == queue && at == position && d == delta; !samePosition && !(q >= 0 && queue >= 0 && d-delta <= roundingError) {
				t.Fatalf("group %d: queue %d, position %d, %g; a look at all queues: %d, %d, %g", g, q, at, d, queue, position, delta)
			}
			if queue >= 0 && rapid.Bool().Draw(t, "enters") {
				s.Insert(int32(g), queue, position)
			}
		}
		runSearch(s, 1, 2000)
		if !vqueue.NonEmptyIsExact(s) {
			t.Fatal("the marks of queues are not those that have groups")
		}
		for g := range p.Groups {
			s.Remove(int32(g))
		}
		if !vqueue.NonEmptyIsExact(s) {
			t.Fatal("a queue is marked where all are empty")
		}
	})
	big := queuetest.Instance(200, 150, 3, 0.5, 1)
	s := vqueue.NewAssignment(big)
	s.InsertGreedily()
	if !vqueue.NonEmptyIsExact(s) {
		t.Error("150 queues: the marks are not those that have groups")
	}
}
