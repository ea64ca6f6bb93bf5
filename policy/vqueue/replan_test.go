package vqueue_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"inferplan/policy"
	"inferplan/policy/vqueue"
)

// queueOf makes a policy with requests of two networks in one queue, each a group, whose deadlines
// are such that the order of arrival is not that of the deadlines.
func queueOf(t *testing.T, n int) *vqueue.Policy {
	t.Helper()
	pol, err := vqueue.New(instanceTables([]int32{0}, 2, 2), vqueue.Options{AppendGroups: true, GroupBatches: 0.01})
	if err != nil {
		t.Fatal(err)
	}
	var out policy.Actions
	for i := range int32(n) {
		out.Reset()
		deadline := time.Duration(n-int(i)) * time.Second
		pol.Handle(0, &policy.Event{Kind: policy.Arrival, Model: i % 4, Req: i, Task: i, Tokens: 200, Limit: 400, Deadline: deadline}, &out)
	}
	return pol
}

// giveSearchResult has a policy hear the result of a search.
func giveSearchResult(pol *vqueue.Policy, list []int32) {
	var out policy.Actions
	pol.Handle(0, &policy.Event{Kind: policy.ReplanResult, List: list}, &out)
}

// groupDeadlines is the deadlines of the groups of the only queue.
func groupDeadlines(pol *vqueue.Policy) (out []time.Duration) {
	for _, g := range pol.QueueViews()[0].Groups {
		out = append(out, g.Deadline)
	}
	return out
}

// A search that failed leaves the queues by deadline, where requests are likely late,
// and is counted. One that found nothing better changes nothing.
func TestSearchFails(t *testing.T) {
	pol := queueOf(t, 60)
	before := groupDeadlines(pol)
	if slices.IsSorted(before) || len(before) < 3 {
		t.Fatalf("the groups are due at %v: in order already", before)
	}
	giveSearchResult(pol, nil)
	if now := groupDeadlines(pol); !slices.IsSorted(now) {
		t.Errorf("after a failed search the groups are due at %v", now)
	}
	if r := pol.Replans(); r != (vqueue.ReplanCounts{Failed: 1, ByDeadline: 1}) {
		t.Errorf("counted %+v", r)
	}
	if err := pol.Check(); err != nil {
		t.Error(err)
	}
	calm := queueOf(t, 2)
	giveSearchResult(calm, nil)
	if r := calm.Replans(); r != (vqueue.ReplanCounts{Failed: 1}) {
		t.Errorf("with nobody late: counted %+v", r)
	}
}

// A search whose time is up comes back with the best that it has. Without any gain it
// says so, unless the earliest deadline first is better than the order in force.
func TestSearchOutOfTime(t *testing.T) {
	pol := queueOf(t, 60)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	list, _ := pol.Search(0, 0)(ctx, 1<<40, nil)
	giveSearchResult(pol, list)
	r := pol.Replans()
	if r.OutOfTime+r.ByDeadline+r.Adopted != 1 || r.Stayed+r.Failed != 0 {
		t.Errorf("counted %+v", r)
	}
	for range 3 {
		list, _ = pol.Search(0, 0)(context.Background(), 200_000, nil)
		giveSearchResult(pol, list)
	}
	list, _ = pol.Search(0, 0)(ctx, 1<<40, nil)
	giveSearchResult(pol, list)
	if r := pol.Replans(); r.OutOfTime == 0 {
		t.Errorf("a good order, and no time: counted %+v", r)
	}
	if err := pol.Check(); err != nil {
		t.Error(err)
	}
}

// TestStaleSearchIsNoReason: a search that began before a model came says nothing of what is there since. The next re-plan is not
// passed over for its finding nothing better.
func TestStaleSearchIsNoReason(t *testing.T) {
	for _, late := range []bool{false, true} {
		tab := instanceTables([]int32{0}, 2, 4)
		pol, err := vqueue.New(tab, vqueue.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var out policy.Actions
		tell := func(now time.Duration, ev policy.Event) (asks bool) {
			out.Reset()
			pol.Handle(now, &ev, &out)
			return slices.ContainsFunc(out.List, func(a policy.Action) bool { return a.Kind == policy.Replan })
		}
		for requestNumber := range int32(20) { // of the network that is not loaded
			tell(0, policy.Event{Kind: policy.Arrival, Req: requestNumber, Task: requestNumber, Model: 3, Service: 3, Tokens: 200, Limit: 400, Deadline: 20 * time.Second})
		}
		came := policy.Event{Kind: policy.NetworkLoaded, Network: 1}
		if !late {
			tell(500*time.Millisecond, came)
		}
		if !tell(time.Second, policy.Event{Kind: policy.Timer}) {
			t.Fatal("no re-plan is asked for")
		}
		if late {
			tell(1500*time.Millisecond, came)
		}
		tell(1600*time.Millisecond, policy.Event{Kind: policy.ReplanResult, List: []int32{-1}})
		if got := tell(2*time.Second, policy.Event{Kind: policy.Timer}); got != late {
			t.Errorf("the model came while the search ran: %v; a re-plan is asked for: %v", late, got)
		}
	}
}
