package workflow

import (
	"slices"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/flow"
)

// languageModelPolicy are two devices that hold a language model of at most four sequences, whose KV
// memory holds three of the usual length, and another model.
func languageModelPolicy() *Policy {
	it := formats.Iteration{BaseNS: 1e7, SequenceNS: 1e6}
	planTables := &policy.Tables{Kinds: []string{"device"}, KindCounts: []int32{2}, Models: []policy.Model{{Name: "talk", SLO: time.Minute}}, StageDevices: []int32{0, 1}, Memory: []int64{100, 100}, Resident: [][]int32{{0, 1}, {0}}}
	for d := range 2 {
		planTables.Devices = append(planTables.Devices, policy.Device{Share: 1, GPU: int32(d), Uplink: -1, Downlink: -1, Instance: -1})
	}
	own := &flow.WorkflowTables{LanguageModels: []flow.LanguageModel{{Prompt: 10, Output: 90, Engines: []flow.Engine{{Iteration: it, KVTokens: 300, MaxSequences: 4}}}, {}}}
	for service, most := range []int32{4, 2} {
		stage := policy.Stage{Pipeline: int32(service), NumDevices: 2, LastBlock: 1}
		for n := range most {
			took := 500 * time.Millisecond
			if service == 0 {
				took = it.ResidenceTime(n+1, 10, 90, 0)
			}
			stage.Infer = append(stage.Infer, took)
		}
		planTables.Stages = append(planTables.Stages, stage)
		planTables.Pipelines = append(planTables.Pipelines, policy.Pipeline{Model: -1, Service: int32(service), Network: int32(service), Batch: most, FirstStage: int32(service), NumStages: 1})
		planTables.Services = append(planTables.Services, policy.Service{FirstPipeline: int32(service), NumPipelines: 1})
		planTables.Networks = append(planTables.Networks, policy.Network{Bytes: 60 - 40*int64(service), BaseNetwork: -1, LoadTimes: [][2]time.Duration{{time.Second, time.Second}}})
	}
	planTables.KindTables = own
	return New(planTables, Options{})
}

// arriveWithTask has a request come at an instant with one task of a service; it gives what is
// dispatched.
func (p *Policy) arriveWithTask(at time.Duration, slot, service int32) (out policy.Actions) {
	for _, ev := range []policy.Event{{Kind: policy.Arrival, Req: slot, Task: slot}, {Kind: policy.ControlRevealed, Req: slot, Task: -1, Value: 1},
		{Kind: policy.TaskRevealed, Req: slot, Task: slot, Service: service, List: []int32{-1}}} {
		ev.Deadline = time.Hour
		p.Handle(at, &ev, &out)
	}
	return out
}

// dispatchesOf are the devices and batches of the dispatches among actions.
func dispatchesOf(out policy.Actions) (list [][2]int32) {
	for i := range out.List {
		if a := &out.List[i]; a.Kind == policy.Dispatch {
			list = append(list, [2]int32{a.Device, a.Batch})
		}
	}
	return list
}

