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
		for deviceIndex := range p.cluster.devices {
			for service := range p.tables.services {
				k := jobTask{service: int32(service), workFactor: fixedOne}
				candidate := p.placer.search.cheapestPlacement(int32(deviceIndex), &k, now)
				if got := p.placer.planner.endTable.endAt(int32(service), int32(deviceIndex), now, fixedOne); got != candidate.end {
					t.Fatalf("service %d on device %d: %d by the rows, %d by the plan", service, deviceIndex, got, candidate.end)
				}
				later := p.placer.search.cheapestPlacement(int32(deviceIndex), &k, now+7e8)
				if got := p.placer.planner.endTable.endAt(int32(service), int32(deviceIndex), now+7e8, fixedOne); got > later.end {
					t.Fatalf("service %d on device %d, ready later: %d by the rows is after %d by the plan", service, deviceIndex, got, later.end)
				}
			}
		}
	}
}

// bruteForceEnd tries every device of every task, in the search's own model.
func bruteForceEnd(x *search, job *job, taskIndex int32, last int64, best *int64) {
	if taskIndex == int32(len(job.tasks)) {
		*best = min(*best, last)
		return
	}
	jobTask := &job.tasks[taskIndex]
	for d := range x.cluster.devices {
		ready := x.now
		for _, input := range job.inputsOf(taskIndex) {
			if input >= 0 {
				ready = max(ready, x.currentEnd[input]+x.tables.transferTime(job.tasks[input].service, x.currentDevice[input], int32(d)))
			}
		}
		candidate := x.cheapestPlacement(int32(d), jobTask, ready)
		x.currentDevice[taskIndex], x.currentEnd[taskIndex] = int32(d), candidate.end
		if candidate.jobBatchIndex >= 0 {
			batch := x.jobBatches[candidate.jobBatchIndex]
			x.jobBatches[candidate.jobBatchIndex].addTask(x.tables, jobTask, &candidate)
			bruteForceEnd(x, job, taskIndex+1, max(last, candidate.end), best)
			x.jobBatches[candidate.jobBatchIndex] = batch
			continue
		}
		x.jobBatches = append(x.jobBatches, x.newJobBatch(int32(d), jobTask, &candidate))
		bruteForceEnd(x, job, taskIndex+1, max(last, candidate.end), best)
		x.jobBatches = x.jobBatches[:len(x.jobBatches)-1]
	}
}

