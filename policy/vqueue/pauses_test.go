package vqueue_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/vqueue"
	"inferplan/testkit/policytest"
)

// setAloneSpeedup has requests that run alone take so much less for a token.
func setAloneSpeedup(tab *policy.Tables, less float64) {
	for i := range vqueue.TablesOf(tab).RCT {
		if e := &vqueue.TablesOf(tab).RCT[i]; e.Batch > 0 && less > 0 {
			e.DecodeAlone = e.Decode / less
		}
	}
}

// pauseCounter counts the events after which the first instance holds prompts back.
type pauseCounter struct {
	*vqueue.Policy
	pauses int
}

func (a *pauseCounter) Handle(now time.Duration, event *policy.Event, actions *policy.Actions) {
	a.Policy.Handle(now, event, actions)
	if a.Policy.IsPausing(now, 0) {
		a.pauses++
	}
}

// TestAdversaryMeetsPauses: the adversary is no use for pauses unless it meets some.
func TestAdversaryMeetsPauses(t *testing.T) {
	held := 0
	for seed := range uint64(20) {
		tab := instanceTables([]int32{0}, 1, 4)
		setAloneSpeedup(tab, 8)
		pol, err := vqueue.New(tab, vqueue.Options{ReplanInterval: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		a := &pauseCounter{Policy: pol}
		foe := &policytest.Adversary{Tables: tab, Policy: a, Check: pol.Check, Rand: seeded.New(seed, "adversary")}
		if err := foe.Run(300); err != nil {
			t.Fatal(err)
		}
		held += a.pauses
	}
	t.Logf("prompts are held back after %d events", held)
	if held == 0 {
		t.Error("prompts are never held back")
	}
}

// TestPauseLooksAtFewGroups: what a pause costs is asked of so many groups, however long the queue is.
func TestPauseLooksAtFewGroups(t *testing.T) {
	tab := instanceTables([]int32{0}, 1, 4)
	setAloneSpeedup(tab, 8)
	pol, err := vqueue.New(tab, vqueue.Options{GroupBatches: 0.25, NoReplan: true}) // groups of one
	if err != nil {
		t.Fatal(err)
	}
	var out policy.Actions
	for requestNumber := range int32(400) { // all are near their deadlines, so that none has a linear cost
		out.Reset()
		pol.Handle(0, &policy.Event{Kind: policy.Arrival, Req: requestNumber, Task: requestNumber, Tokens: 200, Limit: 400, Deadline: time.Duration(requestNumber) * 115 * time.Millisecond}, &out)
	}
	before := pol.PauseCost(0, 0.5)
	walked := pol.PauseCostWithNaN(0, 40)
	if !(before > 0) || !math.IsNaN(walked) {
		t.Fatalf("%g, and %g where the groups behind 40 have no cost: the queue is not walked, so this shows nothing", before, walked)
	}
	if got := pol.PauseCostWithNaN(0, 64); got != before {
		t.Errorf("%g, and %g where the groups behind 64 have no cost", before, got)
	}
}

// TestDecisionsAllocateNothing: where requests wait and end in turns, of sessions and of none, and prompts are held back now and then, no
// event allocates.
func TestDecisionsAllocateNothing(t *testing.T) {
	tab := instanceTables([]int32{0}, 1, 4)
	setAloneSpeedup(tab, 8)
	pol, err := vqueue.New(tab, vqueue.Options{FollowInstances: true, NoReplan: true})
	if err != nil {
		t.Fatal(err)
	}
	a := &pauseCounter{Policy: pol}
	var out policy.Actions
	now, running := time.Duration(0), make([][2]int32, 0, 64) // batches and their requests
	tell := func(ev policy.Event) {
		out.Reset()
		a.Handle(now, &ev, &out)
		for i := range out.List {
			if d := &out.List[i]; d.Kind == policy.Dispatch {
				running = append(running, [2]int32{d.Batch, out.Tasks[d.TaskFirst]})
			}
		}
	}
	arrive := func(requestNumber int32) {
		m := requestNumber % 2
		tell(policy.Event{Kind: policy.Arrival, Req: requestNumber, Task: requestNumber, Model: m, Service: m, Tokens: 200, Limit: 400, Key: int64(requestNumber % 8), ArrivedAt: now, Deadline: now + 4*tab.Models[m].SLO})
	}
	for requestNumber := range int32(40) {
		arrive(requestNumber)
	}
	step := func() {
		now += 110 * time.Millisecond
		ended := running[0]
		running = slices.Delete(running, 0, 1)
		tell(policy.Event{Kind: policy.BatchFinished, Batch: ended[0], Tokens: 100})
		arrive(ended[1])
		tell(policy.Event{Kind: policy.Timer})
	}
	for range 2000 {
		step()
	}
	a.pauses = 0
	if n := testing.AllocsPerRun(2000, step); n > 0 {
		t.Errorf("%g allocations for a request", n)
	}
	if a.pauses == 0 {
		t.Error("prompts are never held back: the test is of no use for pauses")
	}
}
