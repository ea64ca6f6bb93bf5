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
	p := New(testFleet(devices, services, 8).planTables, opt)
	rng := seeded.New(7, "busy")
	for deviceIndex := range p.cluster.devices {
		device := &p.cluster.devices[deviceIndex]
		for n := range services {
			if rng.IntN(2) == 0 && device.usedBytes+p.tables.networkBytes[n] <= device.memoryBytes {
				device.holdsNetwork[n] = true
				device.usedBytes += p.tables.networkBytes[n]
			}
		}
		p.cluster.busyDevices++
		device.isBusy, device.runningService, device.batchEndsAt = true, int32(rng.IntN(services)), int64(rng.IntN(1200))*1e6
		for range rng.IntN(5) {
			taskID := p.registry.newTask(0, 0, int32(rng.IntN(services)), fixedOne)
			task := &p.registry.tasks[taskID]
			task.progress, task.deviceIndex, task.inputsDevice = taskQueued, int32(deviceIndex), int32(deviceIndex)
			device.enqueue(p.registry.tasks, taskID)
		}
	}
	p.placer.planner.refreshPlans(0)
	return p
}

// BenchmarkSearch is the same with tasks of the request in each other's way.
func BenchmarkSearch(b *testing.B) {
	for _, w := range workflows {
		for _, devices := range []int{32, 128, 1024} {
			b.Run(fmt.Sprintf("%s/%d", w.name, devices), func(b *testing.B) {
				p := busyPolicy(devices, 30, Options{SearchWidth: 4, PriceDeviceTime: true})
				var j job
				w.make(&j)
				rng := seeded.New(1, "states")
				b.ReportAllocs()
				b.ResetTimer()
				start := cputime.Used()
				for range b.N {
					p.placer.search.findDevices(rng.Int64N(1e9), &j)
					for taskIndex := range j.tasks {
						deviceIndex := p.placer.search.bestDevice[taskIndex]
						p.placer.planner.planDevice(deviceIndex, 0)
						p.placer.planner.writeEndTable(deviceIndex, 0)
					}
				}
				b.ReportMetric((cputime.Used()-start).Seconds()*1e6/float64(b.N), "cpu-us/op")
			})
		}
	}
}

// drivenPolicy is a request of a fan-out and a merge that a test leads through a policy.
type drivenPolicy struct {
	policy *Policy
	out    policy.Actions
	now    time.Duration
}

func (d *drivenPolicy) handleEvent(ev policy.Event) {
	d.out.Reset()
	d.policy.Handle(d.now, &ev, &d.out)
}

// runRequest leads a request of two segments through the policy: one task, then two
// that read it.
func (d *drivenPolicy) runRequest() {
	d.handleEvent(policy.Event{Kind: policy.Arrival, Req: 0, Deadline: d.now + time.Minute})
	d.handleEvent(policy.Event{Kind: policy.ControlRevealed, Req: 0, Value: 1})
	d.handleEvent(policy.Event{Kind: policy.TaskRevealed, Req: 0, Task: 0, Service: 0, List: []int32{-1}})
	d.finishTasks(1)
	d.finishTasks(2)
}

// finishTasks goes on until so many tasks have run, with what they reveal.
func (d *drivenPolicy) finishTasks(tasks int) {
	for ran := 0; ran < tasks; {
		device := int32(-1)
		for deviceIndex := range d.policy.cluster.devices {
			if d.policy.cluster.devices[deviceIndex].isBusy {
				device = d.policy.cluster.tables.planDevice[deviceIndex]
			}
		}
		if device < 0 {
			d.endNextLoad()
			continue
		}
		dev := &d.policy.cluster.devices[d.policy.cluster.tables.deviceIndexOf[device]]
		d.now = time.Duration(dev.batchEndsAt)
		ran += len(dev.runningTasks)
		if tasks == 1 {
			d.handleEvent(policy.Event{Kind: policy.ControlRevealed, Req: 0, Value: 2})
			d.handleEvent(policy.Event{Kind: policy.TaskRevealed, Req: 0, Task: 1, Service: 1, List: []int32{0}})
			d.handleEvent(policy.Event{Kind: policy.TaskRevealed, Req: 0, Task: 2, Service: 1, List: []int32{0}})
		} else if ran == tasks {
			d.handleEvent(policy.Event{Kind: policy.ControlRevealed, Req: 0})
		}
		d.handleEvent(policy.Event{Kind: policy.BatchFinished, Device: device, Batch: dev.batchSlot(d.policy)})
	}
}

// endNextLoad ends the next load, or brings what a task reads.
func (d *drivenPolicy) endNextLoad() {
	for deviceIndex := range d.policy.cluster.devices {
		dev := &d.policy.cluster.devices[deviceIndex]
		if dev.loadingNetwork >= 0 {
			d.now = max(d.now, time.Duration(dev.loadEndsAt))
			d.handleEvent(policy.Event{Kind: policy.NetworkLoaded, Network: dev.loadingNetwork, Device: d.policy.cluster.tables.planDevice[deviceIndex]})
			return
		}
		for _, taskID := range dev.queue {
			if task := &d.policy.cluster.registry.tasks[taskID]; task.isRevealed() && task.inputsTarget == int32(deviceIndex) && task.inputsDevice != int32(deviceIndex) && task.pendingInputs == 0 {
				d.now += 3 * time.Millisecond
				d.handleEvent(policy.Event{Kind: policy.TransferFinished, Task: task.taskNumber, Batch: -1, Device: d.policy.cluster.tables.planDevice[deviceIndex]})
				return
			}
		}
	}
	panic("nothing is left to happen")
}

// batchNumber is the number that the policy gave a device's batch.
func (dev *device) batchSlot(p *Policy) int32 {
	for deviceIndex := range p.cluster.devices {
		if &p.cluster.devices[deviceIndex] == dev {
			return int32(deviceIndex)
		}
	}
	return -1
}

// In steady state nothing is allocated, from arrival to end.
func TestRequestAllocatesNothing(t *testing.T) {
	for _, name := range Names() {
		opt, err := OptionsByName(name)
		if err != nil {
			t.Fatal(err)
		}
		d := &drivenPolicy{policy: New(testFleet(16, 4, 8).planTables, opt)}
		for range 50 {
			d.runRequest()
		}
		if n := testing.AllocsPerRun(100, d.runRequest); n > 0 {
			t.Errorf("%s: a request allocates %v times", name, n)
		}
	}
}

// BenchmarkRequest is all that the policy does for a request of three tasks.
func BenchmarkRequest(b *testing.B) {
	for _, devices := range []int{32, 128, 1024} {
		b.Run(fmt.Sprint(devices), func(b *testing.B) {
			opt := dyorcOptions
			d := &drivenPolicy{policy: New(testFleet(devices, 30, 8).planTables, opt)}
			for range 50 {
				d.runRequest()
			}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				d.runRequest()
			}
		})
	}
}
