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
	t       *policy.Tables
	pol     policy.Policy
	now     time.Duration
	heap    []due
	serial  int64
	outputs []int32 // by request
	ends    []time.Duration
	batches map[int32]*flight
	starts  []time.Duration // by request, the last; nil: not noted
	dropped map[int32]policy.Reason
	running map[[2]int32]int // by device and model
	most    map[[2]int32]int // of running, ever
	models  []int32          // by request; nil: not noted
	loads   int
	useless int            // of them: the model left before it served anything
	served  map[int32]bool // by device: since its model came
	evicted int
	ticks   int
	woken   *flight // by the tick that is asked for
	out     policy.Actions
}

// due is something to happen.
type due struct {
	at     time.Duration
	serial int64
	ev     policy.Event
	flight *flight
}

type flight struct {
	req, device int32
	gone        bool
	since       time.Duration
}

func (p *play) later(at time.Duration, ev policy.Event, f *flight) {
	p.serial++
	d := due{at, p.serial, ev, f}
	i, _ := slices.BinarySearchFunc(p.heap, d, func(a, b due) int { // the last is next
		return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(b.serial, a.serial))
	})
	p.heap = slices.Insert(p.heap, i, d)
}

func (p *play) run(t *testing.T) {
	p.batches, p.served = map[int32]*flight{}, map[int32]bool{}
	for len(p.heap) > 0 {
		d := p.heap[len(p.heap)-1]
		p.heap = p.heap[:len(p.heap)-1]
		if d.flight != nil && d.flight.gone {
			continue
		}
		p.now = d.at
		if d.ev.Kind == policy.BatchFinished {
			p.ends[d.flight.req] = p.now
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
func (p *play) count(f *flight, by int) {
	if p.models == nil {
		return
	}
	k := [2]int32{f.device, p.models[f.req]}
	p.running[k] += by
	p.most[k] = max(p.most[k], p.running[k])
}

func (p *play) act(t *testing.T, a *policy.Action) {
	switch a.Kind {
	case policy.Dispatch:
		tasks, hops := p.out.Dispatched(a)
		f := &flight{req: tasks[0], device: hops[0].Device, since: p.now}
		slower := float64(1 + p.t.Devices[f.device].Kind)
		took := slower * (prefillSeconds + decodeSeconds*float64(p.outputs[f.req]))
		p.batches[a.Batch] = f
		p.count(f, 1)
		p.served[f.device] = true
		if p.starts != nil {
			p.starts[f.req] = p.now
		}
		p.later(p.now+time.Duration(took*float64(time.Second)), policy.Event{Kind: policy.BatchFinished, Batch: a.Batch, Device: f.device, Tokens: p.outputs[f.req]}, f)
	case policy.Evict:
		f := p.batches[a.Batch]
		f.gone = true
		p.count(f, -1)
		p.evicted++
		delete(p.batches, a.Batch)
		p.later(p.now, policy.Event{Kind: policy.BatchReturned, Batch: a.Batch, Device: f.device, Value: int64(policy.ReturnEvicted), List: []int32{0}}, nil)
	case policy.Load:
		p.loads++
		p.served[a.Device] = false
		p.later(p.now+p.t.Networks[a.Network].Load[0][0], policy.Event{Kind: policy.NetworkLoaded, Network: a.Network, Device: a.Device}, nil)
	case policy.Drop:
		if p.dropped == nil {
			t.Fatalf("request %d is dropped: %v", a.Req, a.Reason)
		}
		p.dropped[a.Req] = a.Reason
	case policy.Unload:
		if served, came := p.served[a.Device]; came && !served {
			p.useless++
		}
	case policy.Wake:
		if p.woken != nil {
			p.woken.gone = true
		}
		p.woken = &flight{}
		p.later(a.At, policy.Event{Kind: policy.Timer}, p.woken)
	case policy.Replan:
		s, _ := policy.As[policy.Searcher](p.pol)
		list, _ := s.Search(p.now, a.Tag)(context.Background(), 5000, nil)
		p.later(p.now+10*time.Millisecond, policy.Event{Kind: policy.ReplanResult, List: list}, nil)
	default:
		t.Fatalf("action %+v", *a)
	}
}

// attainment plays requests at a rate over four networks on three instances, with
// popularity .5, .3, .1 and .1, half of each class, and gives the share in time.
func attainment(t *testing.T, opt vqueue.Options, rate float64) (inTime float64, p *play) {
	t.Helper()
	tab := fleet([]int32{0, 0, 0}, 4, 8)
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
	for req := range requests {
		at += rng.ExpFloat64() / rate
		network := []int32{0, 0, 0, 0, 0, 1, 1, 1, 2, 3}[rng.IntN(10)]
		m := 2*network + int32(rng.IntN(2))
		p.outputs = append(p.outputs, int32(math.Max(1, 100+50*rng.NormFloat64())))
		came := time.Duration(at * float64(time.Second))
		deadlines = append(deadlines, came+tab.Models[m].SLO)
		p.later(came, policy.Event{Kind: policy.Arrival, Req: req, Task: req, Model: m, Service: m, Tokens: 200, Limit: 400, Arrived: came, Deadline: deadlines[req]}, nil)
	}
	p.ends = make([]time.Duration, len(deadlines))
	p.run(t)
	if pol.Open() > 0 {
		t.Fatalf("%d requests are left over", pol.Open())
	}
	n := 0
	for i, end := range p.ends {
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
	planned, p := attainment(t, vqueue.Options{Delta: 1}, rate)
	for _, c := range []struct {
		name string
		opt  vqueue.Options
	}{{"FCFS", vqueue.Options{Rule: vqueue.FCFS}}, {"EDF", vqueue.Options{Rule: vqueue.EDF}}, {"Shepherd", vqueue.Options{Dispatch: rules.Shepherd}},
		{"groups as they came", vqueue.Options{Append: true, Still: true}}, {"without balancing", vqueue.Options{Delta: 1, Without: [5]bool{vqueue.Balancing: true}}}} {
		got, q := attainment(t, c.opt, rate)
		t.Logf("planned %.3f in time with %d loads and %d evictions, %s %.3f with %d loads", planned, p.loads, p.evicted, c.name, got, q.loads)
		if planned < got {
			t.Errorf("%s keeps %.3f of the deadlines, the planned order %.3f", c.name, got, planned)
		}
	}
	again, _ := attainment(t, vqueue.Options{Delta: 1}, rate)
	if again != planned {
		t.Errorf("played again: %v instead of %v", again, planned)
	}
}

// TestPartitionIsKept: with devices of its own a network is loaded nowhere else.
func TestPartitionIsKept(t *testing.T) {
	tab := fleet([]int32{0, 0, 0}, 3, 8)
	vqueue.Of(tab).Only = [][]int32{{0}, {1}, {2}}
	pol, err := vqueue.New(tab, vqueue.Options{Rule: vqueue.EDF})
	if err != nil {
		t.Fatal(err)
	}
	p := &play{t: tab, pol: pol, outputs: slices.Repeat([]int32{100}, 600), ends: make([]time.Duration, 600)}
	for req := range int32(600) {
		p.later(time.Duration(req)*20*time.Millisecond, policy.Event{Kind: policy.Arrival, Req: req, Model: req % 6, Tokens: 200, Deadline: time.Minute}, nil)
	}
	p.run(t)
	if p.loads > 0 || slices.Contains(p.ends, 0) {
		t.Errorf("%d loads, an unanswered request: %v", p.loads, slices.Contains(p.ends, 0))
	}
}

// BenchmarkHandle plays a minute of traffic; ns and allocations are per event.
func BenchmarkHandle(b *testing.B) {
	tab := fleet([]int32{0, 0, 0, 0, 0, 0, 0, 0}, 4, 32)
	pol, err := vqueue.New(tab, vqueue.Options{Still: true, Follow: true})
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
		ev := policy.Event{Kind: policy.Arrival, Tokens: 200, Limit: 400, Arrived: now}
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
			switch a := &out.List[i]; a.Kind {
			case policy.Dispatch:
				running, waiting = append(running, a.Batch), append(waiting, out.Tasks[a.TaskFirst])
			case policy.Load:
				ev := policy.Event{Kind: policy.NetworkLoaded, Network: a.Network, Device: a.Device}
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
