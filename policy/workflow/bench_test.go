package workflow

import (
	"fmt"
	"testing"
	"time"

	"inferplan/cputime"
	"inferplan/formats/seeded"
	"inferplan/policy"
)

// busyPolicy is a policy whose devices are in the middle of their work: most hold
// half of the networks, run a batch and have a few tasks in their queues.
func busyPolicy(devices, services int, opt Options) *Policy {
	p := New(testFleet(devices, services, 8).t, opt)
	rng := seeded.New(7, "busy")
	for place := range p.devices {
		d := &p.devices[place]
		for n := range services {
			if rng.IntN(2) == 0 && d.taken+p.fleet.bytes[n] <= d.memory {
				d.loaded[n] = true
				d.taken += p.fleet.bytes[n]
			}
		}
		p.running++
		d.busy, d.service, d.ends = true, int32(rng.IntN(services)), int64(rng.IntN(1200))*1e6
		for range rng.IntN(5) {
			id := p.take(0, 0, int32(rng.IntN(services)), unit)
			k := &p.tasks[id]
			k.state, k.place, k.arrived = queued, int32(place), int32(place)
			d.enqueue(p.tasks, id)
		}
	}
	p.refresh(0)
	return p
}

// BenchmarkSearch is the same with tasks of the request in each other's way.
func BenchmarkSearch(b *testing.B) {
	for _, w := range workflows {
		for _, devices := range []int{32, 128, 1024} {
			b.Run(fmt.Sprintf("%s/%d", w.name, devices), func(b *testing.B) {
				p := busyPolicy(devices, 30, Options{Width: 4, Thrift: true})
				var j job
				w.make(&j)
				rng := seeded.New(1, "states")
				b.ReportAllocs()
				b.ResetTimer()
				start := cputime.Used()
				for range b.N {
					p.placement.search.run(rng.Int64N(1e9), &j)
					for t := range j.tasks {
						place := p.placement.search.to[t]
						p.plan(place, 0)
						p.write(place, 0)
					}
				}
				b.ReportMetric((cputime.Used()-start).Seconds()*1e6/float64(b.N), "cpu-us/op")
			})
		}
	}
}

// driven is a request of a fan-out and a merge that a test leads through a policy.
type driven struct {
	p   *Policy
	out policy.Actions
	now time.Duration
}

func (d *driven) tell(ev policy.Event) {
	d.out.Reset()
	d.p.Handle(d.now, &ev, &d.out)
}

// request leads a request of two segments through the policy: one task, then two
// that read it.
func (d *driven) request() {
	d.tell(policy.Event{Kind: policy.Arrival, Req: 0, Deadline: d.now + time.Minute})
	d.tell(policy.Event{Kind: policy.ControlRevealed, Req: 0, Value: 1})
	d.tell(policy.Event{Kind: policy.TaskRevealed, Req: 0, Task: 0, Service: 0, List: []int32{-1}})
	d.finish(1)
	d.finish(2)
}

// finish goes on until so many tasks have run, with what they reveal.
func (d *driven) finish(tasks int) {
	for ran := 0; ran < tasks; {
		device := int32(-1)
		for place := range d.p.devices {
			if d.p.devices[place].busy {
				device = d.p.fleet.ids[place]
			}
		}
		if device < 0 {
			d.progress()
			continue
		}
		dev := &d.p.devices[d.p.fleet.places[device]]
		d.now = time.Duration(dev.ends)
		ran += len(dev.batch)
		if tasks == 1 {
			d.tell(policy.Event{Kind: policy.ControlRevealed, Req: 0, Value: 2})
			d.tell(policy.Event{Kind: policy.TaskRevealed, Req: 0, Task: 1, Service: 1, List: []int32{0}})
			d.tell(policy.Event{Kind: policy.TaskRevealed, Req: 0, Task: 2, Service: 1, List: []int32{0}})
		} else if ran == tasks {
			d.tell(policy.Event{Kind: policy.ControlRevealed, Req: 0})
		}
		d.tell(policy.Event{Kind: policy.BatchFinished, Device: device, Batch: dev.batchSlot(d.p)})
	}
}

// progress ends the next load, or brings what a task reads.
func (d *driven) progress() {
	for place := range d.p.devices {
		dev := &d.p.devices[place]
		if dev.loading >= 0 {
			d.now = max(d.now, time.Duration(dev.there))
			d.tell(policy.Event{Kind: policy.NetworkLoaded, Network: dev.loading, Device: d.p.fleet.ids[place]})
			return
		}
		for _, id := range dev.queue {
			if k := &d.p.tasks[id]; k.slot >= 0 && k.asked == int32(place) && k.arrived != int32(place) && k.pending == 0 {
				d.now += 3 * time.Millisecond
				d.tell(policy.Event{Kind: policy.TransferFinished, Task: k.slot, Batch: -1, Device: d.p.fleet.ids[place]})
				return
			}
		}
	}
	panic("nothing is left to happen")
}

// batchSlot is the slot that the policy gave a device's batch.
func (dev *device) batchSlot(p *Policy) int32 {
	for place := range p.devices {
		if &p.devices[place] == dev {
			return int32(place)
		}
	}
	return -1
}

// In steady state nothing is allocated, from arrival to end.
func TestRequestAllocatesNothing(t *testing.T) {
	for _, name := range Names() {
		opt, err := Named(name)
		if err != nil {
			t.Fatal(err)
		}
		d := &driven{p: New(testFleet(16, 4, 8).t, opt)}
		for range 50 {
			d.request()
		}
		if n := testing.AllocsPerRun(100, d.request); n > 0 {
			t.Errorf("%s: a request allocates %v times", name, n)
		}
	}
}

// BenchmarkRequest is all that the policy does for a request of three tasks.
func BenchmarkRequest(b *testing.B) {
	for _, devices := range []int{32, 128, 1024} {
		b.Run(fmt.Sprint(devices), func(b *testing.B) {
			opt := dyorc
			d := &driven{p: New(testFleet(devices, 30, 8).t, opt)}
			for range 50 {
				d.request()
			}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				d.request()
			}
		})
	}
}
