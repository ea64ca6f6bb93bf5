package drop_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/drop"
	"inferplan/policy/policies"
	"inferplan/testkit/policytest"
)

// lastWake is the last wake-up that was asked for with a tag; 0: none.
func (h *handDriven) lastWake(tag int32) time.Duration {
	at := time.Duration(0)
	for i := range h.out.List {
		if a := &h.out.List[i]; a.Kind == policy.Wake && a.Tag == tag {
			at = a.At
		}
	}
	return at
}

// lastRetry is when asking again is worth it, of the last refusal.
func (h *handDriven) lastRetry() time.Duration {
	at := time.Duration(0)
	for i := range h.out.List {
		if a := &h.out.List[i]; a.Kind == policy.Drop {
			at = a.At
		}
	}
	return at
}

func (h *handDriven) fireTimer(now time.Duration, tag int64) string {
	h.out.Reset()
	h.policy.Handle(now, &policy.Event{Kind: policy.Timer, Value: tag}, &h.out)
	return h.lastActions()
}

// A request that waits is refused at the first instant at which batches of one
// would be late, 10 here and 20 behind, while the batch in front of it runs; one
// that runs is at the deadline less what is behind.
func TestPromptRefusal(t *testing.T) {
	h := newHandDriven(t, "feas", map[string]float64{"prompt": 1})
	if got := h.arriveRequest(0, 0); got != "run[0]" {
		t.Fatal(got)
	}
	if at := h.lastWake(1); at != 70*ms+1 {
		t.Errorf("the first is looked at at %v, expected 1 ns behind 70ms", at)
	}
	for range 3 {
		h.arriveRequest(0, 0) // the next batch is full
	}
	h.arriveRequest(0, 65*ms) // it waits behind
	if at := h.lastWake(1); at != 5*ms+1 {
		t.Fatalf("looked at at %v, expected 1 ns behind 5ms", at)
	}
	if got := h.fireTimer(5*ms+1, 1); got != "drop4" {
		t.Errorf("%q while the batch runs, expected the one without hope dropped", got)
	}
	// One batch of the entry is the least; there is more time than that behind it.
	if at := h.lastRetry(); at < 5*ms+14*ms || at > 100*ms {
		t.Errorf("worth asking again at %v", at)
	}
	if at := h.lastWake(1); at != 70*ms+1 {
		t.Errorf("then at %v, expected 1 ns behind 70ms", at)
	}
	if got := h.fireTimer(70*ms+1, 1); len(got) != len("drop1 drop2 drop3") || strings.Contains(got, "drop0") {
		t.Errorf("%q, expected those that wait dropped and the one that runs kept", got)
	}
	if at := h.lastWake(1); at != 80*ms+1 {
		t.Errorf("the one that runs is looked at at %v, expected 1 ns behind 80ms", at)
	}
	if got := h.fireTimer(80*ms+1, 1); got != "drop0" {
		t.Errorf("%q, expected the one that runs dropped", got)
	}
	if got := h.endBatch(90 * ms); got != "" {
		t.Errorf("%q when the batch ends, expected nothing left", got)
	}
}

// What a request may pass over does not make it hopeless.
func TestPromptSparesTheShorterWay(t *testing.T) {
	plan := policytest.FlowPlan(100*ms, "feas",
		policytest.FlowStage{Name: "a", Infer: []time.Duration{10 * ms}, Workers: 1, Branches: []formats.Branch{{Targets: []string{"b"}, Probability: .5}, {Targets: []string{"c"}, Probability: .5}}},
		policytest.FlowStage{Name: "b", After: []string{"a"}, Infer: []time.Duration{20 * ms}, Workers: 1},
		policytest.FlowStage{Name: "c", After: []string{"a"}, Infer: []time.Duration{50 * ms}, Workers: 1})
	plan.Policy.Params = map[string]float64{"prompt": 1}
	tab, err := policies.Compile(plan)
	if err != nil {
		t.Fatal(err)
	}
	pol, err := policies.New(plan.Policy, tab)
	if err != nil {
		t.Fatal(err)
	}
	h := &handDriven{t: t, policy: pol}
	h.arriveRequest(0, 0)
	if at := h.lastWake(1); at != 70*ms+1 {
		t.Errorf("looked at at %v, expected 1 ns behind 70ms", at)
	}
}

