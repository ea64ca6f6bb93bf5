package rules

import (
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/policies"
)

// devices tells a policy of arrivals with these sessions, and returns where each runs, -1 for those that wait.
func devices(t *testing.T, name string, sessions ...int64) []int32 {
	t.Helper()
	p, err := policies.New(formats.PolicySpec{Name: name}, tables())
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
	got := devices(t, "hash", 1, 1, 1, 1, 1)
	for i, device := range got[:4] {
		if device < 0 || device != got[0] || got[4] != -1 {
			t.Errorf("request %d of a session: %v", i, got)
		}
	}
	used := map[int32]int{}
	for session := range int64(40) {
		used[devices(t, "hash", session+1)[0]]++
	}
	if used[0] < 10 || used[1] < 10 {
		t.Errorf("40 sessions by instance: %v", used)
	}
	if got := devices(t, "hash", 0, 0, 0, 0); got[0] == got[1] || got[2] == got[3] {
		t.Errorf("requests without a session: %v", got)
	}
	bounded := devices(t, "hash-bound", 1, 1, 1, 1)
	if bounded[0] == bounded[1] && bounded[1] == bounded[2] && bounded[2] == bounded[3] {
		t.Errorf("a session with a bound stays on %v", bounded)
	}
}
