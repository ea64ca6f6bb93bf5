package balance

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/policy"
)

// tables are those of a plan of instances that may all run two models.
func tables(t testing.TB, instances int) *policy.Tables {
	t.Helper()
	cost := func(model string) formats.LLMProfile {
		return formats.LLMProfile{Model: model, WeightBytes: 1e9, Instances: []formats.LLMInstance{{Device: "A", TensorParallel: 1, Iteration: formats.Iteration{BaseNS: 1e7}, KVTokens: 1000, KVSource: formats.KVFromServer}}}
	}
	q := &formats.QueuePlan{Models: []formats.LLMProfile{cost("a"), cost("b")}}
	tab := &policy.Tables{Kinds: []string{"A"}, KindCounts: []int32{int32(instances)}}
	for i, m := range []string{"a", "b"} {
		tab.Models = append(tab.Models, policy.Model{Name: m, SLO: time.Second})
		q.Classes = append(q.Classes, formats.QueueClass{Served: formats.Served{Model: m}, Figure: formats.FigureE2E, Priority: 3 * i})
	}
	for d := range instances {
		q.Instances = append(q.Instances, formats.QueueInstance{Device: "A", FirstDevice: d, TensorParallel: 1, Model: "a", Models: []string{"a", "b"}, Sequences: []int{8, 8}, TokenBudget: 512})
	}
	if err := tab.AddInstances(q, []formats.Pool{{Device: "A", Count: instances}}); err != nil {
		t.Fatal(err)
	}
	return tab
}

// actionTexts writes what a policy asks for.
func actionTexts(out *policy.Actions) (list []string) {
	for i := range out.List {
		a := &out.List[i]
		switch a.Kind {
		case policy.Dispatch:
			tasks, hops := out.BatchOf(a)
			list = append(list, fmt.Sprintf("run %d in %d on %d, priority %d", tasks[0], a.Batch, hops[0].Device, a.Tag))
		case policy.Drop:
			list = append(list, fmt.Sprintf("drop %d: %v", a.Req, a.Reason))
		case policy.Load:
			list = append(list, fmt.Sprintf("load %d on %d", a.Network, a.Device))
		case policy.Unload:
			list = append(list, fmt.Sprintf("unload %d on %d", a.Network, a.Device))
		case policy.Abort:
			list = append(list, fmt.Sprintf("abort %d", a.Batch))
		default:
			list = append(list, fmt.Sprint("action ", a.Kind))
		}
	}
	return list
}

// A request goes on at once, unless the instance must swap for it; losses and
// refusals leave nobody behind.
func TestRequestsGoOnAtOnceUnlessTheNetworkChanges(t *testing.T) {
	p := New(tables(t, 2))
	for i, c := range []struct {
		ev   policy.Event
		want []string
	}{
		{policy.Event{Kind: policy.Arrival, Req: 0, Model: 0}, []string{"run 0 in 0 on 0, priority 0"}},
		{policy.Event{Kind: policy.Arrival, Req: 1, Model: 0}, []string{"run 1 in 1 on 1, priority 0"}},
		{policy.Event{Kind: policy.Arrival, Req: 2, Model: 1}, nil}, // instance 0 runs the other model
		{policy.Event{Kind: policy.BatchFinished, Batch: 0, Device: 0}, []string{"unload 0 on 0", "load 1 on 0"}},
		{policy.Event{Kind: policy.Arrival, Req: 3, Model: 0}, nil}, // at instance 0, behind the other model
		{policy.Event{Kind: policy.NetworkLoaded, Network: 1, Device: 0}, []string{"run 2 in 0 on 0, priority 3"}},
		{policy.Event{Kind: policy.BatchReturned, Batch: 0, Device: 0, Value: int64(policy.ReturnRefused)}, []string{"drop 2: failed", "unload 1 on 0", "load 0 on 0"}},
		{policy.Event{Kind: policy.NetworkLoaded, Network: 0, Device: 0, Value: int64(policy.ReturnFull)}, []string{"drop 3: failed"}},
		{policy.Event{Kind: policy.WorkerLost, Device: 1}, []string{"abort 1", "load 0 on 0"}},
		{policy.Event{Kind: policy.NetworkLoaded, Network: 0, Device: 0}, []string{"run 1 in 1 on 0, priority 0"}},
		{policy.Event{Kind: policy.WorkerLost, Device: 0}, []string{"abort 1", "drop 1: worker_lost"}},
		{policy.Event{Kind: policy.WorkerBack, Device: 1}, nil},
		{policy.Event{Kind: policy.Arrival, Req: 4, Model: 0}, []string{"run 4 in 1 on 1, priority 0"}},
	} {
		var out policy.Actions
		p.Handle(time.Duration(i)*time.Second, &c.ev, &out)
		if got := actionTexts(&out); !slices.Equal(got, c.want) {
			t.Errorf("step %d, %v: %q, want %q", i, c.ev.Kind, got, c.want)
		}
	}
}

