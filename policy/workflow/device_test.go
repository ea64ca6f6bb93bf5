package workflow

import (
	"fmt"
	"slices"
	"testing"

	"inferplan/formats/seeded"
	"inferplan/policy"
)

// planSlowly is a device's plan by the rule as it is told: one look at the whole queue
// per batch.
func planSlowly(planner *devicePlanner, deviceIndex int32, now, at int64) (plan []plannedBatch, ends map[int32]int64) {
	c := planner.cluster
	device := &c.devices[deviceIndex]
	waits, ends := map[int32]int64{}, map[int32]int64{}
	for _, taskID := range device.queue {
		task := &c.registry.tasks[taskID]
		waits[taskID] = max(planner.inputsReadyAt(task, deviceIndex, now), device.networkReadyAt(c.tables.services[task.service].network))
	}
	for len(waits) > 0 {
		may := func(taskID int32) bool { w, left := waits[taskID]; return left && w <= at }
		i := slices.IndexFunc(device.queue, may)
		if i < 0 {
			at = farFuture
			for _, w := range waits {
				at = min(at, w)
			}
			continue
		}
		if c.options.FullBatchFirst {
			i = fullSlowly(c, deviceIndex, at, i, may)
		}
		batch := plannedBatch{start: at, lastJoinAt: at, service: c.registry.tasks[device.queue[i]].service}
		var in []int32
		for _, taskID := range device.queue {
			if task := &c.registry.tasks[taskID]; task.service == batch.service && may(taskID) && batch.size < c.tables.profileOn(batch.service, deviceIndex).maxBatch {
				in = append(in, taskID)
				batch.size++
				batch.hasRevealed = batch.hasRevealed || task.isRevealed()
				batch.workFactor = max(batch.workFactor, task.workFactor)
			}
		}
		batch.end = at + c.tables.batchTime(batch.service, deviceIndex, batch.size, batch.workFactor)
		for _, taskID := range in {
			ends[taskID] = batch.end
			delete(waits, taskID)
		}
		plan, at = append(plan, batch), batch.end
	}
	return plan, ends
}

// fullSlowly is the place of the first task of the first full batch, if the task at a place of
// the queue, the first that may run, can be in time behind it; if not, that place.
func fullSlowly(c *cluster, deviceIndex int32, at int64, first int, may func(int32) bool) int {
	device := &c.devices[deviceIndex]
	head := &c.registry.tasks[device.queue[first]]
	for last, taskID := range device.queue {
		service, in := c.registry.tasks[taskID].service, []int{}
		workFactor := int64(0)
		for i, taskID := range device.queue[:last+1] {
			if task := &c.registry.tasks[taskID]; task.service == service && may(taskID) {
				in, workFactor = append(in, i), max(workFactor, task.workFactor)
			}
		}
		if most := c.tables.profileOn(service, deviceIndex).maxBatch; !may(taskID) || len(in) != int(most) {
			continue
		} else if end := at + c.tables.batchTime(service, deviceIndex, most, workFactor); in[0] == first || end+c.tables.batchTime(head.service, deviceIndex, 1, head.workFactor) <= head.orderKey {
			return in[0]
		}
	}
	return first
}

// fillQueue gives a device a queue of revealed and expected tasks, some of which wait for
// inputs or for loads.
func fillQueue(p *Policy, seed uint64, tasks int) {
	rng, device := seeded.New(seed, "crowd"), &p.cluster.devices[0]
	source := p.registry.newTask(0, 0, 0, fixedOne) // what tasks read whose inputs are on their way
	for range tasks {
		taskID := p.registry.newTask(0, int32(rng.IntN(3)-1), int32(rng.IntN(len(p.tables.services))), fixedOne*int64(1+rng.IntN(3))/2)
		task := &p.registry.tasks[taskID]
		task.progress, task.deviceIndex, task.inputsDevice, task.orderKey = taskQueued, 0, 0, rng.Int64N(3e10)
		if rng.IntN(3) == 0 {
			task.stateInTransit, task.stateArrivesAt = true, rng.Int64N(2e10)
		}
		if rng.IntN(4) == 0 {
			task.inputsDevice, task.inputs = -1, append(task.inputs, source)
		}
		device.enqueue(p.registry.tasks, taskID)
	}
	u := &p.registry.tasks[source]
	u.progress, u.deviceIndex, u.endsAt = taskRunning, 1, 5e8
}

func TestPlanIsTheRulePlayedForward(t *testing.T) {
	for seed := range uint64(120) {
		p := busyPolicy(4, 6, Options{FullBatchFirst: seed%2 > 0})
		fillQueue(p, seed, 1+int(seed)*2)
		const now = int64(1e8)
		device := &p.cluster.devices[0]
		p.placer.planner.planLoads(0, now)
		want, ends := planSlowly(p.placer.planner, 0, now, device.batchEndsAt)
		p.placer.planner.planDevice(0, now)
		if !slices.Equal(device.plannedBatches, want) || device.planEnd != want[len(want)-1].end {
			t.Fatalf("seed %d: %v, expected %v", seed, device.plannedBatches, want)
		}
		for taskID, end := range ends {
			if p.registry.tasks[taskID].endsAt != end {
				t.Fatalf("seed %d: task %d ends at %d, expected %d", seed, taskID, p.registry.tasks[taskID].endsAt, end)
			}
		}
	}
}

// A full batch runs before the first task in the queue, if that can be in time behind it.
func TestFullBatchesGoFirst(t *testing.T) {
	for _, c := range []struct {
		behind int   // tasks of the other service
		spare  int64 // of the first task, were it to run behind a full batch
		full   bool
	}{{4, 0, true}, {4, -1, false}, {3, 0, false}} {
		tables := testFleet(1, 2, 1)
		tables.planTables.Pipelines[1].Batch, tables.planTables.Stages[1].Infer = 4, tables.planTables.Stages[1].Infer[:4]
		p := New(tables.planTables, withAdmission(Options{}))
		device := &p.cluster.devices[0]
		for i := range 1 + c.behind {
			service := int32(min(i, 1))
			taskID := p.registry.newTask(0, int32(i), service, fixedOne)
			task := &p.registry.tasks[taskID]
			task.progress, task.deviceIndex, task.inputsDevice, task.orderKey = taskQueued, 0, 0, int64(i)*1e9
			if device.holdsNetwork[service] = true; i == 0 {
				task.orderKey = p.tables.batchTime(1, 0, 4, fixedOne) + p.tables.batchTime(0, 0, 1, fixedOne) + c.spare
			} else {
				task.orderKey += 100e9
			}
			device.enqueue(p.registry.tasks, taskID)
		}
		p.registry.openRequest(0)
		p.placer.planner.planDevice(0, 0)
		actions := &policy.Actions{}
		p.runner.startBatch(0, 0, actions)
		if full := device.runningService == 1; full != c.full || device.plannedBatches[0].service != device.runningService || int(device.plannedBatches[0].size) != len(device.runningTasks) {
			t.Errorf("%+v: a batch of %d of service %d, planned %+v", c, len(device.runningTasks), device.runningService, device.plannedBatches[0])
		}
	}
}

// BenchmarkPlan is the plan of a device whose queue is so long.
func BenchmarkPlan(b *testing.B) {
	for _, tasks := range []int{8, 64, 512, 4096} {
		b.Run(fmt.Sprint(tasks), func(b *testing.B) {
			p := busyPolicy(4, 6, Options{})
			fillQueue(p, 1, tasks)
			p.placer.planner.planDevice(0, 0)
			b.ReportAllocs()
			for b.Loop() {
				p.placer.planner.planDevice(0, 0)
			}
		})
	}
}
