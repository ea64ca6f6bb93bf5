package workflow

import (
	"fmt"
	"slices"
	"testing"

	"inferplan/formats/seeded"
)

// planSlowly is a device's plan by the rule as it is told: one look at the whole queue
// per batch.
func planSlowly(c *cluster, place int32, now, at int64) (plan []period, ends map[int32]int64) {
	d := &c.devices[place]
	waits, ends := map[int32]int64{}, map[int32]int64{}
	for _, id := range d.queue {
		k := &c.tasks[id]
		waits[id] = max(c.readyAt(k, place, now), d.loadedAt(c.fleet.services[k.service].network))
	}
	for len(waits) > 0 {
		may := func(id int32) bool { w, left := waits[id]; return left && w <= at }
		i := slices.IndexFunc(d.queue, may)
		if i < 0 {
			at = never
			for _, w := range waits {
				at = min(at, w)
			}
			continue
		}
		b := period{start: at, until: at, service: c.tasks[d.queue[i]].service}
		var in []int32
		for _, id := range d.queue {
			if k := &c.tasks[id]; k.service == b.service && may(id) && b.n < c.fleet.on(b.service, place).most {
				in = append(in, id)
				b.n++
				b.real = b.real || k.slot >= 0
				b.work = max(b.work, k.work)
			}
		}
		b.end = at + c.fleet.cost(b.service, place, b.n, b.work)
		for _, id := range in {
			ends[id] = b.end
			delete(waits, id)
		}
		plan, at = append(plan, b), b.end
	}
	return plan, ends
}

// crowd gives a device a queue of revealed and expected tasks, some of which wait for
// inputs or for loads.
func crowd(p *Policy, seed uint64, tasks int) {
	rng, d := seeded.New(seed, "crowd"), &p.devices[0]
	source := p.take(0, 0, 0, unit) // what tasks read whose inputs are on their way
	for range tasks {
		id := p.take(0, int32(rng.IntN(3)-1), int32(rng.IntN(len(p.fleet.services))), unit*int64(1+rng.IntN(3))/2)
		k := &p.tasks[id]
		k.state, k.place, k.arrived, k.key = queued, 0, 0, rng.Int64N(1e6)
		if rng.IntN(3) == 0 {
			k.coming, k.there = true, rng.Int64N(2e10)
		}
		if rng.IntN(4) == 0 {
			k.arrived, k.inputs = -1, append(k.inputs, source)
		}
		d.enqueue(p.tasks, id)
	}
	u := &p.tasks[source]
	u.state, u.place, u.end = running, 1, 5e8
}

func TestPlanIsTheRulePlayedForward(t *testing.T) {
	for seed := range uint64(60) {
		p := busyPolicy(4, 6, Options{})
		crowd(p, seed, 1+int(seed)*4)
		const now = int64(1e8)
		d := &p.devices[0]
		p.planLoads(0, now)
		want, ends := planSlowly(p.cluster, 0, now, d.ends)
		p.plan(0, now)
		if !slices.Equal(d.plan, want) || d.tail != want[len(want)-1].end {
			t.Fatalf("seed %d: %v, expected %v", seed, d.plan, want)
		}
		for id, end := range ends {
			if p.tasks[id].end != end {
				t.Fatalf("seed %d: task %d ends at %d, expected %d", seed, id, p.tasks[id].end, end)
			}
		}
	}
}

// BenchmarkPlan is the plan of a device whose queue is so long.
func BenchmarkPlan(b *testing.B) {
	for _, tasks := range []int{8, 64, 512, 4096} {
		b.Run(fmt.Sprint(tasks), func(b *testing.B) {
			p := busyPolicy(4, 6, Options{})
			crowd(p, 1, tasks)
			p.plan(0, 0)
			b.ReportAllocs()
			for b.Loop() {
				p.plan(0, 0)
			}
		})
	}
}