// Behind a branch the longest way counts, or the longest but for rare ones: of four
// in five requests it was the shorter one.
func TestWaysArePredicted(t *testing.T) {
	for _, c := range []struct {
		paths float64
		kept  time.Duration // the greatest age at which a request is kept
	}{{0, 40 * ms}, {.15, 40 * ms}, {.25, 70 * ms}} {
		plan := policytest.FlowPlan(100*ms, "feas",
			policytest.FlowStage{Name: "a", Infer: []time.Duration{10 * ms}, Workers: 1, Branches: []formats.Branch{{Targets: []string{"b"}, Probability: .5}, {Targets: []string{"c"}, Probability: .5}}},
			policytest.FlowStage{Name: "b", After: []string{"a"}, Infer: []time.Duration{20 * ms}, Workers: 1},
			policytest.FlowStage{Name: "c", After: []string{"a"}, Infer: []time.Duration{50 * ms}, Workers: 1})
		plan.Policy.Params = map[string]float64{"paths": c.paths}
		tab, err := policies.Compile(plan)
		if err != nil {
			t.Fatal(err)
		}
		pol, err := drop.NewVariant(tab, plan.Policy.Params, drop.Variant{Name: "waitless", ModuleEstimate: func(queued, run time.Duration) time.Duration { return queued + run }})
		if err != nil {
			t.Fatal(err)
		}
		h, now := &handDriven{t: t, policy: pol}, time.Duration(0)
		for i := range int32(10) {
			now += 60 * ms
			if got := h.arriveRequest(now, 0); got != fmt.Sprintf("run[%d]", i) {
				t.Fatal(got)
			}
			// What the batch reveals is told before its end: b, of every fifth c.
			to := int32(1)
			if i%5 == 4 {
				to = 2
			}
			h.policy.Handle(now+10*ms, &policy.Event{Kind: policy.TaskRevealed, Req: i, Task: 100 + i, Service: to, List: []int32{i}}, &h.out)
			h.endBatch(now + 10*ms)
			h.policy.Handle(now+59*ms, &policy.Event{Kind: policy.BatchFinished, Device: to}, &h.out)
		}
		h.fireTimer(time.Second, 0)
		if got := h.arriveRequest(time.Second, c.kept); got != "run[10]" {
			t.Errorf("paths %v: at age %v %q, expected it run", c.paths, c.kept, got)
		}
		h.endBatch(1010 * ms)
		if got := h.arriveRequest(1100*ms, c.kept+ms); got != "drop11" {
			t.Errorf("paths %v: at age %v %q, expected it dropped", c.paths, c.kept+ms, got)
		}
	}
}

// Batches that take twice what is planned are expected to, once a second has
// passed; hopeless is by the plan all the same.
func TestTimesAreLearnt(t *testing.T) {
	for _, learn := range []float64{0, 1} {
		h := newHandDriven(t, "feas", map[string]float64{"learn": learn, "prompt": 1})
		now := time.Duration(0)
		for range 40 { // eight seconds of batches of one that take 20 ms here instead of 10
			h.arriveRequest(now, 0)
			h.endBatch(now + 20*ms)
			now += 200 * ms
			h.fireTimer(now, 0)
		}
		// 14 ms here and 20 behind are planned for a full batch.
		want := map[float64]string{0: "run[40]", 1: "drop40"}[learn]
		if got := h.arriveRequest(now, 62*ms); got != want {
			t.Errorf("learn %v: %q at age 62ms, expected %s", learn, got, want)
		}
		h.endBatch(now + ms)
		now += 200 * ms
		h.arriveRequest(now, 0)
		if at := h.lastWake(1); learn == 1 && at != 0 && at < now+70*ms {
			t.Errorf("looked at at %v, expected 70ms later by the plan's times", at-now)
		}
	}
}
