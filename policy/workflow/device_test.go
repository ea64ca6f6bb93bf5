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
func planSlowly(planner *devicePlanner, place int32, now, at int64) (plan []plannedBatch, ends map[int32]int64) {
	c := planner.cluster
	d := &c.devices[place]
	waits, ends := map[int32]int64{}, map[int32]int64{}
	for _, id := range d.queue {
		k := &c.book.tasks[id]
		waits[id] = max(planner.inputsReadyAt(k, place, now), d.networkReadyAt(c.tables.services[k.service].network))
	}
	for len(waits) > 0 {
		may := func(id int32) bool { w, left := waits[id]; return left && w <= at }
		i := slices.IndexFunc(d.queue, may)
		if i < 0 {
			at = farFuture
			for _, w := range waits {
				at = min(at, w)
			}
			continue
		}
		if c.options.FullBatchFirst {
			i = fullSlowly(c, place, at, i, may)
		}
		b := plannedBatch{start: at, joinUntil: at, service: c.book.tasks[d.queue[i]].service}
		var in []int32
		for _, id := range d.queue {
			if k := &c.book.tasks[id]; k.service == b.service && may(id) && b.size < c.tables.serviceOn(b.service, place).maxBatch {
				in = append(in, id)
				b.size++
				b.hasRevealed = b.hasRevealed || k.slot >= 0
				b.work = max(b.work, k.work)
			}
		}
		b.end = at + c.tables.batchTime(b.service, place, b.size, b.work)
		for _, id := range in {
			ends[id] = b.end
			delete(waits, id)
		}
		plan, at = append(plan, b), b.end
	}
	return plan, ends
}

// fullSlowly is the place of the first task of the first full batch, if the task at a place of
// the queue, the first that may run, can be in time behind it; if not, that place.
func fullSlowly(c *cluster, place int32, at int64, first int, may func(int32) bool) int {
	d := &c.devices[place]
	head := &c.book.tasks[d.queue[first]]
	for last, id := range d.queue {
		service, in := c.book.tasks[id].service, []int{}
		work := int64(0)
		for i, id := range d.queue[:last+1] {
			if k := &c.book.tasks[id]; k.service == service && may(id) {
				in, work = append(in, i), max(work, k.work)
			}
		}
		if most := c.tables.serviceOn(service, place).maxBatch; !may(id) || len(in) != int(most) {
			continue
		} else if end := at + c.tables.batchTime(service, place, most, work); in[0] == first || end+c.tables.batchTime(head.service, place, 1, head.work) <= head.orderKey {
			return in[0]
		}
	}
	return first
}

// fillQueue gives a device a queue of revealed and expected tasks, some of which wait for
// inputs or for loads.
func fillQueue(p *Policy, seed uint64, tasks int) {
	rng, d := seeded.New(seed, "crowd"), &p.cluster.devices[0]
	source := p.book.newTask(0, 0, 0, usualWork) // what tasks read whose inputs are on their way
	for range tasks {
		id := p.book.newTask(0, int32(rng.IntN(3)-1), int32(rng.IntN(len(p.tables.services))), usualWork*int64(1+rng.IntN(3))/2)
		k := &p.book.tasks[id]
		k.state, k.place, k.inputsAt, k.orderKey = taskQueued, 0, 0, rng.Int64N(3e10)
		if rng.IntN(3) == 0 {
			k.stateInTransit, k.stateArrivesAt = true, rng.Int64N(2e10)
		}
		if rng.IntN(4) == 0 {
			k.inputsAt, k.inputs = -1, append(k.inputs, source)
		}
		d.enqueue(p.book.tasks, id)
	}
	u := &p.book.tasks[source]
	u.state, u.place, u.endsAt = taskRunning, 1, 5e8
}

func TestPlanIsTheRulePlayedForward(t *testing.T) {
	for seed := range uint64(120) {
		p := busyPolicy(4, 6, Options{FullBatchFirst: seed%2 > 0})
		fillQueue(p, seed, 1+int(seed)*2)
		const now = int64(1e8)
		d := &p.cluster.devices[0]
		p.placer.planner.planLoads(0, now)
		want, ends := planSlowly(p.placer.planner, 0, now, d.batchEndsAt)
		p.placer.planner.planDevice(0, now)
		if !slices.Equal(d.plannedBatches, want) || d.planEnd != want[len(want)-1].end {
			t.Fatalf("seed %d: %v, expected %v", seed, d.plannedBatches, want)
		}
		for id, end := range ends {
			if p.book.tasks[id].endsAt != end {
				t.Fatalf("seed %d: task %d ends at %d, expected %d", seed, id, p.book.tasks[id].endsAt, end)
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
		f := testFleet(1, 2, 1)
		f.source.Pipelines[1].Batch, f.source.Stages[1].Infer = 4, f.source.Stages[1].Infer[:4]
		p := New(f.source, withAdmission(Options{}))
		d := &p.cluster.devices[0]
		for i := range 1 + c.behind {
			service := int32(min(i, 1))
			id := p.book.newTask(0, int32(i), service, usualWork)
			k := &p.book.tasks[id]
			k.state, k.place, k.inputsAt, k.orderKey = taskQueued, 0, 0, int64(i)*1e9
			if d.loaded[service] = true; i == 0 {
				k.orderKey = p.tables.batchTime(1, 0, 4, usualWork) + p.tables.batchTime(0, 0, 1, usualWork) + c.spare
			} else {
				k.orderKey += 100e9
			}
			d.enqueue(p.book.tasks, id)
		}
		p.book.openRequest(0)
		p.placer.planner.planDevice(0, 0)
		out := &policy.Actions{}
		p.runner.startBatch(0, 0, out)
		if full := d.service == 1; full != c.full || d.plannedBatches[0].service != d.service || int(d.plannedBatches[0].size) != len(d.batch) {
			t.Errorf("%+v: a batch of %d of service %d, planned %+v", c, len(d.batch), d.service, d.plannedBatches[0])
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
