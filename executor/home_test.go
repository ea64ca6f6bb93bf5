package executor

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"inferplan/executor/workers"
	"inferplan/formats"
	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/conform"
	"inferplan/policy/workflow"
)

// Two applications share services on devices that cannot hold all of them: services
// are swapped as they are asked for, and no request sees an error. Clients go away
// at any moment. Of 10,000 requests nothing is left in the end.
func TestNothingIsLeftOf10000Requests(t *testing.T) {
	r := replayRouter(2, 20*time.Microsecond, 200*time.Microsecond)
	inputs := make([][]byte, 16)
	for i := range inputs {
		inputs[i] = bytes.Repeat([]byte{byte(i), 1, 2, 3}, 4)
	}
	want := r.expected(t, inputs)
	o := r.options(replayOptions(true))
	o.OutcomeOf = parity
	x := open(t, r.plan(), o)
	const clients, each = 50, 200
	how := make([]map[string]int, clients)
	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			rng := seeded.New(1, fmt.Sprintf("client/%d", client))
			how[client] = map[string]int{}
			for range each {
				ctx, cancel := context.WithCancel(context.Background())
				if rng.IntN(4) == 0 {
					time.AfterFunc(time.Duration(rng.IntN(3000))*time.Microsecond, cancel)
				}
				app, i := rng.IntN(2), rng.IntN(len(inputs))
				got, err := route(ctx, x, app, inputs[i])
				cancel()
				how[client][reasonOf(err)]++
				if err == nil && !bytes.Equal(got, want[app][i]) {
					t.Errorf("%s: input %d: %x, expected %x", applications[app], i, got, want[app][i])
				}
			}
		})
	}
	wg.Wait()
	all := map[string]int{}
	for _, h := range how {
		for reason, n := range h {
			all[reason] += n
		}
	}
	if all["served"]+all["cancelled"] != clients*each || all["served"] == 0 || all["cancelled"] == 0 {
		t.Errorf("ended as %v", all)
	}
	nothingHeld(t, x)
	c := x.core.Load()
	c.Loop.CallInRound(func() {
		loads, batches, tasks := int64(0), int64(0), int64(0)
		for _, d := range workersOf(c).OwnDevices {
			loads += d.Networks.Loads
		}
		for _, s := range c.Services {
			for size := range s.Stats.Batches {
				batches, tasks = batches+s.Stats.Batches[size].Count, tasks+int64(size)*s.Stats.Batches[size].Count
			}
		}
		t.Logf("%d loads, mean batch %.2f", loads, float64(tasks)/float64(batches))
		if loads < 5 || tasks <= batches {
			t.Errorf("%d loads, %d tasks in %d batches", loads, tasks, batches)
		}
	})
}

// A worker that is killed in the midst of a load, or of a batch, is started again.
// What it was to hold is loaded again, and requests end elsewhere, or there: their
// inputs are the client's or in the store. A load that never ends is the end of the
// askUntil has twelve clients ask both applications in turn, and hold every answer
// against what is wanted, until the function that it returns is called.
func askUntil(t *testing.T, x *Executor, inputs [][]byte, want [2][][]byte) (end func()) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for client := range 12 {
		wg.Go(func() {
			for i := client; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				got, err := route(context.Background(), x, i%2, inputs[i%3])
				if err != nil || !bytes.Equal(got, want[i%2][i%3]) {
					t.Errorf("%s: input %d: %x, expected %x: %v", applications[i%2], i%3, got, want[i%2][i%3], err)
				}
			}
		})
	}
	return func() {
		close(stop)
		wg.Wait()
	}
}

