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
	t := &policy.Tables{Kinds: []string{"device"}, KindCounts: []int32{2}, Models: []policy.Model{{Name: "talk", SLO: time.Minute}}, StageDevices: []int32{0, 1}, Memory: []int64{100, 100}, Resident: [][]int32{{0, 1}, {0}}}
	for d := range 2 {
		t.Devices = append(t.Devices, policy.Device{Share: 1, GPU: int32(d), Uplink: -1, Downlink: -1, Instance: -1})
	}
	own := &flow.WorkflowTables{LanguageModels: []flow.LanguageModel{{Prompt: 10, Output: 90, Engines: []flow.Engine{{Iteration: it, KVTokens: 300, MaxSequences: 4}}}, {}}}
	for s, most := range []int32{4, 2} {
		stage := policy.Stage{Pipeline: int32(s), NumDevices: 2, LastBlock: 1}
		for n := range most {
			took := 500 * time.Millisecond
			if s == 0 {
				took = it.ResidenceTime(n+1, 10, 90, 0)
			}
			stage.Infer = append(stage.Infer, took)
		}
		t.Stages = append(t.Stages, stage)
		t.Pipelines = append(t.Pipelines, policy.Pipeline{Model: -1, Service: int32(s), Network: int32(s), Batch: most, FirstStage: int32(s), NumStages: 1})
		t.Services = append(t.Services, policy.Service{FirstPipeline: int32(s), NumPipelines: 1})
		t.Networks = append(t.Networks, policy.Network{Bytes: 60 - 40*int64(s), BaseNetwork: -1, LoadTimes: [][2]time.Duration{{time.Second, time.Second}}})
	}
	t.KindTables = own
	return New(t, Options{})
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
	p.cluster.devices[1].down = true
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
	d := &p.cluster.devices[0]
	alone, among := p.tables.serviceOn(0, 0).times[0], p.tables.serviceOn(0, 0).times[2]
	if d.batchEndsAt <= alone || d.batchEndsAt > among+2e6 || d.kvTokens != 300 || !d.busy {
		t.Errorf("the device ends at %d with %d tokens, expected up to %d", d.batchEndsAt, d.kvTokens, among)
	}
	if out := dispatchesOf(p.arriveWithTask(5*time.Millisecond, 4, 1)); len(out) > 0 {
		t.Errorf("%v runs beside sequences", out)
	}
	var out policy.Actions
	p.Handle(time.Second, &policy.Event{Kind: policy.BatchFinished, Device: 0, Batch: p.book.tasks[d.batch[0]].sequence.batchSlot}, &out)
	if list := dispatchesOf(out); len(list) != 1 || d.kvTokens != 300 { // it came before the other service's
		t.Errorf("%v with %d tokens, expected the fourth", list, d.kvTokens)
	}
	if out := dispatchesOf(p.arriveWithTask(1001*time.Millisecond, 5, 0)); len(out) > 0 {
		t.Errorf("%v joins while the device drains", out)
	}
	for n := 0; len(d.batch) > 0 && p.tables.isLanguageModel(d.service); n++ {
		out.Reset()
		p.Handle(time.Duration(1100+n)*time.Millisecond, &policy.Event{Kind: policy.BatchFinished, Device: 0, Batch: p.book.tasks[d.batch[0]].sequence.batchSlot}, &out)
	}
	if list := dispatchesOf(out); len(list) != 1 || list[0] != [2]int32{0, 0} || d.service != 1 {
		t.Errorf("%v runs on the drained device, expected the other service's task", list)
	}
	out.Reset()
	p.Handle(2*time.Second, &policy.Event{Kind: policy.BatchFinished, Device: 0, Batch: 0}, &out)
	if list := dispatchesOf(out); len(list) != 1 || d.service != 0 || d.kvTokens != 100 {
		t.Errorf("%v with %d tokens, expected the last sequence", list, d.kvTokens)
	}
}

// A sequence that others join is expected later, one that others leave sooner.
func TestExpectedEnds(t *testing.T) {
	p := languageModelPolicy()
	p.cluster.devices[1].down = true
	p.arriveWithTask(0, 0, 0)
	d, times := &p.cluster.devices[0], p.tables.serviceOn(0, 0).times
	if d.batchEndsAt != times[0] {
		t.Fatalf("alone until %d, expected %d", d.batchEndsAt, times[0])
	}
	half := times[0] / 2
	p.arriveWithTask(time.Duration(half), 1, 0)
	if first, second := p.book.tasks[0].endsAt, p.book.tasks[1].endsAt; first != half+times[1]/2 && (first-half-times[1]/2 > 2 || first-half-times[1]/2 < -2) || second != half+times[1] {
		t.Errorf("ends %d and %d, expected %d and %d", first, second, half+times[1]/2, half+times[1])
	}
	var out policy.Actions
	p.Handle(time.Duration(half+times[1]/2), &policy.Event{Kind: policy.BatchFinished, Device: 0, Batch: p.book.tasks[0].sequence.batchSlot}, &out)
	if want := half + times[1]/2 + times[0]/2; d.batchEndsAt-want > 2 || d.batchEndsAt-want < -2 {
		t.Errorf("the second ends at %d, expected %d", d.batchEndsAt, want)
	}
}

// Devices of one kind that run different services have nothing of each other's: no place in the rows, and no load.
func TestServicesHaveTheirDevices(t *testing.T) {
	p := languageModelPolicy()
	tables := *p.tables.source
	tables.Stages = slices.Clone(tables.Stages)
	for s := range tables.Stages { // each service on the device of its number
		tables.Stages[s].FirstDevice, tables.Stages[s].NumDevices = int32(s), 1
	}
	tables.Resident = [][]int32{{0}, {1}}
	p = New(&tables, Options{})
	for s := range int32(2) {
		for place := range int32(2) {
			if p.tables.canRun(s, place) != (s == place) {
				t.Errorf("service %d runs at place %d: %v", s, place, p.tables.canRun(s, place))
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
	if d := p.cluster.devices[0]; d.service != 0 || len(d.batch) != 3 || p.cluster.devices[1].service != 1 {
		t.Errorf("%d sequences on the first device, service %d on the second", len(d.batch), p.cluster.devices[1].service)
	}
}
