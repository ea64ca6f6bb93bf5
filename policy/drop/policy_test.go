package drop_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/formats"
	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/conform"
	"inferplan/policy/drop"
	"inferplan/policy/flow"
	"inferplan/policy/policies"
	"inferplan/testkit/policytest"
)

// Whatever an interpreter may do to it within the contract, each policy answers
// or drops every request once, sends nothing to a device that is gone, and does
// the same when it is told the same again.
func TestAgainstAnAdversary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := seeded.New(rapid.Uint64().Draw(t, "seed"), "adversary")
		name := rapid.SampledFrom(drop.Names()).Draw(t, "policy")
		plan := policytest.DrawFlow(rng, 5, name, rng.IntN(2) == 0)
		if formats.FlowOf(plan).Scaling == nil && rng.IntN(2) == 0 {
			policytest.TakeTurns(plan, 1+rng.IntN(3))
		}
		plan.Policy.Params = policytest.DrawDropping(rng)
		if name == "pard" {
			delete(plan.Policy.Params, "paths") // it refuses them
		}
		tab, err := policies.Compile(plan)
		if err != nil {
			t.Fatal(err)
		}
		pol, err := policies.New(plan.Policy, tab)
		if err != nil {
			t.Fatal(err)
		}
		fresh, _ := policies.New(plan.Policy, tab)
		var log bytes.Buffer
		rec := conform.NewRecorder(pol, &log)
		foe := &policytest.Adversary{Tables: tab, Policy: rec, Control: policies.NewControl(tab), Rand: rng}
		if err := foe.Run(rapid.IntRange(10, 600).Draw(t, "steps")); err != nil {
			t.Fatal(name, ": ", err)
		}
		if err := rec.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := conform.Replay(&log, fresh); err != nil {
			t.Fatal(name, ": told the same again: ", err)
		}
	})
}

// exclusiveDeviceCheck has a policy's runs watched: no device has two at a time.
type exclusiveDeviceCheck struct {
	policy.Policy
	busy  []bool // by device
	fault string
}

func (a *exclusiveDeviceCheck) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.BatchFinished, policy.BatchReturned, policy.WorkerLost:
		a.busy[ev.Device] = false
	}
	a.Policy.Handle(now, ev, out)
	for i := range out.List {
		if x := &out.List[i]; x.Kind == policy.Dispatch {
			if a.busy[x.Device] {
				a.fault = fmt.Sprint("device ", x.Device, " has a second run at ", now)
			}
			a.busy[x.Device] = true
		}
	}
}

// Modules that take turns never run at the same time on one device.
func TestTurnsExcludeEachOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := seeded.New(rapid.Uint64().Draw(t, "seed"), "turns")
		name := rapid.SampledFrom(drop.Names()).Draw(t, "policy")
		plan := policytest.TakeTurns(policytest.DrawFlow(rng, 4, name, false), 1+rng.IntN(2))
		tab, err := policies.Compile(plan)
		if err != nil {
			t.Fatal(err)
		}
		pol, err := policies.New(plan.Policy, tab)
		if err != nil {
			t.Fatal(err)
		}
		watched := &exclusiveDeviceCheck{Policy: pol, busy: make([]bool, len(tab.Devices))}
		foe := &policytest.Adversary{Tables: tab, Policy: watched, Control: policies.NewControl(tab), Rand: rng}
		if err := foe.Run(rapid.IntRange(10, 600).Draw(t, "steps")); err != nil || watched.fault != "" {
			t.Fatal(name, ": ", err, watched.fault)
		}
	})
}

// Where modules take turns, a batch forms when the device is free, and the module goes first
// whose oldest task has the earliest deadline: what was begun is finished before more begins.
func TestWhoseTurn(t *testing.T) {
	plan := policytest.TakeTurns(policytest.FlowPlan(100*ms, "feas",
		policytest.FlowStage{Name: "a", Infer: []time.Duration{10 * ms, 12 * ms, 14 * ms}, Workers: 1},
		policytest.FlowStage{Name: "b", After: []string{"a"}, Infer: []time.Duration{20 * ms}, Workers: 1}), 1)
	tab, err := policies.Compile(plan)
	if err != nil {
		t.Fatal(err)
	}
	pol, err := policies.New(plan.Policy, tab)
	if err != nil {
		t.Fatal(err)
	}
	h := &handDriven{t: t, policy: pol}
	for i, want := range []string{"run[0]", "", ""} {
		if got := h.arriveRequest(time.Duration(i)*ms, 0); got != want {
			t.Errorf("request %d: %q, expected %q", i, got, want)
		}
	}
	// Module b of request 0 is there when a has ended; requests 1 and 2 wait for a.
	h.policy.Handle(10*ms, &policy.Event{Kind: policy.TaskRevealed, Service: 1, Req: 0, Task: 3, List: []int32{0}}, &h.out)
	for i, want := range []string{"run[3]", "run[1 2]", ""} {
		if got := h.endBatch(time.Duration(10+20*i) * ms); got != want {
			t.Errorf("turn %d: %q, expected %q", i, got, want)
		}
	}
}