// worker that is at it.
func TestWorkersAreLostInLoads(t *testing.T) {
	r := replayRouter(2, time.Millisecond, 3*time.Millisecond)
	inputs := [][]byte{bytes.Repeat([]byte{1, 1, 2, 3}, 4), bytes.Repeat([]byte{2, 5, 2, 3}, 4), bytes.Repeat([]byte{7, 1, 0, 3}, 4)}
	want := r.expected(t, inputs)
	var log bytes.Buffer
	o := r.options(replayOptions(false))
	o.OutcomeOf, o.EventLog = parity, &log
	x := open(t, r.plan(), o)
	c := x.core.Load()
	end := askUntil(t, x, inputs, want)
	for kill, busy := range []func(d *workers.Device) bool{
		func(d *workers.Device) bool { return d.Networks.IsLoading && d.Networks.CurrentOrder.Load },
		func(d *workers.Device) bool { return len(d.InFlight) > 0 },
	} {
		d := workersOf(c).OwnDevices[kill]
		until(func() (killed bool) {
			c.Loop.CallInRound(func() {
				if d.Process != nil && busy(d) {
					killed = syscall.Kill(d.Process.PID(), syscall.SIGKILL) == nil
				}
			})
			return killed
		})
		until(func() (back bool) {
			c.Loop.CallInRound(func() { back = d.Generation == 2 && d.Networks.Loads > 0 })
			return back
		})
	}
	end()
	nothingHeld(t, x)
	if rep := x.Report(); rep.Dropped != 0 || rep.Completed == 0 || rep.Devices[0].LoadingUS+rep.Devices[0].BothUS == 0 {
		t.Errorf("report %+v, devices %+v", rep.Counts, rep.Devices)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	opt, _ := workflow.OptionsByName(r.policy)
	if calls, err := conform.Replay(&log, workflow.New(r.tables, opt)); err != nil || calls < 100 {
		t.Error(fmt.Errorf("told the same again, after %d calls: %w", calls, err))
	}
}

// orders plays a policy that only loads and unloads, and keeps the answers.
type orders struct {
	mu   sync.Mutex
	next []policy.Action
	told []policy.Event
}

func (p *orders) Handle(_ time.Duration, ev *policy.Event, out *policy.Actions) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch ev.Kind {
	case policy.NetworkLoaded, policy.NetworkUnloaded, policy.WorkerLost, policy.WorkerBack:
		p.told = append(p.told, *ev)
	case policy.Arrival:
		out.List = append(append(out.List, policy.Action{Kind: policy.Drop, Req: ev.Req, Reason: policy.ReasonDeadline}), p.next...)
		p.next = nil
	}
}

// give has actions taken with the next request, and waits for n answers.
func (p *orders) give(t *testing.T, x *Executor, n int, actions ...policy.Action) []policy.Event {
	t.Helper()
	p.mu.Lock()
	p.next, p.told = actions, nil
	p.mu.Unlock()
	if _, err := route(context.Background(), x, 0, make([]byte, 16)); reasonOf(err) != "deadline" {
		t.Errorf("ended as %v", err)
	}
	until(func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.told) >= n
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.told)
}

