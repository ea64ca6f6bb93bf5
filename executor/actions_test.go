package executor

import (
	"slices"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/policy"
)

// asker asks for what workers cannot do, and some that they can.
type asker struct{ told []policy.Event }

func (p *asker) Handle(_ time.Duration, ev *policy.Event, out *policy.Actions) {
	p.told = append(p.told, *ev)
	if ev.Kind == policy.PlanInstalled {
		out.List = append(out.List,
			policy.Action{Kind: policy.Load, Network: 0, Device: 0}, policy.Action{Kind: policy.Load, Network: 7, Device: 0},
			policy.Action{Kind: policy.Unload, Network: 0, Device: 0}, policy.Action{Kind: policy.Place, Task: 4, Device: 0},
			policy.Action{Kind: policy.Evict, Batch: 2}, policy.Action{Kind: policy.Replan})
	}
}

// What a policy asks for beside batches is answered with an event: networks that
// are there are loaded at once, and the rest is refused with a reason.
func TestWorkersAnswerWhatTheyCannotDo(t *testing.T) {
	p := &asker{}
	o := replayOptions(true)
	o.NewPolicy = func(*policy.Tables, formats.PolicySpec) (policy.Policy, error) { return p, nil }
	x := open(t, onePlan(time.Millisecond, 1, 1, time.Hour), o)
	var told []policy.Event
	c := x.core.Load()
	c.Loop.CallInRound(func() { told = slices.Clone(p.told) })
	refused := int64(policy.ReturnRefused)
	want := []struct {
		kind  policy.EventKind
		value int64
	}{{policy.PlanInstalled, 0}, {policy.NetworkLoaded, 0}, {policy.NetworkLoaded, refused}, {policy.NetworkUnloaded, refused}, {policy.TransferFinished, 0}}
	if len(told) != len(want) {
		t.Fatalf("told %+v", told)
	}
	for i, w := range want {
		if told[i].Kind != w.kind || told[i].Value != w.value {
			t.Errorf("event %d: %+v, expected kind %d with %d", i, told[i], w.kind, w.value)
		}
	}
	if told[4].Batch != -1 || told[4].Task != 4 || c.Stats.IgnoredActions != 1 {
		t.Errorf("placed %+v; %d actions ignored", told[4], c.Stats.IgnoredActions)
	}
}
