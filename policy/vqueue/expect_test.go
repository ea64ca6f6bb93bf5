package vqueue_test

import (
	"reflect"
	"testing"
	"time"

	"inferplan/policy"
	"inferplan/policy/vqueue"
)

// askingPolicy is a policy that is asked what requests would meet before every event.
type askingPolicy struct {
	*vqueue.Policy
	lastExpectation vqueue.Expectation
	views           int
}

func (a *askingPolicy) Handle(now time.Duration, event *policy.Event, actions *policy.Actions) {
	if event.Kind == policy.Arrival {
		a.lastExpectation = a.Policy.Expect(now, event.Model, 100, event.Client, event.Deadline)
		a.views += len(a.Policy.QueueViews())
	}
	a.Policy.Handle(now, event, actions)
}

// TestExpectChangesNoDecision: who waits behind more waits longer and is more likely late, and a policy
// that is asked decides as one that is not.
func TestExpectChangesNoDecision(t *testing.T) {
	list := byTime(steadyRequests(20, 0, 20*time.Second, 0, 100), steadyRequests(5, 0, 20*time.Second, 1, 100))
	plain := playRequests(t, instanceTables([]int32{0, 0}, 2, 4), vqueue.Options{}, list)
	tab := instanceTables([]int32{0, 0}, 2, 4)
	pol, err := vqueue.New(tab, vqueue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a := &askingPolicy{Policy: pol}
	asked := playPolicy(t, tab, a, list)
	if !reflect.DeepEqual(plain.endTimes, asked.endTimes) {
		t.Error("a policy that is asked decides otherwise")
	}
	if a.lastExpectation.Milestone != "the answer" {
		t.Errorf("an SLO on whole answers: %q is expected", a.lastExpectation.Milestone)
	}
	if a.lastExpectation.StartsAt == 0 || a.lastExpectation.MilestoneAt <= a.lastExpectation.StartsAt || a.views == 0 {
		t.Errorf("the last request expected %+v", a.lastExpectation)
	}
}

// TestExpectRefuses: with a limit as many may wait, with admission nobody comes in who
// is late in all likelihood.
func TestExpectRefuses(t *testing.T) {
	for _, c := range []struct {
		opt  vqueue.Options
		wait int
		slo  time.Duration
		want policy.DropReason
	}{
		{vqueue.Options{}, 200, time.Second, policy.ReasonNone},
		{vqueue.Options{QueueLimit: 50}, 200, time.Hour, policy.ReasonQueueFull},
		{vqueue.Options{QueueLimit: 500}, 200, time.Second, policy.ReasonNone},
		{vqueue.Options{DropLate: true}, 200, time.Second, policy.ReasonDeadline},
		{vqueue.Options{DropLate: true}, 200, time.Hour, policy.ReasonNone},
		{vqueue.Options{DropLate: true}, 0, time.Minute, policy.ReasonNone},
	} {
		tab := instanceTables([]int32{0}, 1, 4)
		pol, err := vqueue.New(tab, c.opt)
		if err != nil {
			t.Fatal(err)
		}
		var out policy.Actions
		for i := range c.wait {
			out.Reset()
			pol.Handle(0, &policy.Event{Kind: policy.Arrival, Req: int32(i), Task: int32(i), Tokens: 100, Limit: 100, Deadline: c.slo}, &out)
		}
		e := pol.Expect(0, 0, 100, 0, c.slo)
		if e.RefusalReason != c.want || (e.RefusalReason != policy.ReasonNone) != (e.RetryAfter > 0) {
			t.Errorf("%+v behind %d with %v to go: %+v, expected %v", c.opt, c.wait, c.slo, e, c.want)
		}
	}
}
