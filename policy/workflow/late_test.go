package workflow

import (
	"slices"
	"testing"
	"time"

	"inferplan/policy"
)

// ask opens a request of one task of service 0.
func (d *driven) ask(req int32, deadline time.Duration) {
	d.tell(policy.Event{Kind: policy.Arrival, Req: req, Deadline: deadline})
	d.tell(policy.Event{Kind: policy.ControlRevealed, Req: req, Value: 1})
	d.tell(policy.Event{Kind: policy.TaskRevealed, Req: req, Task: req, Service: 0, List: []int32{-1}})
}

// A request without hope is given up, to the nanosecond. One that would only be late
// where it has been placed is given up with Late alone. Nobody else is.
func TestLateRequestsAreGivenUp(t *testing.T) {
	for _, up := range []Giving{Never, Hopeless, Late} {
		opt := dyorc
		opt.GiveUp = up
		p := New(testFleet(1, 1, 8).t, opt)
		p.devices[0].loaded[0] = true
		d := &driven{p: p}
		alone := time.Duration(p.fleet.cost(0, 0, 1, unit))
		d.now = time.Second
		for i, c := range []struct {
			deadline time.Duration
			dropped  bool
		}{
			{d.now + alone - 1, up != Never},
			{d.now + alone, false}, // runs at once
			{d.now + alone + 1, up == Late},
			{d.now + 3*alone, false},
		} {
			d.ask(int32(i), c.deadline)
			drops := d.told(policy.Drop)
			if (len(drops) == 1) != c.dropped || c.dropped && drops[0].Reason != policy.ReasonDeadline {
				t.Errorf("%d, request %d: dropped %v, expected %v", up, i, drops, c.dropped)
			}
		}
	}
}

// Room is made by what a copy saves: of two that nothing asks for now, the one goes of
// which another copy is there, though more has asked for it, and sooner.
func TestRoomByWorth(t *testing.T) {
	for _, c := range []struct {
		worth bool
		gone  int32
	}{{false, 1}, {true, 0}} {
		p := New(testFleet(2, 3, 8).t, Options{Worth: c.worth})
		d := &p.devices[0]
		d.memory, d.taken = 6e9, 6e9
		d.loaded[0], d.loaded[1], p.devices[1].loaded[0] = true, true, true
		p.copies[0], p.copies[1] = 2, 1
		for now := int64(0); now < 100e9; now += 1e9 {
			p.asked(now, 0)
			if now%3e9 == 0 {
				p.asked(now, 1)
			}
		}
		d.last[0], d.last[1] = 99e9, 96e9
		p.value(100e9)
		var out policy.Actions
		if !p.loads.evict(0, -1, spareClass, 3e9, &out) || len(out.List) != 1 || out.List[0].Network != c.gone {
			t.Errorf("by worth: %v: %+v, expected network %d to go", c.worth, out.List, c.gone)
		}
	}
}

// What a program asks for while a task of it runs is placed at once. What the end of a
// batch reveals waits for that end, which is about to be told.
func TestTasksAreAskedForMeanwhile(t *testing.T) {
	for _, between := range []int64{0, 1} {
		p := New(testFleet(2, 2, 8).t, dyorc)
		for place := range p.devices {
			p.devices[place].loaded[0], p.devices[place].loaded[1] = true, true
		}
		d := &driven{p: p}
		d.ask(0, time.Hour)
		if len(d.told(policy.Dispatch)) != 1 {
			t.Fatalf("actions %+v", d.out.List)
		}
		d.tell(policy.Event{Kind: policy.ControlRevealed, Req: 0, Value: 1, Key: between})
		d.tell(policy.Event{Kind: policy.TaskRevealed, Req: 0, Task: 1, Service: 1, List: []int32{-1}})
		if p.running != len(slices.DeleteFunc([]bool{p.devices[0].busy, p.devices[1].busy}, func(b bool) bool { return !b })) {
			t.Errorf("%d devices run", p.running)
		}
		if ran := slices.ContainsFunc(d.out.List, func(a policy.Action) bool { return a.Kind == policy.Dispatch }); ran != (between == 1) {
			t.Errorf("between %d: %+v", between, d.out.List)
		}
	}
}
