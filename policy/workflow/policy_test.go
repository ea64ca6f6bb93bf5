package workflow

import (
	"slices"
	"testing"
	"time"

	"inferplan/formats/seeded"
	"inferplan/policy"
)

// The rows say of a task that is ready now what the device's plan says.
func TestRowsEqualPlans(t *testing.T) {
	for seed := range uint64(20) {
		p := busyPolicy(12, 10, Options{SearchWidth: 4})
		rng := seeded.New(seed, "rows")
		now := rng.Int64N(2e9)
		p.placer.planner.refreshPlans(now)
		p.placer.search.now = now
		for place := range p.cluster.devices {
			for s := range p.tables.services {
				k := jobTask{service: int32(s), work: usualWork}
				o := p.placer.search.bestOffer(int32(place), &k, now)
				if got := p.placer.planner.endTable.endAt(int32(s), int32(place), now, usualWork); got != o.end {
					t.Fatalf("service %d at place %d: %d by the rows, %d by the plan", s, place, got, o.end)
				}
				later := p.placer.search.bestOffer(int32(place), &k, now+7e8)
				if got := p.placer.planner.endTable.endAt(int32(s), int32(place), now+7e8, usualWork); got > later.end {
					t.Fatalf("service %d at place %d, ready later: %d by the rows is after %d by the plan", s, place, got, later.end)
				}
			}
		}
	}
}

// bruteForceEnd tries every place of every task, in the search's own model.
func bruteForceEnd(x *search, j *job, t int32, last int64, best *int64) {
	if t == int32(len(j.tasks)) {
		*best = min(*best, last)
		return
	}
	k := &j.tasks[t]
	for d := range x.cluster.devices {
		ready := x.now
		for _, in := range j.inputsOf(t) {
			if in >= 0 {
				ready = max(ready, x.currentEnd[in]+x.tables.transferTime(j.tasks[in].service, x.currentPlace[in], int32(d)))
			}
		}
		o := x.bestOffer(int32(d), k, ready)
		x.currentPlace[t], x.currentEnd[t] = int32(d), o.end
		if o.ownIndex >= 0 {
			b := x.ownBatches[o.ownIndex]
			x.ownBatches[o.ownIndex].addTask(x.tables, k, &o)
			bruteForceEnd(x, j, t+1, max(last, o.end), best)
			x.ownBatches[o.ownIndex] = b
			continue
		}
		x.ownBatches = append(x.ownBatches, x.newJobBatch(int32(d), k, &o))
		bruteForceEnd(x, j, t+1, max(last, o.end), best)
		x.ownBatches = x.ownBatches[:len(x.ownBatches)-1]
	}
}

// A search over all places that is not cut short finds the best that there is;
// with four places per task it is rarely worse, and never better than the bound.
func TestSearchAgainstBruteForce(t *testing.T) {
	rng := seeded.New(4, "brute")
	worse := 0
	for draw := range 150 {
		p := busyPolicy(5, 4, Options{SearchWidth: 5})
		for s := range p.tables.sameNodeTime {
			p.tables.sameNodeTime[s], p.tables.otherNodeTime[s] = 1e6, 1+rng.Int64N(4e8)
		}
		now := rng.Int64N(1e9)
		p.placer.planner.refreshPlans(now)
		j := randomJob(rng, 2+rng.IntN(3), 4)
		for t := range j.tasks {
			j.tasks[t].work = usualWork // a shorter one may fit into a gap that the rows do not name
		}
		x := &p.placer.search
		x.maxSteps = 1 << 30
		x.findPlaces(now, j)
		got, bound := x.bestLastEnd, x.endBound
		want := farFuture
		x.ownBatches = x.ownBatches[:0]
		bruteForceEnd(x, j, 0, 0, &want)
		if got != want || got < bound {
			t.Fatalf("draw %d: ends at %d, the best is %d, the bound %d", draw, got, want, bound)
		}
		x.width, x.maxSteps = 4, maxSearchSteps
		x.findPlaces(now, j)
		if x.bestLastEnd < want {
			t.Fatalf("draw %d: %d is before the best, %d", draw, x.bestLastEnd, want)
		}
		if x.bestLastEnd > want {
			worse++
		}
	}
	t.Logf("four places per task: worse in %d of 150", worse)
	if worse > 15 {
		t.Errorf("four places per task were worse in %d of 150", worse)
	}
}

// actionsOf is what a policy of a test answered last.
func (d *drivenPolicy) actionsOf(kind policy.ActionKind) (out []policy.Action) {
	for _, a := range d.out.List {
		if a.Kind == kind {
			out = append(out, a)
		}
	}
	return out
}