const ms = time.Millisecond

// handDriven drives a policy by hand over one module, behind which there is another.
type handDriven struct {
	t      *testing.T
	policy policy.Policy
	out    policy.Actions
	reqs   int32
}

func newHandDriven(t *testing.T, name string, params map[string]float64) *handDriven {
	t.Helper()
	plan := policytest.FlowPlan(100*ms, name,
		policytest.FlowStage{Name: "a", Infer: []time.Duration{10 * ms, 12 * ms, 14 * ms}, Workers: 1},
		policytest.FlowStage{Name: "b", After: []string{"a"}, Infer: []time.Duration{20 * ms}, Workers: 1})
	plan.Policy.Params = params
	tab, err := policies.Compile(plan)
	if err != nil {
		t.Fatal(err)
	}
	pol, err := policies.New(plan.Policy, tab)
	if err != nil {
		t.Fatal(err)
	}
	return &handDriven{t: t, policy: pol}
}

// arriveRequest lets a request come whose task a is known at once; it is of age already.
func (h *handDriven) arriveRequest(now, age time.Duration) string {
	h.out.Reset()
	req := h.reqs
	h.reqs++
	h.policy.Handle(now, &policy.Event{Kind: policy.Arrival, Req: req, Task: req, ArrivedAt: now - age, Deadline: now - age + 100*ms}, &h.out)
	h.policy.Handle(now, &policy.Event{Kind: policy.TaskRevealed, Req: req, Task: req, List: []int32{-1}}, &h.out)
	return h.lastActions()
}

func (h *handDriven) endBatch(now time.Duration) string {
	h.out.Reset()
	h.policy.Handle(now, &policy.Event{Kind: policy.BatchFinished}, &h.out)
	return h.lastActions()
}

// lastActions writes the requests that were dispatched and dropped.
func (h *handDriven) lastActions() string {
	var out []string
	for i := range h.out.List {
		switch a := &h.out.List[i]; a.Kind {
		case policy.Dispatch:
			tasks, _ := h.out.BatchOf(a)
			out = append(out, fmt.Sprint("run", tasks))
		case policy.Drop:
			out = append(out, fmt.Sprint("drop", a.Req))
		}
	}
	return strings.Join(out, " ")
}

// A free worker starts a batch of one at once. While it runs the next batch
// forms, and starts when it ends with whatever it holds.
func TestBatchesForm(t *testing.T) {
	h := newHandDriven(t, "pard", nil)
	for i, c := range []struct{ got, want string }{
		{h.arriveRequest(0, 0), "run[0]"}, {h.arriveRequest(2*ms, 0), ""}, {h.arriveRequest(3*ms, 0), ""},
		{h.endBatch(10 * ms), "run[1 2]"}, {h.endBatch(22 * ms), ""}, {h.arriveRequest(30*ms, 0), "run[3]"},
	} {
		if c.got != c.want {
			t.Errorf("step %d: %q, want %q", i, c.got, c.want)
		}
	}
}

// A request is dropped when it could enter a batch and what is past, present and
// to come exceeds its SLO: at start 10, with 14 here and 20 behind, from an age
// of 56 on at time 0.
func TestRequestIsDroppedWhenPastPresentAndFutureExceedSLO(t *testing.T) {
	for _, c := range []struct {
		name       string
		kept, gone time.Duration // ages
	}{
		{"pard", 55 * ms, 57 * ms},
	} {
		h := newHandDriven(t, c.name, nil)
		if got := h.arriveRequest(0, 0); got != "run[0]" {
			t.Fatalf("%s: %q", c.name, got)
		}
		if got := h.arriveRequest(0, c.kept); got != "" {
			t.Errorf("%s at age %v: %q, expected it kept", c.name, c.kept, got)
		}
		if got := h.arriveRequest(0, c.gone); c.gone > 0 && got != "drop2" {
			t.Errorf("%s at age %v: %q, expected it dropped", c.name, c.gone, got)
		}
	}
}

