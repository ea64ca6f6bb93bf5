package vqueue_test

import (
	"cmp"
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"inferplan/bench/qlm/rules"
	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/vqueue"
)

// play interprets a policy over instances whose requests take prefill and decode
// times of their own, as many at once as there are sequences.
type play struct {
	t               *policy.Tables
	pol             policy.Policy
	now             time.Duration
	heap            []scheduledEvent
	serial          int64
	outputs         []int32 // by request
	endTimes        []time.Duration
	batches         map[int32]*runningBatch
	starts          []time.Duration // by request, the last; nil: not noted
	devices         []int32         // by request, where it ran last; nil: not noted
	dropReasons     map[int32]policy.DropReason
	runningCounts   map[[2]int32]int // by device and model
	maxRunning      map[[2]int32]int // of running, ever
	models          []int32          // by request; nil: not noted
	loads           int
	uselessLoads    int            // of them: the model left before it served anything
	servedSinceLoad map[int32]bool // by device: since its model came
	evictions       int
	ticks           int
	tickPending     *runningBatch // by the tick that is asked for
	out             policy.Actions
}

// scheduledEvent is something to happen.
type scheduledEvent struct {
	at     time.Duration
	serial int64
	ev     policy.Event
	flight *runningBatch
}

type runningBatch struct {
	req, device int32
	aborted     bool
	since       time.Duration
}

func (p *play) schedule(at time.Duration, ev policy.Event, f *runningBatch) {
	p.serial++
	d := scheduledEvent{at, p.serial, ev, f}
	i, _ := slices.BinarySearchFunc(p.heap, d, func(a, b scheduledEvent) int { // the last is next
		return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(b.serial, a.serial))
	})
	p.heap = slices.Insert(p.heap, i, d)
}

func (p *play) run(t *testing.T) {
	p.batches, p.servedSinceLoad = map[int32]*runningBatch{}, map[int32]bool{}
	for len(p.heap) > 0 {
		d := p.heap[len(p.heap)-1]
		p.heap = p.heap[:len(p.heap)-1]
		if d.flight != nil && d.flight.aborted {
			continue
		}
		p.now = d.at
		if d.ev.Kind == policy.BatchFinished {
			p.endTimes[d.flight.req] = p.now
			p.count(d.flight, -1)
			delete(p.batches, d.ev.Batch)
		}
		if d.ev.Kind == policy.Timer {
			p.ticks++
		}
		p.out.Reset()
		p.pol.Handle(p.now, &d.ev, &p.out)
		for i := range p.out.List {
			p.act(t, &p.out.List[i])
		}
	}
}

// count notes that a request of a model runs on a device, or no longer.
func (p *play) count(f *runningBatch, by int) {
	if p.models == nil {
		return
	}
	k := [2]int32{f.device, p.models[f.req]}
	p.runningCounts[k] += by
	p.maxRunning[k] = max(p.maxRunning[k], p.runningCounts[k])
}