// A search over all devices that is not cut short finds the best that there is;
// with four devices per task it is rarely worse, and never better than the bound.
func TestSearchAgainstBruteForce(t *testing.T) {
	rng := seeded.New(4, "brute")
	worse := 0
	for draw := range 150 {
		p := busyPolicy(5, 4, Options{SearchWidth: 5})
		for service := range p.tables.sameNodeTimes {
			p.tables.sameNodeTimes[service], p.tables.otherNodeTimes[service] = 1e6, 1+rng.Int64N(4e8)
		}
		now := rng.Int64N(1e9)
		p.placer.planner.refreshPlans(now)
		job := randomJob(rng, 2+rng.IntN(3), 4)
		for taskIndex := range job.tasks {
			job.tasks[taskIndex].workFactor = fixedOne // a shorter one may fit into a gap that the rows do not name
		}
		x := &p.placer.search
		x.maxSteps = 1 << 30
		x.findDevices(now, job)
		got, bound := x.bestLastCost, x.endBound
		want := farFuture
		x.jobBatches = x.jobBatches[:0]
		bruteForceEnd(x, job, 0, 0, &want)
		if got != want || got < bound {
			t.Fatalf("draw %d: ends at %d, the best is %d, the bound %d", draw, got, want, bound)
		}
		x.width, x.maxSteps = 4, maxSearchSteps
		x.findDevices(now, job)
		if x.bestLastCost < want {
			t.Fatalf("draw %d: %d is before the best, %d", draw, x.bestLastCost, want)
		}
		if x.bestLastCost > want {
			worse++
		}
	}
	t.Logf("four devices per task: worse in %d of 150", worse)
	if worse > 15 {
		t.Errorf("four devices per task were worse in %d of 150", worse)
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
	p := New(testFleet(4, 3, 8).planTables, Options{ExpectTasks: true, SearchWidth: 4})
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
	for p.cluster.devices[p.registry.tasks[p.registry.requests[0].revealedTasks[0]].deviceIndex].loadingNetwork >= 0 {
		d.endNextLoad()
	}
	if ran := d.actionsOf(policy.Dispatch); len(ran) > 1 || len(p.registry.requests[0].expectedTasks) != 1 {
		t.Fatalf("actions %+v, %d expected", d.out.List, len(p.registry.requests[0].expectedTasks))
	}
	d.finishOne(2) // another service than expected
	if n := len(p.registry.requests[0].revealedTasks); n != 2 || len(p.registry.requests[0].expectedTasks) != 0 {
		t.Fatalf("%d tasks and %d expected", n, len(p.registry.requests[0].expectedTasks))
	}
	for deviceIndex := range p.cluster.devices {
		for _, taskID := range p.cluster.devices[deviceIndex].queue {
			if p.registry.tasks[taskID].service == 1 {
				t.Error("what was expected still waits")
			}
		}
	}
	held := false
	for deviceIndex := range p.cluster.devices {
		held = held || p.cluster.devices[deviceIndex].holdsNetwork[1] || p.cluster.devices[deviceIndex].loadingNetwork == 1
	}
	if !held {
		t.Error("the load of what was expected was lost")
	}
}

// finishOne ends the batch that runs, which reveals a task of a service.
func (d *drivenPolicy) finishOne(service int32) {
	for range 10 {
		for deviceIndex := range d.policy.cluster.devices {
			if dev := &d.policy.cluster.devices[deviceIndex]; dev.isBusy {
				d.now = time.Duration(dev.batchEndsAt)
				d.handleEvent(policy.Event{Kind: policy.ControlRevealed, Req: 0, Value: 1})
				d.handleEvent(policy.Event{Kind: policy.TaskRevealed, Req: 0, Task: 1, Service: service, List: []int32{0}})
				d.handleEvent(policy.Event{Kind: policy.BatchFinished, Device: d.policy.cluster.tables.planDevice[deviceIndex]})
				return
			}
		}
		d.endNextLoad()
	}
}

// What comes as expected keeps its place, or is placed anew, by the switch.
func TestExpectedTaskComes(t *testing.T) {
	for _, rebind := range []bool{false, true} {
		p := New(testFleet(2, 2, 8).planTables, Options{ExpectTasks: true, SearchWidth: 2, ReplaceOnReveal: rebind})
		a, b := p.Table().TokenNumber(0, 0, []int32{0}), p.Table().TokenNumber(1, 0, []int32{1})
		for range 5 {
			p.Table().Learn(0, -1, []int32{a, b}, 1)
		}
		d := &drivenPolicy{policy: p}
		d.handleEvent(policy.Event{Kind: policy.Arrival, Req: 0, Deadline: time.Minute})
		d.handleEvent(policy.Event{Kind: policy.ControlRevealed, Req: 0, Value: 1})
		d.handleEvent(policy.Event{Kind: policy.TaskRevealed, Req: 0, Task: 0, Service: 0, List: []int32{-1}})
		key := p.registry.tasks[p.registry.requests[0].expectedTasks[0]].orderKey
		for !p.cluster.devices[0].isBusy && !p.cluster.devices[1].isBusy {
			d.endNextLoad()
		}
		d.finishOne(1)
		task := &p.registry.tasks[p.registry.requests[0].revealedTasks[1]]
		if kept := task.orderKey == key; kept == rebind || task.progress != taskQueued && task.progress != taskRunning {
			t.Errorf("rebind %v: the place in the queue was kept: %v", rebind, kept)
		}
	}
}

// Room is made of networks that nothing asks for, then of those that expected
// tasks ask for, and of what revealed tasks ask for only when nothing can run.
func TestEvictionFollowsClasses(t *testing.T) {
	p := New(testFleet(1, 6, 8).planTables, Options{})
	device := &p.cluster.devices[0]
	device.memoryBytes = 9e9 // three networks of 3 GB
	hold := func(networks ...int32) {
		clear(device.holdsNetwork)
		for _, n := range networks {
			device.holdsNetwork[n] = true
		}
		device.usedBytes, device.queue = int64(len(networks))*3e9, device.queue[:0]
	}
	add := func(service int32, real bool) {
		taskNumber := int32(-1)
		if real {
			taskNumber = 0
		}
		taskID := p.registry.newTask(0, taskNumber, service, fixedOne)
		p.registry.tasks[taskID].progress, p.registry.tasks[taskID].deviceIndex, p.registry.tasks[taskID].inputsDevice = taskQueued, 0, 0
		device.queue = append(device.queue, taskID)
	}
	room := func(i int, network int32) (gone []int32, ok bool) {
		var out policy.Actions
		ok = p.loader.freeMemoryFor(0, i, network, p.cluster.isStuck(device), &out)
		for _, a := range out.List {
			gone = append(gone, a.Network)
		}
		return gone, ok
	}
	hold(0, 1, 2)
	device.lastUsedAt[0], device.lastUsedAt[1], device.lastUsedAt[2] = 3, 1, 2
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
	device.holdsNetwork[2], device.usedBytes = true, 9e9
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
	device.isBusy, device.runningService = true, 0
	add(1, true)
	add(2, true)
	add(3, true)
	if gone, ok := room(2, 3); ok {
		t.Errorf("evicted %v though the device runs", gone)
	}
	device.isBusy = false
	if gone, ok := room(2, 3); !ok || len(gone) != 1 {
		t.Errorf("a device that stands still made no room (%v)", gone)
	}
}

// A task that is not ready, or is only expected, does not hold up what stands
// behind it, and a batch takes what is ready of its service up to its limit.
func TestDevicesSkipWhatIsNotReady(t *testing.T) {
	p := New(testFleet(1, 3, 8).planTables, Options{})
	device := &p.cluster.devices[0]
	for n := range device.holdsNetwork {
		device.holdsNetwork[n] = true
	}
	add := func(taskNumber, service int32, ready bool) {
		taskID := p.registry.newTask(0, taskNumber, service, fixedOne)
		task := &p.registry.tasks[taskID]
		task.progress, task.deviceIndex = taskQueued, 0
		if ready {
			task.inputsDevice = 0
		}
		device.queue = append(device.queue, taskID)
	}
	p.registry.openRequest(0)
	add(-1, 0, true)
	add(1, 1, false)
	for i := range int32(20) {
		add(2+i, 2, true)
	}
	add(30, 0, true)
	var out policy.Actions
	p.runner.startBatch(0, 0, &out)
	if len(out.List) != 1 || out.List[0].Size != 16 || out.List[0].Pipeline != 2 || out.Tasks[0] != 2 || out.Tasks[15] != 17 || len(device.queue) != 7 {
		t.Fatalf("ran %+v of tasks %v, %d wait", out.List, out.Tasks, len(device.queue))
	}
}

// A client that goes away frees all that the policy keeps.
func TestCancelFreesAll(t *testing.T) {
	d := &drivenPolicy{policy: New(testFleet(4, 2, 8).planTables, dyorcOptions)}
	d.runRequest()
	for i := range 3 {
		d.handleEvent(policy.Event{Kind: policy.Arrival, Req: 0, Deadline: d.now + time.Minute})
		d.handleEvent(policy.Event{Kind: policy.ControlRevealed, Req: 0, Value: 1})
		d.handleEvent(policy.Event{Kind: policy.TaskRevealed, Req: 0, Task: 0, Service: 0, List: []int32{-1}})
		d.handleEvent(policy.Event{Kind: policy.Cancel, Req: 0})
		if drops := d.actionsOf(policy.Drop); len(drops) != 1 || drops[0].Reason != policy.ReasonCancelled {
			t.Fatalf("actions %+v", d.out.List)
		}
		for deviceIndex := range d.policy.cluster.devices {
			if dev := &d.policy.cluster.devices[deviceIndex]; dev.isBusy {
				d.now = time.Duration(dev.batchEndsAt)
				d.handleEvent(policy.Event{Kind: policy.BatchFinished, Device: int32(deviceIndex)})
			}
		}
		if used := len(d.policy.cluster.registry.tasks) - len(d.policy.cluster.registry.freeTasks); used != 0 {
			t.Errorf("round %d: %d tasks are kept", i, used)
		}
	}
}

func TestUnknownPolicyNameIsRefused(t *testing.T) {
	if _, err := OptionsByName("dyork"); err == nil {
		t.Error("an unknown policy was found")
	}
}