// A queue that can be served earliest deadline first is. One that cannot is served
// without the fewest of the oldest, and what is past hope goes.
func TestFeasibilityDecidesTheOrder(t *testing.T) {
	for _, c := range []struct {
		name string
		ages []time.Duration
		want string
	}{
		{"feas", []time.Duration{10 * ms, 30 * ms, 20 * ms}, "run[5 6 4]"},
		{"feas", []time.Duration{31 * ms, 33 * ms, 32 * ms, 30 * ms}, "run[6 4 7] drop5"},
	} {
		h := newHandDriven(t, c.name, nil)
		for range 4 {
			h.arriveRequest(0, 0)
		}
		for _, age := range c.ages {
			h.arriveRequest(0, age)
		}
		if got := h.endBatch(10 * ms); got != "run[1 2 3]" {
			t.Fatalf("%s: first %q", c.name, got)
		}
		if got := h.endBatch(24 * ms); got != c.want {
			t.Errorf("%s, ages %v: %q, want %q", c.name, c.ages, got, c.want)
		}
	}
}

// A task that a full batch would make late runs in a smaller one, and what comes
// then waits for the next.
func TestSmallerBatch(t *testing.T) {
	h := newHandDriven(t, "feas", nil)
	for i, c := range []struct{ got, want string }{
		{h.arriveRequest(0, 0), "run[0]"}, // ends at 10; 10, 12 or 14 and 20 are to come
		{h.arriveRequest(0, 57*ms), ""},   // 13 are left: a batch of two
		{h.arriveRequest(0, 0), ""},
		{h.arriveRequest(0, 0), ""}, // waits
		{h.endBatch(10 * ms), "run[1 2]"},
		{h.endBatch(22 * ms), "run[3]"},
	} {
		if c.got != c.want {
			t.Errorf("step %d: %q, want %q", i, c.got, c.want)
		}
	}
	if got := newHandDriven(t, "feas", nil); got.arriveRequest(0, 0) != "run[0]" || got.arriveRequest(0, 61*ms) != "drop1" {
		t.Error("a task that is late even alone is kept")
	}
}

// The entry's token refuses what the backlog leaves no time for, before anything
// runs.
func TestEntryRefusesWhatBacklogLeavesNoTimeFor(t *testing.T) {
	h := newHandDriven(t, "feas", map[string]float64{"token": 1})
	dropped := 0
	for range 40 {
		if strings.HasPrefix(h.arriveRequest(0, 0), "drop") {
			dropped++
		}
	}
	if dropped == 0 || dropped > 38 {
		t.Errorf("%d of 40 refused", dropped)
	}
}

// Handling events allocates nothing once the queues have grown.
func TestNoAllocation(t *testing.T) {
	for _, name := range drop.Names() {
		e := newEntry(t, name, 40)
		for range 2000 {
			e.Step()
		}
		if n := testing.AllocsPerRun(2000, e.Step); n > 0 {
			t.Errorf("%s: %v allocations per event", name, n)
		}
	}
}

// newEntry is a policy with so many tasks at its entry.
func newEntry(t testing.TB, name string, queue int) *policytest.Entry {
	tab, err := policies.Compile(policytest.EntryPlan(name, queue))
	if err != nil {
		t.Fatal(err)
	}
	pol, err := drop.New(name, tab, nil)
	if err != nil {
		t.Fatal(err)
	}
	return policytest.NewEntry(pol, queue)
}

// BenchmarkDecision is the cost of a request's way through the entry: arrival,
// choice of a worker, its place in a queue of about 1,000, the test and its part
// of a batch. Overloaded: twice as many come as can be served.
func BenchmarkDecision(b *testing.B) {
	for _, c := range []struct {
		name, policy string
		every        time.Duration
	}{{"pard", "pard", 2 * ms}, {"feas", "feas", 2 * ms}, {"pard-overloaded", "pard", ms}, {"feas-overloaded", "feas", ms}} {
		b.Run(c.name, func(b *testing.B) {
			e := newEntry(b, c.policy, 1000)
			e.Every = c.every
			for range 5000 {
				e.Step()
			}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				e.Step()
			}
		})
	}
}

func TestUnknownOrInvalidParametersAreRefused(t *testing.T) {
	tab, err := policies.Compile(policytest.FlowPlan(100*ms, "pard", policytest.FlowStage{Name: "a", Infer: []time.Duration{ms}, Workers: 1}))
	if err != nil {
		t.Fatal(err)
	}
	for params, want := range map[string]string{"lambda=2": "out of range", "lambd=0.1": "unknown, expected one of lambda"} {
		name, value, _ := strings.Cut(params, "=")
		var x float64
		fmt.Sscan(value, &x)
		if _, err := drop.New("pard", tab, map[string]float64{name: x}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", params, err)
		}
	}
	if flow.GraphTablesOf(tab) == nil || !slices.Contains(drop.Names(), drop.Default) {
		t.Error("no default")
	}
	if _, err := drop.New("reserve", tab, nil); err == nil {
		t.Error("a policy of another kind")
	}
}