// An expected task causes a load and is not dispatched. When another one comes
// instead, what was expected is forgotten and the load goes on.
func TestExpectedTasksOnlyLoad(t *testing.T) {
	p := New(testFleet(4, 3, 8).source, Options{ExpectTasks: true, SearchWidth: 4})
	a := p.Table().TokenNumber(0, 0, []int32{0})
	b := p.Table().TokenNumber(1, 0, []int32{1})
	for range 5 {
		p.Table().Learn(0, -1, []int32{a, b}, 1)
	}
	d := &drivenPolicy{policy: p}
	d.handleEvent(policy.Event{Kind: policy.Arrival, Req: 0, Deadline: time.Minute})
	d.handleEvent(policy.Event{Kind: policy.ControlRevealed, Req: 0, Value: 1})
	d.handleEvent(policy.Event{Kind: policy.TaskRevealed, Req: 0, Task: 0, Service: 0, List: []int32{-1}})
	if len(d.actionsOf(policy.Load)) == 0 || len(d.actionsOf(policy.Dispatch)) != 0 {
		t.Fatalf("actions %+v: expected loads, no dispatch", d.out.List)
	}
	for p.cluster.devices[p.book.tasks[p.book.requests[0].revealedTasks[0]].place].loading >= 0 {
		d.endNextLoad()
	}
	if ran := d.actionsOf(policy.Dispatch); len(ran) > 1 || len(p.book.requests[0].expectedTasks) != 1 {
		t.Fatalf("actions %+v, %d expected", d.out.List, len(p.book.requests[0].expectedTasks))
	}
	d.finishOne(2) // another service than expected
	if n := len(p.book.requests[0].revealedTasks); n != 2 || len(p.book.requests[0].expectedTasks) != 0 {
		t.Fatalf("%d tasks and %d expected", n, len(p.book.requests[0].expectedTasks))
	}
	for place := range p.cluster.devices {
		for _, id := range p.cluster.devices[place].queue {
			if p.book.tasks[id].service == 1 {
				t.Error("what was expected still waits")
			}
		}
	}
	held := false
	for place := range p.cluster.devices {
		held = held || p.cluster.devices[place].loaded[1] || p.cluster.devices[place].loading == 1
	}
	if !held {
		t.Error("the load of what was expected was lost")
	}
}

// finishOne ends the batch that runs, which reveals a task of a service.
func (d *drivenPolicy) finishOne(service int32) {
	for range 10 {
		for place := range d.policy.cluster.devices {
			if dev := &d.policy.cluster.devices[place]; dev.busy {
				d.now = time.Duration(dev.batchEndsAt)
				d.handleEvent(policy.Event{Kind: policy.ControlRevealed, Req: 0, Value: 1})
				d.handleEvent(policy.Event{Kind: policy.TaskRevealed, Req: 0, Task: 1, Service: service, List: []int32{0}})
				d.handleEvent(policy.Event{Kind: policy.BatchFinished, Device: d.policy.cluster.tables.deviceAt[place]})
				return
			}
		}
		d.endNextLoad()
	}
}

// What comes as expected keeps its place, or is placed anew, by the switch.
func TestExpectedTaskComes(t *testing.T) {
	for _, rebind := range []bool{false, true} {
		p := New(testFleet(2, 2, 8).source, Options{ExpectTasks: true, SearchWidth: 2, ReplaceOnReveal: rebind})
		a, b := p.Table().TokenNumber(0, 0, []int32{0}), p.Table().TokenNumber(1, 0, []int32{1})
		for range 5 {
			p.Table().Learn(0, -1, []int32{a, b}, 1)
		}
		d := &drivenPolicy{policy: p}
		d.handleEvent(policy.Event{Kind: policy.Arrival, Req: 0, Deadline: time.Minute})
		d.handleEvent(policy.Event{Kind: policy.ControlRevealed, Req: 0, Value: 1})
		d.handleEvent(policy.Event{Kind: policy.TaskRevealed, Req: 0, Task: 0, Service: 0, List: []int32{-1}})
		key := p.book.tasks[p.book.requests[0].expectedTasks[0]].orderKey
		for !p.cluster.devices[0].busy && !p.cluster.devices[1].busy {
			d.endNextLoad()
		}
		d.finishOne(1)
		k := &p.book.tasks[p.book.requests[0].revealedTasks[1]]
		if kept := k.orderKey == key; kept == rebind || k.state != taskQueued && k.state != taskRunning {
			t.Errorf("rebind %v: the place in the queue was kept: %v", rebind, kept)
		}
	}
}

