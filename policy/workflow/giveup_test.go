package workflow

import (
	"slices"
	"testing"
	"time"

	"inferplan/policy"
)

// openRequest opens a request of one task of service 0.
func (d *drivenPolicy) openRequest(requestNumber int32, deadline time.Duration) {
	d.handleEvent(policy.Event{Kind: policy.Arrival, Req: requestNumber, Deadline: deadline})
	d.handleEvent(policy.Event{Kind: policy.ControlRevealed, Req: requestNumber, Value: 1})
	d.handleEvent(policy.Event{Kind: policy.TaskRevealed, Req: requestNumber, Task: requestNumber, Service: 0, List: []int32{-1}})
}

// A request without hope is given up, to the nanosecond. One that would only be late
// where it has been placed is given up with GiveUpLate alone. Nobody else is.
func TestLateRequestsAreGivenUp(t *testing.T) {
	for _, up := range []GiveUpRule{GiveUpNever, GiveUpHopeless, GiveUpLate} {
		opt := dyorcOptions
		opt.GiveUp = up
		p := New(testFleet(1, 1, 8).planTables, opt)
		p.cluster.devices[0].holdsNetwork[0] = true
		d := &drivenPolicy{policy: p}
		alone := time.Duration(p.tables.batchTime(0, 0, 1, fixedOne))
		d.now = time.Second
		for i, c := range []struct {
			deadline time.Duration
			dropped  bool
		}{
			{d.now + alone - 1, up != GiveUpNever},
			{d.now + alone, false}, // runs at once
			{d.now + alone + 1, up == GiveUpLate},
			{d.now + 3*alone, false},
		} {
			d.openRequest(int32(i), c.deadline)
			drops := d.actionsOf(policy.Drop)
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
		p := New(testFleet(2, 3, 8).planTables, Options{EvictByValue: c.worth})
		device := &p.cluster.devices[0]
		device.memoryBytes, device.usedBytes = 6e9, 6e9
		device.holdsNetwork[0], device.holdsNetwork[1], p.cluster.devices[1].holdsNetwork[0] = true, true, true
		p.cluster.copyCount[0], p.cluster.copyCount[1] = 2, 1
		for now := int64(0); now < 100e9; now += 1e9 {
			p.cluster.countDemand(now, 0)
			if now%3e9 == 0 {
				p.cluster.countDemand(now, 1)
			}
		}
		device.lastUsedAt[0], device.lastUsedAt[1] = 99e9, 96e9
		p.cluster.demand.updateValues(100e9)
		var out policy.Actions
		if !p.loader.evict(0, -1, unneededClass, 3e9, &out) || len(out.List) != 1 || out.List[0].Network != c.gone {
			t.Errorf("by worth: %v: %+v, expected network %d to go", c.worth, out.List, c.gone)
		}
	}
}

// What a program asks for while a task of it runs is placed at once. What the end of a
// batch reveals waits for that end, which is about to be told.
func TestTasksAreAskedForMeanwhile(t *testing.T) {
	for _, between := range []int64{0, 1} {
		p := New(testFleet(2, 2, 8).planTables, dyorcOptions)
		for deviceIndex := range p.cluster.devices {
			p.cluster.devices[deviceIndex].holdsNetwork[0], p.cluster.devices[deviceIndex].holdsNetwork[1] = true, true
		}
		d := &drivenPolicy{policy: p}
		d.openRequest(0, time.Hour)
		if len(d.actionsOf(policy.Dispatch)) != 1 {
			t.Fatalf("actions %+v", d.out.List)
		}
		d.handleEvent(policy.Event{Kind: policy.ControlRevealed, Req: 0, Value: 1, Key: between})
		d.handleEvent(policy.Event{Kind: policy.TaskRevealed, Req: 0, Task: 1, Service: 1, List: []int32{-1}})
		if p.cluster.busyDevices != len(slices.DeleteFunc([]bool{p.cluster.devices[0].isBusy, p.cluster.devices[1].isBusy}, func(b bool) bool { return !b })) {
			t.Errorf("%d devices run", p.cluster.busyDevices)
		}
		if ran := slices.ContainsFunc(d.out.List, func(a policy.Action) bool { return a.Kind == policy.Dispatch }); ran != (between == 1) {
			t.Errorf("between %d: %+v", between, d.out.List)
		}
	}
}
