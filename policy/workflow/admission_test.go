package workflow

import (
	"testing"
	"time"

	"inferplan/policy"
	"pgregory.net/rapid"
)

// neededBy returns the time that the open requests need of a resource.
func (a *admission) neededBy(r int) (sum int64) {
	for _, requestNumber := range a.admittedByDeadline {
		sum += a.registry.requests[requestNumber].neededTime[r]
	}
	return sum
}

// Whatever comes, starts, ends and is dropped: the line is in the order of deadlines, a
// backlog is the sum of what its requests ask for, and nothing is left of those that
// have gone.
func TestBacklogsAreThoseOfTheLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := New(testFleet(rapid.IntRange(1, 4).Draw(t, "devices"), 3, 4).planTables, withAdmission(dyorcOptions))
		for deviceIndex := range p.cluster.devices {
			for n := range p.cluster.devices[deviceIndex].holdsNetwork {
				p.cluster.devices[deviceIndex].holdsNetwork[n] = true
			}
		}
		d := &drivenPolicy{policy: p}
		open := map[int32]bool{}
		task, admitted := int32(0), 0
		for i := range int32(rapid.IntRange(5, 40).Draw(t, "events")) {
			d.now += time.Duration(rapid.IntRange(0, 400).Draw(t, "gap")) * time.Millisecond
			var busy []int32
			for deviceIndex := range p.cluster.devices {
				if p.cluster.devices[deviceIndex].isBusy {
					busy = append(busy, int32(deviceIndex))
				}
			}
			switch what := rapid.IntRange(0, 3).Draw(t, "what"); {
			case what > 1 && len(busy) > 0:
				deviceIndex := rapid.SampledFrom(busy).Draw(t, "place")
				for _, taskID := range p.cluster.devices[deviceIndex].runningTasks {
					if requestNumber := p.registry.tasks[taskID].requestNumber; requestNumber >= 0 && open[requestNumber] {
						d.handleEvent(policy.Event{Kind: policy.ControlRevealed, Req: requestNumber})
						delete(open, requestNumber)
					}
				}
				d.handleEvent(policy.Event{Kind: policy.BatchFinished, Device: p.tables.planDevice[deviceIndex], Batch: deviceIndex})
			case what == 1 && len(open) > 0:
				for requestNumber := range i {
					if open[requestNumber] {
						d.handleEvent(policy.Event{Kind: policy.Cancel, Req: requestNumber})
						delete(open, requestNumber)
						break
					}
				}
			default:
				slo := time.Duration(rapid.IntRange(100, 9000).Draw(t, "slo")) * time.Millisecond
				d.handleEvent(policy.Event{Kind: policy.Arrival, Req: i, ArrivedAt: d.now, Deadline: d.now + slo})
				if !p.registry.requests[i].isOpen {
					if drops := d.actionsOf(policy.Drop); len(drops) != 1 || drops[0].Reason != policy.ReasonDeadline || drops[0].At <= d.now {
						t.Fatalf("refused with %+v", drops)
					}
					continue
				}
				admitted++
				d.handleEvent(policy.Event{Kind: policy.ControlRevealed, Req: i, Value: 1})
				d.handleEvent(policy.Event{Kind: policy.TaskRevealed, Req: i, Task: task, Service: rapid.Int32Range(0, 2).Draw(t, "service"), List: []int32{-1}})
				task++
				open[i] = p.registry.requests[i].isOpen
			}
			g := p.admission
			for r := range g.resources {
				if got, want := g.resources[r].neededTime, g.neededBy(r); got != want || want < 0 {
					t.Fatalf("a backlog of %d, expected %d", got, want)
				}
			}
			for k := range g.admittedByDeadline {
				request := &g.registry.requests[g.admittedByDeadline[k]]
				if !request.isOpen || k > 0 && g.registry.requests[g.admittedByDeadline[k-1]].deadline > request.deadline {
					t.Fatalf("place %d of the line: open %v, deadline %d", k, request.isOpen, request.deadline)
				}
			}
		}
	})
}