// Room is made of networks that nothing asks for, then of those that expected
// tasks ask for, and of what revealed tasks ask for only when nothing can run.
func TestEvictionFollowsClasses(t *testing.T) {
	p := New(testFleet(1, 6, 8).source, Options{})
	d := &p.cluster.devices[0]
	d.memoryBytes = 9e9 // three networks of 3 GB
	hold := func(networks ...int32) {
		clear(d.loaded)
		for _, n := range networks {
			d.loaded[n] = true
		}
		d.usedBytes, d.queue = int64(len(networks))*3e9, d.queue[:0]
	}
	add := func(service int32, real bool) {
		slot := int32(-1)
		if real {
			slot = 0
		}
		id := p.book.newTask(0, slot, service, usualWork)
		p.book.tasks[id].state, p.book.tasks[id].place, p.book.tasks[id].inputsAt = taskQueued, 0, 0
		d.queue = append(d.queue, id)
	}
	room := func(i int, network int32) (gone []int32, ok bool) {
		var out policy.Actions
		ok = p.loader.freeMemoryFor(0, i, network, p.cluster.isStuck(d), &out)
		for _, a := range out.List {
			gone = append(gone, a.Network)
		}
		return gone, ok
	}
	hold(0, 1, 2)
	d.lastUsedAt[0], d.lastUsedAt[1], d.lastUsedAt[2] = 3, 1, 2
	add(3, true)
	if gone, ok := room(0, 3); !ok || !slices.Equal(gone, []int32{1}) {
		t.Errorf("evicted %v: expected the one of use longest ago", gone)
	}
	hold(0, 1, 2)
	add(1, false)
	add(0, false)
	add(3, true)
	if gone, ok := room(2, 3); !ok || !slices.Equal(gone, []int32{2}) {
		t.Errorf("evicted %v: expected the one that nothing asks for", gone)
	}
	hold(0, 1)
	d.loaded[2], d.usedBytes = true, 9e9
	add(2, true)
	add(1, true)
	add(0, false)
	add(3, false)
	if gone, ok := room(3, 3); ok {
		t.Errorf("an expected task evicted %v, which others ask for", gone)
	}
	add(4, true)
	if gone, ok := room(4, 4); !ok || !slices.Equal(gone, []int32{0}) {
		t.Errorf("evicted %v: expected what expected tasks alone ask for", gone)
	}
	hold(0, 1, 2)
	d.busy, d.service = true, 0
	add(1, true)
	add(2, true)
	add(3, true)
	if gone, ok := room(2, 3); ok {
		t.Errorf("evicted %v though the device runs", gone)
	}
	d.busy = false
	if gone, ok := room(2, 3); !ok || len(gone) != 1 {
		t.Errorf("a device that stands still made no room (%v)", gone)
	}
}

// A task that is not ready, or is only expected, does not hold up what stands
// behind it, and a batch takes what is ready of its service up to its limit.
func TestDevicesSkipWhatIsNotReady(t *testing.T) {
	p := New(testFleet(1, 3, 8).source, Options{})
	d := &p.cluster.devices[0]
	for n := range d.loaded {
		d.loaded[n] = true
	}
	add := func(slot, service int32, ready bool) {
		id := p.book.newTask(0, slot, service, usualWork)
		k := &p.book.tasks[id]
		k.state, k.place = taskQueued, 0
		if ready {
			k.inputsAt = 0
		}
		d.queue = append(d.queue, id)
	}
	p.book.openRequest(0)
	add(-1, 0, true)
	add(1, 1, false)
	for i := range int32(20) {
		add(2+i, 2, true)
	}
	add(30, 0, true)
	var out policy.Actions
	p.runner.startBatch(0, 0, &out)
	if len(out.List) != 1 || out.List[0].Size != 16 || out.List[0].Pipeline != 2 || out.Tasks[0] != 2 || out.Tasks[15] != 17 || len(d.queue) != 7 {
		t.Fatalf("ran %+v of tasks %v, %d wait", out.List, out.Tasks, len(d.queue))
	}
}

// A client that goes away frees all that the policy keeps.
func TestCancelFreesAll(t *testing.T) {
	d := &drivenPolicy{policy: New(testFleet(4, 2, 8).source, dyorcOptions)}
	d.runRequest()
	for i := range 3 {
		d.handleEvent(policy.Event{Kind: policy.Arrival, Req: 0, Deadline: d.now + time.Minute})
		d.handleEvent(policy.Event{Kind: policy.ControlRevealed, Req: 0, Value: 1})
		d.handleEvent(policy.Event{Kind: policy.TaskRevealed, Req: 0, Task: 0, Service: 0, List: []int32{-1}})
		d.handleEvent(policy.Event{Kind: policy.Cancel, Req: 0})
		if drops := d.actionsOf(policy.Drop); len(drops) != 1 || drops[0].Reason != policy.ReasonCancelled {
			t.Fatalf("actions %+v", d.out.List)
		}
		for place := range d.policy.cluster.devices {
			if dev := &d.policy.cluster.devices[place]; dev.busy {
				d.now = time.Duration(dev.batchEndsAt)
				d.handleEvent(policy.Event{Kind: policy.BatchFinished, Device: int32(place)})
			}
		}
		if used := len(d.policy.cluster.book.tasks) - len(d.policy.cluster.book.freeTasks); used != 0 {
			t.Errorf("round %d: %d tasks are kept", i, used)
		}
	}
}

func TestUnknownPolicyNameIsRefused(t *testing.T) {
	if _, err := OptionsByName("dyork"); err == nil {
		t.Error("an unknown policy was found")
	}
}
