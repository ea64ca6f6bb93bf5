package rules

import (
	"testing"
	"time"

	"inferplan/policy"
	"inferplan/policy/vqueue"
)

// tables are those of two instances of one model.
func tables() *policy.Tables {
	t := &policy.Tables{Kinds: []string{"a"}, Networks: make([]policy.Network, 1), Models: []policy.Model{{NumPipelines: 1}}, Pipelines: make([]policy.Pipeline, 1), Stages: make([]policy.Stage, 1),
		Devices: []policy.Device{{Instance: 0}, {Instance: 1}}, Resident: [][]int32{{0}, {0}}, Instances: []policy.Instance{{MaxSequences: 4}, {MaxSequences: 4}}}
	e := vqueue.RCT{Alpha: 1e-4, Beta: .01, Prefill: .02, Decode: .02, Batch: 4, PromptMean: 200, OutputMean: 100, OutputVar: 2500}
	t.KindTables = &vqueue.Tables{RCT: []vqueue.RCT{e, e}, MegaTokens: make([]int32, 1)}
	return t
}

// dispatcher makes a rule for the instances of a policy.
type dispatcher func(*vqueue.InstanceControl) vqueue.Dispatcher

// devices tells a policy of arrivals with these sessions, and returns where each runs, -1 for those that wait.
func devices(t *testing.T, rule dispatcher, sessions ...int64) []int32 {
	t.Helper()
	p, err := vqueue.New(tables(), vqueue.Options{NewDispatcher: rule})
	if err != nil {
		t.Fatal(err)
	}
	out := make([]int32, len(sessions))
	for i, session := range sessions {
		var actions policy.Actions
		p.Handle(0, &policy.Event{Kind: policy.Arrival, Req: int32(i), Task: int32(i), Tokens: 100, Key: session, Deadline: time.Minute}, &actions)
		out[i] = -1
		for k := range actions.List {
			if a := &actions.List[k]; a.Kind == policy.Dispatch {
				tasks, hops := actions.BatchOf(a)
				out[tasks[0]] = hops[0].Device
			}
		}
	}
	return out
}

// Requests of a session run on one instance, and wait for it where it is full. Those without a session go where fewest are. With a bound, a
// session leaves an instance that has many more than the others.
func TestSessionHash(t *testing.T) {
	got := devices(t, SessionHash, 1, 1, 1, 1, 1)
	for i, device := range got[:4] {
		if device < 0 || device != got[0] || got[4] != -1 {
			t.Errorf("request %d of a session: %v", i, got)
		}
	}
	used := map[int32]int{}
	for session := range int64(40) {
		used[devices(t, SessionHash, session+1)[0]]++
	}
	if used[0] < 10 || used[1] < 10 {
		t.Errorf("40 sessions by instance: %v", used)
	}
	if got := devices(t, SessionHash, 0, 0, 0, 0); got[0] == got[1] || got[2] == got[3] {
		t.Errorf("requests without a session: %v", got)
	}
	bounded := devices(t, BoundedSessionHash, 1, 1, 1, 1)
	if bounded[0] == bounded[1] && bounded[1] == bounded[2] && bounded[2] == bounded[3] {
		t.Errorf("a session with a bound stays on %v", bounded)
	}
}