// Services that run on devices of their own have backlogs of their own, and one of all
// devices together.
func TestResourcesAreSharedDevices(t *testing.T) {
	tables := testFleet(4, 3, 8)
	c := newCluster(tables.planTables, withAdmission(dyorcOptions))
	for service := range c.tables.services { // every service on a kind of its own, but the last on both
		c.tables.services[service].byKind = append(c.tables.services[service].byKind, c.tables.services[service].byKind[0])
	}
	c.tables.services[0].byKind[1], c.tables.services[1].byKind[0] = kindProfile{}, kindProfile{}
	c.tables.kindOf[2], c.tables.kindOf[3] = 1, 1
	g := newAdmission(c)
	if len(g.resources) != 3 || len(g.resourcesOf[0]) != 2 || len(g.resourcesOf[1]) != 2 || len(g.resourcesOf[2]) != 1 {
		t.Fatalf("%d resources, services use %v", len(g.resources), g.resourcesOf)
	}
}

// On a single device the time of a request itself is not counted twice: as many come in as
// can be in time, with the share of the door.
func TestSingleDeviceAdmitsWhatFits(t *testing.T) {
	const run, slo = 100 * time.Millisecond, 400 * time.Millisecond
	fleet := testFleet(1, 1, 1)
	fleet.planTables.Pipelines[0].Batch, fleet.planTables.Stages[0].Infer = 1, []time.Duration{run}
	p := New(fleet.planTables, withAdmission(Options{}))
	p.cluster.devices[0].holdsNetwork[0] = true
	token := p.Table().TokenNumber(0, 0, []int32{0})
	p.admission.learnPath(0, []int32{token}, int64(run), 1)
	d, admitted := &drivenPolicy{policy: p}, 0
	for i := range int32(6) {
		d.handleEvent(policy.Event{Kind: policy.Arrival, Req: i, Deadline: slo})
		if !p.registry.requests[i].isOpen {
			continue
		}
		admitted++
		d.handleEvent(policy.Event{Kind: policy.ControlRevealed, Req: i, Value: 1})
		d.handleEvent(policy.Event{Kind: policy.TaskRevealed, Req: i, Task: i, Service: 0, List: []int32{-1}})
	}
	// Before the third are 100 ms that run and 100 ms that wait; it must begin after 300 ms.
	if admitted != 3 {
		t.Errorf("%d requests come in, expected 3", admitted)
	}
}

// Where requests with long ways find no room, those with short ways that there would still be
// room for wait while their application is ahead by planned rates, and not if it is behind.
func TestApplicationsKeepPlannedRates(t *testing.T) {
	const run, slo, short, long = 100 * time.Millisecond, time.Second, 0, 1
	for _, first := range []int32{short, long} {
		fleet := testFleet(1, 1, 1)
		fleet.planTables.Models = []policy.Model{{Name: "short", RPS: 5}, {Name: "long", RPS: 5}}
		fleet.planTables.Pipelines[0].Batch, fleet.planTables.Stages[0].Infer = 1, []time.Duration{run}
		p := New(fleet.planTables, withAdmission(Options{}))
		p.cluster.devices[0].holdsNetwork[0] = true
		token := p.Table().TokenNumber(0, 0, []int32{0})
		p.admission.learnPath(short, []int32{token}, int64(run), 1)
		p.admission.learnPath(long, []int32{token}, int64(3*run), 1)
		d, next := &drivenPolicy{policy: p}, int32(0)
		admits := func(app int32) bool {
			i := next
			next++
			d.handleEvent(policy.Event{Kind: policy.Arrival, Req: i, Model: app, ArrivedAt: d.now, Deadline: d.now + slo})
			if !p.registry.requests[i].isOpen {
				return false
			}
			d.handleEvent(policy.Event{Kind: policy.ControlRevealed, Req: i, Value: 1})
			d.handleEvent(policy.Event{Kind: policy.TaskRevealed, Req: i, Task: i, Service: 0, List: []int32{-1}})
			return true
		}
		// Six take up more than .8 of the 700 ms before the last task of a long way, and not
		// of the 900 ms before that of a short one.
		for range 6 {
			if !admits(first) {
				t.Fatal("refused though nobody waits and there is room")
			}
		}
		if admits(long) {
			t.Fatal("room for a long way behind six requests")
		}
		if got := admits(short); got != (first == long) {
			t.Errorf("after six of application %d a short way comes in: %v", first, got)
		}
		d.now += slo // the long way is of no use any more
		d.handleEvent(policy.Event{Kind: policy.BatchFinished, Device: p.tables.planDevice[0], Batch: 0})
		if !admits(short) {
			t.Errorf("after six of application %d a short way waits for a request whose deadline is over", first)
		}
	}
}
