package vqueue_test

import (
	"testing"
	"time"

	"inferplan/policy"
	"inferplan/policy/vqueue"
)

// isPulledAtOnce plays a request of the hurried class that runs with this much time left, and one
// of the other class that comes then. It tells whether the second is pulled at once.
func isPulledAtOnce(t *testing.T, spare time.Duration, slower float64, networks int, change func(o *vqueue.Options)) bool {
	t.Helper()
	tab := instanceTables([]int32{0}, networks, 8)
	for i := range vqueue.TablesOf(tab).RCT {
		if e := &vqueue.TablesOf(tab).RCT[i]; e.Batch > 0 {
			e.DecodeAlone, e.Decode = 0.02, 0.02*slower
		}
	}
	opt := vqueue.Options{}
	change(&opt)
	pol, err := vqueue.New(tab, opt)
	if err != nil {
		t.Fatal(err)
	}
	var out policy.Actions
	arrive := func(requestNumber, model int32, deadline time.Duration) (dispatched bool) {
		out.Reset()
		pol.Handle(0, &policy.Event{Kind: policy.Arrival, Req: requestNumber, Task: requestNumber, Model: model, Service: model, Tokens: 200, Limit: 400, Deadline: deadline}, &out)
		for i := range out.List {
			dispatched = dispatched || out.List[i].Kind == policy.Dispatch
		}
		return dispatched
	}
	if !arrive(0, 0, spare) {
		t.Fatal("an idle instance takes nothing")
	}
	return arrive(1, 1, time.Hour)
}

// TestPromptsThatCostMoreAreHeldBack: a prompt of a request with much time is not pulled
// into a batch of which a request would be late by it. It is where that request has much
// time too or is late anyway, where prompts hardly slow a batch, where models change, and
// where pricing is off.
func TestPromptsThatCostMoreAreHeldBack(t *testing.T) {
	same := func(*vqueue.Options) {}
	for _, c := range []struct {
		name     string
		spare    time.Duration
		slower   float64
		networks int
		change   func(o *vqueue.Options)
		pulled   bool
	}{
		{"a hurried batch", 8 * time.Second, 8, 1, same, false},
		{"a batch with much time", 10 * time.Minute, 8, 1, same, true},
		{"a batch that is late", 0, 8, 1, same, true},
		{"prompts that hardly slow", 8 * time.Second, 3, 1, same, true},
		{"two models", 8 * time.Second, 8, 2, same, true},
		{"no pricing", 8 * time.Second, 8, 1, func(o *vqueue.Options) { o.NoPausePricing = true }, true},
		{"earliest deadline first", 8 * time.Second, 8, 1, func(o *vqueue.Options) { o.Rule = vqueue.EDF }, true},
	} {
		if got := isPulledAtOnce(t, c.spare, c.slower, c.networks, c.change); got != c.pulled {
			t.Errorf("%s: pulled at once: %v, expected %v", c.name, got, c.pulled)
		}
	}
}