func (p *play) act(t *testing.T, action *policy.Action) {
	switch action.Kind {
	case policy.Dispatch:
		tasks, hops := p.out.BatchOf(action)
		f := &runningBatch{req: tasks[0], device: hops[0].Device, since: p.now}
		slower := float64(1 + p.t.Devices[f.device].Kind)
		took := slower * (prefillSeconds + decodeSeconds*float64(p.outputs[f.req]))
		p.batches[action.Batch] = f
		p.count(f, 1)
		p.servedSinceLoad[f.device] = true
		if p.starts != nil {
			p.starts[f.req] = p.now
		}
		if p.devices != nil {
			p.devices[f.req] = f.device
		}
		p.schedule(p.now+time.Duration(took*float64(time.Second)), policy.Event{Kind: policy.BatchFinished, Batch: action.Batch, Device: f.device, Tokens: p.outputs[f.req]}, f)
	case policy.Evict:
		f := p.batches[action.Batch]
		f.aborted = true
		p.count(f, -1)
		p.evictions++
		delete(p.batches, action.Batch)
		p.schedule(p.now, policy.Event{Kind: policy.BatchReturned, Batch: action.Batch, Device: f.device, Value: int64(policy.ReturnEvicted), List: []int32{0}}, nil)
	case policy.Load:
		p.loads++
		p.servedSinceLoad[action.Device] = false
		p.schedule(p.now+p.t.Networks[action.Network].LoadTimes[0][0], policy.Event{Kind: policy.NetworkLoaded, Network: action.Network, Device: action.Device}, nil)
	case policy.Drop:
		if p.dropReasons == nil {
			t.Fatalf("request %d is dropped: %v", action.Req, action.Reason)
		}
		p.dropReasons[action.Req] = action.Reason
	case policy.Unload:
		if served, came := p.servedSinceLoad[action.Device]; came && !served {
			p.uselessLoads++
		}
	case policy.Wake:
		if p.tickPending != nil {
			p.tickPending.aborted = true
		}
		p.tickPending = &runningBatch{}
		p.schedule(action.At, policy.Event{Kind: policy.Timer}, p.tickPending)
	case policy.Replan:
		s, _ := policy.FindExtension[policy.Searcher](p.pol)
		list, _ := s.Search(p.now, action.Tag)(context.Background(), 5000, nil)
		p.schedule(p.now+10*time.Millisecond, policy.Event{Kind: policy.ReplanResult, List: list}, nil)
	default:
		t.Fatalf("action %+v", *action)
	}
}

// attainment plays requests at a rate over four networks on three instances, with
// popularity .5, .3, .1 and .1, half of each class, and gives the share in time.
func attainment(t *testing.T, opt vqueue.Options, rate float64) (inTime float64, p *play) {
	t.Helper()
	tab := instanceTables([]int32{0, 0, 0}, 4, 8)
	pol, err := vqueue.New(tab, opt)
	if err != nil {
		t.Fatal(err)
	}
	rng := seeded.New(1, "play")
	p = &play{t: tab, pol: pol}
	at, deadlines := 0.0, []time.Duration{}
	requests := int32(3000)
	if testing.Short() {
		requests = 1000
	}
	for requestNumber := range requests {
		at += rng.ExpFloat64() / rate
		network := []int32{0, 0, 0, 0, 0, 1, 1, 1, 2, 3}[rng.IntN(10)]
		m := 2*network + int32(rng.IntN(2))
		p.outputs = append(p.outputs, int32(math.Max(1, 100+50*rng.NormFloat64())))
		came := time.Duration(at * float64(time.Second))
		deadlines = append(deadlines, came+tab.Models[m].SLO)
		p.schedule(came, policy.Event{Kind: policy.Arrival, Req: requestNumber, Task: requestNumber, Model: m, Service: m, Tokens: 200, Limit: 400, ArrivedAt: came, Deadline: deadlines[requestNumber]}, nil)
	}
	p.endTimes = make([]time.Duration, len(deadlines))
	p.run(t)
	if pol.OpenRequests() > 0 {
		t.Fatalf("%d requests are left over", pol.OpenRequests())
	}
	n := 0
	for i, end := range p.endTimes {
		if end == 0 {
			t.Fatalf("request %d has no answer", i)
		}
		if end <= deadlines[i] {
			n++
		}
	}
	return float64(n) / float64(len(deadlines)), p
}

// TestGroupsBeatQueuesOfRequests: where models change, the order of groups keeps
// far more deadlines than queues of requests, with far fewer changes.
func TestGroupsBeatQueuesOfRequests(t *testing.T) {
	const rate = 30 // of about 53 without changes of model
	planned, p := attainment(t, vqueue.Options{GroupBatches: 1}, rate)
	for _, c := range []struct {
		name string
		opt  vqueue.Options
	}{{"FCFS", vqueue.Options{Rule: vqueue.FCFS}}, {"EDF", vqueue.Options{Rule: vqueue.EDF}}, {"Shepherd", vqueue.Options{NewDispatcher: rules.Shepherd}},
		{"groups as they came", vqueue.Options{AppendGroups: true, NoReplan: true}}, {"without balancing", vqueue.Options{GroupBatches: 1, DisabledLSOs: [5]bool{vqueue.Balancing: true}}}} {
		got, q := attainment(t, c.opt, rate)
		t.Logf("planned %.3f in time with %d loads and %d evictions, %s %.3f with %d loads", planned, p.loads, p.evictions, c.name, got, q.loads)
		if planned < got {
			t.Errorf("%s keeps %.3f of the deadlines, the planned order %.3f", c.name, got, planned)
		}
	}
	again, _ := attainment(t, vqueue.Options{GroupBatches: 1}, rate)
	if again != planned {
		t.Errorf("played again: %v instead of %v", again, planned)
	}
}