// Tasks join while KV memory lasts, and wait otherwise. Ends follow from how many there
// are. A task of another service that waits has the device drain.
func TestTasksJoinWhileKVMemoryLasts(t *testing.T) {
	p := languageModelPolicy()
	p.cluster.devices[1].isDown = true
	slots := map[int32]bool{}
	for i := range int32(4) {
		out := dispatchesOf(p.arriveWithTask(time.Duration(i)*time.Millisecond, i, 0))
		if want := i < 3; (len(out) == 1) != want {
			t.Fatalf("task %d: %v", i, out)
		}
		for _, o := range out {
			if o[1] < 2 || slots[o[1]] {
				t.Errorf("task %d has slot %d, which is not its own", i, o[1])
			}
			slots[o[1]] = true
		}
	}
	device := &p.cluster.devices[0]
	alone, among := p.tables.profileOn(0, 0).batchTimes[0], p.tables.profileOn(0, 0).batchTimes[2]
	if device.batchEndsAt <= alone || device.batchEndsAt > among+2e6 || device.kvTokens != 300 || !device.isBusy {
		t.Errorf("the device ends at %d with %d tokens, expected up to %d", device.batchEndsAt, device.kvTokens, among)
	}
	if out := dispatchesOf(p.arriveWithTask(5*time.Millisecond, 4, 1)); len(out) > 0 {
		t.Errorf("%v runs beside sequences", out)
	}
	var out policy.Actions
	p.Handle(time.Second, &policy.Event{Kind: policy.BatchFinished, Device: 0, Batch: p.registry.tasks[device.runningTasks[0]].sequence.batchNumber}, &out)
	if list := dispatchesOf(out); len(list) != 1 || device.kvTokens != 300 { // it came before the other service's
		t.Errorf("%v with %d tokens, expected the fourth", list, device.kvTokens)
	}
	if out := dispatchesOf(p.arriveWithTask(1001*time.Millisecond, 5, 0)); len(out) > 0 {
		t.Errorf("%v joins while the device drains", out)
	}
	for n := 0; len(device.runningTasks) > 0 && p.tables.isLanguageModel(device.runningService); n++ {
		out.Reset()
		p.Handle(time.Duration(1100+n)*time.Millisecond, &policy.Event{Kind: policy.BatchFinished, Device: 0, Batch: p.registry.tasks[device.runningTasks[0]].sequence.batchNumber}, &out)
	}
	if list := dispatchesOf(out); len(list) != 1 || list[0] != [2]int32{0, 0} || device.runningService != 1 {
		t.Errorf("%v runs on the drained device, expected the other service's task", list)
	}
	out.Reset()
	p.Handle(2*time.Second, &policy.Event{Kind: policy.BatchFinished, Device: 0, Batch: 0}, &out)
	if list := dispatchesOf(out); len(list) != 1 || device.runningService != 0 || device.kvTokens != 100 {
		t.Errorf("%v with %d tokens, expected the last sequence", list, device.kvTokens)
	}
}

// A sequence that others join is expected later, one that others leave sooner.
func TestExpectedEnds(t *testing.T) {
	p := languageModelPolicy()
	p.cluster.devices[1].isDown = true
	p.arriveWithTask(0, 0, 0)
	device, times := &p.cluster.devices[0], p.tables.profileOn(0, 0).batchTimes
	if device.batchEndsAt != times[0] {
		t.Fatalf("alone until %d, expected %d", device.batchEndsAt, times[0])
	}
	half := times[0] / 2
	p.arriveWithTask(time.Duration(half), 1, 0)
	if first, second := p.registry.tasks[0].endsAt, p.registry.tasks[1].endsAt; first != half+times[1]/2 && (first-half-times[1]/2 > 2 || first-half-times[1]/2 < -2) || second != half+times[1] {
		t.Errorf("ends %d and %d, expected %d and %d", first, second, half+times[1]/2, half+times[1])
	}
	var out policy.Actions
	p.Handle(time.Duration(half+times[1]/2), &policy.Event{Kind: policy.BatchFinished, Device: 0, Batch: p.registry.tasks[0].sequence.batchNumber}, &out)
	if want := half + times[1]/2 + times[0]/2; device.batchEndsAt-want > 2 || device.batchEndsAt-want < -2 {
		t.Errorf("the second ends at %d, expected %d", device.batchEndsAt, want)
	}
}

// Devices of one kind that run different services have nothing of each other's: no place in the rows, and no load.
func TestServicesHaveTheirDevices(t *testing.T) {
	p := languageModelPolicy()
	tables := *p.tables.planTables
	tables.Stages = slices.Clone(tables.Stages)
	for service := range tables.Stages { // each service on the device of its number
		tables.Stages[service].FirstDevice, tables.Stages[service].NumDevices = int32(service), 1
	}
	tables.Resident = [][]int32{{0}, {1}}
	p = New(&tables, Options{})
	for service := range int32(2) {
		for deviceIndex := range int32(2) {
			if p.tables.canRun(service, deviceIndex) != (service == deviceIndex) {
				t.Errorf("service %d runs at place %d: %v", service, deviceIndex, p.tables.canRun(service, deviceIndex))
			}
		}
	}
	for slot := range int32(6) {
		for _, o := range dispatchesOf(p.arriveWithTask(time.Duration(slot)*time.Millisecond, slot, slot%2)) {
			if o[0] != slot%2 {
				t.Errorf("a task of service %d runs on device %d", slot%2, o[0])
			}
		}
	}
	if d := p.cluster.devices[0]; d.runningService != 0 || len(d.runningTasks) != 3 || p.cluster.devices[1].runningService != 1 {
		t.Errorf("%d sequences on the first device, service %d on the second", len(d.runningTasks), p.cluster.devices[1].runningService)
	}
}