// A plan whose instance may run a model of unknown capacity is refused.
func TestAddInstancesRefuses(t *testing.T) {
	tab := &policy.Tables{Kinds: []string{"A"}, KindCounts: []int32{1}, Models: []policy.Model{{Name: "a"}}}
	q := &formats.QueuePlan{
		Classes: []formats.QueueClass{{Served: formats.Served{Model: "a"}}}, Models: []formats.LLMProfile{{Model: "a", Instances: []formats.LLMInstance{{Device: "A", TensorParallel: 1}}}},
		Instances: []formats.QueueInstance{{Device: "A", TensorParallel: 1, Model: "a", Models: []string{"a"}, Sequences: []int{1}}},
	}
	for _, want := range []string{"queue.instances[0].models[0]: found a without a KV capacity", "queue.classes: found none"} {
		err := tab.AddInstances(q, []formats.Pool{{Device: "A", Count: 1}})
		if err == nil || len(err.Error()) < len(want) || err.Error()[:len(want)] != want {
			t.Errorf("%v, want %q", err, want)
		}
		q.Classes = nil
	}
}

// BenchmarkBalance: an arrival and an end, among a hundred instances.
func BenchmarkBalance(b *testing.B) {
	p := New(tables(b, 100))
	var out policy.Actions
	ev := policy.Event{Kind: policy.Arrival}
	b.ReportAllocs()
	for b.Loop() {
		ev.Kind = policy.Arrival
		out.Reset()
		p.Handle(0, &ev, &out)
		ev.Kind, ev.Batch, ev.Device = policy.BatchFinished, out.List[0].Batch, out.Hops[0].Device
		out.Reset()
		p.Handle(0, &ev, &out)
	}
}

// TestPriorityNeedsServersThatKnowPriorities: the balancer before servers that schedule by priority gives each
// class its rank, and refuses servers that do not.
func TestPriorityNeedsServersThatKnowPriorities(t *testing.T) {
	tab := tables(t, 2)
	if _, err := NewPriority(tab); err == nil || !strings.Contains(err.Error(), "queue.instances[0].scheduling: found first come, first served, expected priority") {
		t.Fatalf("servers without priorities: %v", err)
	}
	for i := range tab.Instances {
		tab.Instances[i].Server.ByPriority = true
	}
	for _, c := range []struct {
		priorities [2]int32
		slos       [2]time.Duration
		want       [2]int32
	}{
		{[2]int32{0, 3}, [2]time.Duration{9, 1}, [2]int32{0, 3}},
		{[2]int32{0, 0}, [2]time.Duration{9 * time.Second, time.Second}, [2]int32{1, 0}},
		{[2]int32{0, 0}, [2]time.Duration{time.Second, time.Second}, [2]int32{0, 0}},
	} {
		for m := range tab.Models {
			tab.Models[m].Priority, tab.Models[m].SLO = c.priorities[m], c.slos[m]
		}
		p, err := NewPriority(tab)
		if err != nil {
			t.Fatal(err)
		}
		for m := range int32(2) {
			p.resetInstance(m)
			p.instances[m].network = m
			var out policy.Actions
			p.dispatch(0, waitingRequest{m, m}, m, &out)
			if got := out.List[0].Tag; got != c.want[m] {
				t.Errorf("priorities %v, SLOs %v: model %d is sent with %d, want %d", c.priorities, c.slos, m, got, c.want[m])
			}
		}
	}
}