// Loads and unloads are answered, each with what came of it: memory that is full,
// what is there already, a load that an unload takes back, a load that never ends.
func TestOrdersAreAnswered(t *testing.T) {
	up := func(n int32) policy.Action { return policy.Action{Kind: policy.Load, Network: n} }
	down := func(n int32) policy.Action { return policy.Action{Kind: policy.Unload, Network: n} }
	full, refused := int64(policy.ReturnFull), int64(policy.ReturnRefused)
	r := replayRouter(1, time.Millisecond, 5*time.Millisecond)
	pol := &orders{}
	o := r.options(replayOptions(true))
	o.NewPolicy = func(t *policy.Tables, _ formats.PolicySpec) (policy.Policy, error) {
		r.share(t)
		t.Networks[4].LoadTimes = [][2]time.Duration{{time.Hour, time.Hour}}
		t.Resident[0] = []int32{0}
		return pol, nil
	}
	o.LoadTimeout = time.Nanosecond // beside ten times the planned time
	x := open(t, r.plan(), o)
	type answer struct {
		kind    policy.EventKind
		network int32
		value   int64
	}
	for _, c := range []struct {
		name    string
		actions []policy.Action
		want    []answer
	}{
		{"what is there", []policy.Action{up(0), down(1)}, []answer{{policy.NetworkLoaded, 0, 0}, {policy.NetworkUnloaded, 1, 0}}},
		{"one after the other, then full", []policy.Action{up(1), up(2), up(3)}, []answer{{policy.NetworkLoaded, 1, 0}, {policy.NetworkLoaded, 2, 0}, {policy.NetworkLoaded, 3, full}}},
		{"room is made", []policy.Action{down(1), up(3)}, []answer{{policy.NetworkUnloaded, 1, 0}, {policy.NetworkLoaded, 3, 0}}},
		{"taken back", []policy.Action{down(3), up(1), down(1)}, []answer{{policy.NetworkUnloaded, 1, 0}, {policy.NetworkUnloaded, 3, 0}}},
		{"state of a session", []policy.Action{{Kind: policy.Load, Network: -1, Key: 5}}, []answer{{policy.NetworkLoaded, -1, refused}}},
	} {
		got := []answer{}
		for _, ev := range pol.give(t, x, len(c.want), c.actions...) {
			got = append(got, answer{ev.Kind, ev.Network, ev.Value})
			if ev.End < ev.Start {
				t.Errorf("%s: %+v", c.name, ev)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, expected %v", c.name, got, c.want)
		}
	}
	core := x.core.Load()
	core.Loop.CallInRound(func() { core.Tables.Networks[4].LoadTimes[0][1] = 0 }) // no longer planned to take so long
	got := pol.give(t, x, 2, up(4))
	if got[0].Kind != policy.WorkerLost || got[1].Kind != policy.WorkerBack {
		t.Errorf("a load that never ends: %+v", got)
	}
	core.Loop.CallInRound(func() {
		h := workersOf(core).OwnDevices[0].Networks
		if there := []bool{true, false, false, false, false}; !slices.Equal(h.Loaded, there) || h.IsLoading {
			t.Errorf("after its start the device holds %v, expected %v", h.Loaded, there)
		}
	})
}

// A device of another host swaps as those of this machine do. When its host leaves,
// its requests end on what is left; when it joins again, it fills its host's memory
// and takes part.
func TestDevicesOfOtherHostsSwap(t *testing.T) {
	b, address := openLobby(t, "127.0.0.1:0", patient)
	leave := joinHere(t, hostConfig(address, "L4", 1))
	r := replayRouter(2, time.Millisecond, time.Millisecond)
	inputs := [][]byte{bytes.Repeat([]byte{1, 1, 2, 3}, 4), bytes.Repeat([]byte{2, 5, 2, 3}, 4), bytes.Repeat([]byte{7, 1, 0, 3}, 4)}
	want := r.expected(t, inputs)
	o := r.options(replayOptions(false))
	o.OutcomeOf, o.Lobby, o.Remote = parity, b, map[string]int{"L4": 1}
	x := open(t, r.plan(), o)
	far := workersOf(x.core.Load()).OwnDevices[1]
	end := askUntil(t, x, inputs, want)
	loaded := func(more int64, gen int32) {
		until(func() (yes bool) {
			x.core.Load().Loop.CallInRound(func() { yes = far.Networks.Loads >= more && far.Generation == gen && far.BusyTime > 0 })
			return yes
		})
	}
	loaded(1, 1)
	leave()
	until(func() bool { return devicesUp(x) == 1 })
	before := int64(0)
	x.core.Load().Loop.CallInRound(func() { before = far.Networks.Loads })
	joinHere(t, hostConfig(address, "L4", 1))
	loaded(before+1, 2)
	end()
	nothingHeld(t, x)
}

// A plan of workflows is served as it is compiled: devices hold what it says they
// hold, in the memory that it says they have, and load the rest.
func TestPlanOfWorkflowsSwaps(t *testing.T) {
	r := replayRouter(2, time.Millisecond, time.Millisecond)
	p := r.plan()
	pools, module := formats.PoolOf(p), func(i int, after ...string) formats.Module {
		return formats.Module{Name: r.services[i], Model: r.services[i], Predecessors: after}
	}
	p.Kind, p.Policy = formats.PlanFlow, formats.PolicySpec{Name: "dyorc"}
	p.Pools[0].Count, p.Pools[0].Memory, p.Pools[0].Sharing = 2, 300, formats.SharingTime
	section := &formats.FlowPlan{Lambda: .1, WindowUS: us(time.Second)}
	for i := range p.Deployment {
		d := &p.Deployment[i]
		d.Outputs = []formats.TensorInfo{{Name: "y", DType: "FP32", Shape: []int64{-1, 4}}}
		st := &d.Pipelines[0].Stages[0]
		st.Replicas, st.Placement = 2, []formats.Placement{{FirstDevice: 0, PerDevice: 1, Replicas: 2}}
		section.Modules = append(section.Modules, formats.FlowModule{Model: d.Model, ColdStartUS: us(r.load), WeightBytes: 100})
	}
	section.Modules[0].Resident, section.Modules[1].Resident = []int{0}, []int{0, 1}
	for i, name := range applications {
		served := pools.Models[0]
		served.Model = name
		section.Applications = append(section.Applications, formats.FlowApplication{Served: served, Segments: []formats.Segment{
			{Name: "all", Modules: []formats.Module{module(i), module(i+2, r.services[i]), module(4, r.services[i+2])}},
		}})
	}
	p.Section = section
	single := r.plan()
	for i := range single.Deployment {
		single.Deployment[i].Outputs = p.Deployment[i].Outputs
	}
	one := open(t, single, replayOptions(true))
	input := bytes.Repeat([]byte{1, 9, 2, 3}, 4)
	x := open(t, p, replayOptions(false))
	first := slices.Clone(workersOf(x.core.Load()).OwnDevices[0].Networks.Loaded)
	if there := []bool{true, true, false, false, false}; !slices.Equal(first, there) {
		t.Errorf("device 0 begins with %v, expected %v", first, there)
	}
	for app := range applications {
		want := input
		for _, s := range []int{app, app + 2, 4} {
			want = call(t, one, r.batch, r.services[s], want)
		}
		for range 3 {
			if got, err := route(context.Background(), x, app, input); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %x, expected %x: %v", applications[app], got, want, err)
			}
		}
	}
	nothingHeld(t, x)
}
