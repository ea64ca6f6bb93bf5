package vqueue_test

import (
	"reflect"
	"testing"
	"time"

	"inferplan/policy"
	"inferplan/policy/vqueue"
)

// asking is a policy that is asked what requests would meet before every event.
type asking struct {
	*vqueue.Policy
	last  vqueue.Expectation
	views int
}

func (a *asking) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	if ev.Kind == policy.Arrival {
		a.last = a.Policy.Expect(now, ev.Model, 100, ev.Client, ev.Deadline)
		a.views += len(a.Policy.View())
	}
	a.Policy.Handle(now, ev, out)
}

// TestExpect: who waits behind more waits longer and is more likely late, and a policy
// that is asked decides as one that is not.
func TestExpect(t *testing.T) {
	list := byTime(steady(20, 0, 20*time.Second, 0, 100), steady(5, 0, 20*time.Second, 1, 100))
	plain := playing(t, fleet([]int32{0, 0}, 2, 4), vqueue.Options{}, list)
	tab := fleet([]int32{0, 0}, 2, 4)
	pol, err := vqueue.New(tab, vqueue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a := &asking{Policy: pol}
	asked := playingWith(t, tab, a, list)
	if !reflect.DeepEqual(plain.ends, asked.ends) {
		t.Error("a policy that is asked decides otherwise")
	}
	if a.last.Start == 0 || a.last.Answered <= a.last.Start || a.views == 0 {
		t.Errorf("the last request expected %+v", a.last)
	}
}

// TestExpectRefuses: with a limit as many may wait, with admission nobody comes in who
// is late in all likelihood.
func TestExpectRefuses(t *testing.T) {
	for _, c := range []struct {
		opt  vqueue.Options
		wait int
		slo  time.Duration
		want policy.Reason
	}{
		{vqueue.Options{}, 200, time.Second, policy.ReasonNone},
		{vqueue.Options{QueueLimit: 50}, 200, time.Hour, policy.ReasonQueueFull},
		{vqueue.Options{QueueLimit: 500}, 200, time.Second, policy.ReasonNone},
		{vqueue.Options{Admission: true}, 200, time.Second, policy.ReasonDeadline},
		{vqueue.Options{Admission: true}, 200, time.Hour, policy.ReasonNone},
		{vqueue.Options{Admission: true}, 0, time.Minute, policy.ReasonNone},
	} {
		tab := fleet([]int32{0}, 1, 4)
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
		if e.Reason != c.want || (e.Reason != policy.ReasonNone) != (e.Again > 0) {
			t.Errorf("%+v behind %d with %v to go: %+v, expected %v", c.opt, c.wait, c.slo, e, c.want)
		}
	}
}
