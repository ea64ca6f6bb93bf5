package readings

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/formats"
	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/conform"
	"inferplan/policy/policies"
	"inferplan/testkit/policytest"
)

const ms = time.Millisecond

// hand drives a policy by hand over one module, behind which there is another.
type hand struct {
	t    *testing.T
	pol  policy.Policy
	out  policy.Actions
	reqs int32
}

func newHand(t *testing.T, name string, params map[string]float64) *hand {
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
	return &hand{t: t, pol: pol}
}

// come lets a request come whose task a is known at once; it is of age already.
func (h *hand) come(now, age time.Duration) string {
	h.out.Reset()
	req := h.reqs
	h.reqs++
	h.pol.Handle(now, &policy.Event{Kind: policy.Arrival, Req: req, Task: req, ArrivedAt: now - age, Deadline: now - age + 100*ms}, &h.out)
	h.pol.Handle(now, &policy.Event{Kind: policy.TaskRevealed, Req: req, Task: req, List: []int32{-1}}, &h.out)
	return h.said()
}

func (h *hand) end(now time.Duration) string {
	h.out.Reset()
	h.pol.Handle(now, &policy.Event{Kind: policy.BatchFinished}, &h.out)
	return h.said()
}

// said writes the requests that were dispatched and dropped.
func (h *hand) said() string {
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

// Whatever an interpreter may do to it within the contract, each reading answers or drops every request
// once, and does the same when it is told the same again.
func TestAgainstAnAdversary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := seeded.New(rapid.Uint64().Draw(t, "seed"), "adversary")
		name := rapid.SampledFrom(Names()).Draw(t, "policy")
		plan := policytest.DrawFlow(rng, 5, name, rng.IntN(2) == 0)
		if formats.FlowOf(plan).Scaling == nil && rng.IntN(2) == 0 {
			policytest.TakeTurns(plan, 1+rng.IntN(3))
		}
		plan.Policy.Params = policytest.DrawDropping(rng)
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

// A request is dropped when it could enter a batch and what a reading counts exceeds its SLO: at start 10,
// with 14 here and 20 behind, at time 0. Readings that look at less keep it longer.
func TestTests(t *testing.T) {
	for _, c := range []struct {
		name       string
		kept, gone time.Duration // ages
	}{
		{"back", 76 * ms, 77 * ms}, {"sf", 56 * ms, 57 * ms}, {"lower", 56 * ms, 57 * ms}, {"upper", 36 * ms, 37 * ms}, {"feas-hbf", 55 * ms, 57 * ms}, {"nexus", 76 * ms, 77 * ms},
		{"naive", 99 * ms, 0},
	} {
		h := newHand(t, c.name, nil)
		if got := h.come(0, 0); got != "run[0]" {
			t.Fatalf("%s: %q", c.name, got)
		}
		if got := h.come(0, c.kept); got != "" {
			t.Errorf("%s at age %v: %q, expected it kept", c.name, c.kept, got)
		}
		if got := h.come(0, c.gone); c.gone > 0 && got != "drop2" {
			t.Errorf("%s at age %v: %q, expected it dropped", c.name, c.gone, got)
		}
	}
}

// A queue that cannot be served earliest deadline first is served from the other end, and what is past
// hope goes.
func TestFeasibilityDecidesTheOrder(t *testing.T) {
	for _, c := range []struct {
		ages []time.Duration
		want string
	}{{[]time.Duration{10 * ms, 30 * ms, 20 * ms}, "run[5 6 4]"}, {[]time.Duration{31 * ms, 33 * ms, 32 * ms, 30 * ms}, "run[7 4 6] drop5"}} {
		h := newHand(t, "feas-hbf", nil)
		for range 4 {
			h.come(0, 0)
		}
		for _, age := range c.ages {
			h.come(0, age)
		}
		if got := h.end(10 * ms); got != "run[1 2 3]" {
			t.Fatalf("first %q", got)
		}
		if got := h.end(24 * ms); got != c.want {
			t.Errorf("ages %v: %q, want %q", c.ages, got, c.want)
		}
	}
}

// Nexus keeps the first window of its line that is in time as a whole.
func TestWindow(t *testing.T) {
	h := newHand(t, "nexus", nil)
	for range 4 {
		h.come(0, 0)
	}
	h.come(0, 63*ms)
	h.come(0, 10*ms)
	h.come(0, 0)
	if got := h.end(10 * ms); got != "run[1 2 3] drop4" {
		t.Errorf("%q, expected the one that is late dropped and the rest kept", got)
	}
	if got := h.end(24 * ms); got != "run[5 6]" {
		t.Errorf("%q", got)
	}
}

// Handling events allocates nothing once the queues have grown.
func TestNoAllocation(t *testing.T) {
	for _, name := range []string{"nexus", "clipper++", "fcfs", "split", "oc"} {
		tab, err := policies.Compile(policytest.EntryPlan(name, 40))
		if err != nil {
			t.Fatal(err)
		}
		pol, err := policies.New(formats.PolicySpec{Name: name}, tab)
		if err != nil {
			t.Fatal(err)
		}
		e := policytest.NewEntry(pol, 40)
		for range 2000 {
			e.Step()
		}
		if n := testing.AllocsPerRun(2000, e.Step); n > 0 {
			t.Errorf("%s: %v allocations per event", name, n)
		}
	}
}

// A reading takes its own parameters, and those of the policy that it is one of.
func TestParameters(t *testing.T) {
	for name, params := range map[string]map[string]float64{"oc": {"oc_limit_us": -1}, "nexus": {"none": 1}} {
		plan := policytest.FlowPlan(100*ms, name, policytest.FlowStage{Name: "a", Infer: []time.Duration{ms}, Workers: 1})
		tab, err := policies.Compile(plan)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range []formats.PolicySpec{{Name: name, Params: map[string]float64{"lambda": .2}}, {Name: name, Params: params}} {
			if _, err := policies.New(spec, tab); (err != nil) != (spec.Params["lambda"] == 0) {
				t.Errorf("%+v: %v", spec, err)
			}
		}
	}
}