// TestPartitionIsKept: with devices of its own a network is loaded nowhere else.
func TestPartitionIsKept(t *testing.T) {
	tab := instanceTables([]int32{0, 0, 0}, 3, 8)
	vqueue.TablesOf(tab).AllowedDevices = [][]int32{{0}, {1}, {2}}
	pol, err := vqueue.New(tab, vqueue.Options{Rule: vqueue.EDF})
	if err != nil {
		t.Fatal(err)
	}
	p := &play{t: tab, pol: pol, outputs: slices.Repeat([]int32{100}, 600), endTimes: make([]time.Duration, 600)}
	for requestNumber := range int32(600) {
		p.schedule(time.Duration(requestNumber)*20*time.Millisecond, policy.Event{Kind: policy.Arrival, Req: requestNumber, Model: requestNumber % 6, Tokens: 200, Deadline: time.Minute}, nil)
	}
	p.run(t)
	if p.loads > 0 || slices.Contains(p.endTimes, 0) {
		t.Errorf("%d loads, an unanswered request: %v", p.loads, slices.Contains(p.endTimes, 0))
	}
}

// BenchmarkHandle plays a minute of traffic; ns and allocations are per event.
func BenchmarkHandle(b *testing.B) {
	tab := instanceTables([]int32{0, 0, 0, 0, 0, 0, 0, 0}, 4, 32)
	pol, err := vqueue.New(tab, vqueue.Options{NoReplan: true, FollowInstances: true})
	if err != nil {
		b.Fatal(err)
	}
	rng, now := seeded.New(1, "bench"), time.Duration(0)
	var out policy.Actions
	var free, running []int32
	var waiting []int32
	for r := range int32(2000) {
		free = append(free, r)
	}
	b.ReportAllocs()
	for b.Loop() {
		now += time.Millisecond
		ev := policy.Event{Kind: policy.Arrival, Tokens: 200, Limit: 400, ArrivedAt: now}
		if len(free) > 0 && (len(running) == 0 || rng.IntN(2) == 0) {
			ev.Req, free = free[len(free)-1], free[:len(free)-1]
			ev.Model = int32(rng.IntN(8))
			ev.Deadline = now + tab.Models[ev.Model].SLO
		} else if len(running) > 0 {
			i := rng.IntN(len(running))
			ev = policy.Event{Kind: policy.BatchFinished, Batch: running[i]}
			free = append(free, waiting[i])
			running, waiting = slices.Delete(running, i, i+1), slices.Delete(waiting, i, i+1)
		} else {
			ev = policy.Event{Kind: policy.Timer}
		}
		out.Reset()
		pol.Handle(now, &ev, &out)
		for i := range out.List {
			switch action := &out.List[i]; action.Kind {
			case policy.Dispatch:
				running, waiting = append(running, action.Batch), append(waiting, out.Tasks[action.TaskFirst])
			case policy.Load:
				ev := policy.Event{Kind: policy.NetworkLoaded, Network: action.Network, Device: action.Device}
				var more policy.Actions
				pol.Handle(now, &ev, &more)
				for k := range more.List {
					if d := &more.List[k]; d.Kind == policy.Dispatch {
						running, waiting = append(running, d.Batch), append(waiting, more.Tasks[d.TaskFirst])
					}
				}
			}
		}
	}
}
