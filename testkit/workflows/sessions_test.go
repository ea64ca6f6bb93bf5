package workflows_test

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/bench/dyorc/baselines"
	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/flow"
	"inferplan/policy/workflow"
	"inferplan/sim"
	"inferplan/testkit/policytest"
	"inferplan/testkit/workflows"
)

// punctual is a policy around another that holds ends of batches against what was
// said when they began.
type punctual struct {
	policy.Policy
	ends map[int32]time.Duration // by batch
	off  time.Duration
	ran  int
}

func (p *punctual) Unwrap() policy.Policy { return p.Policy }

func (p *punctual) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	if ev.Kind == policy.BatchFinished {
		p.off = max(p.off, (now - p.ends[ev.Batch]).Abs())
		p.ran++
	}
	p.Policy.Handle(now, ev, out)
	for i := range out.List {
		if a := &out.List[i]; a.Kind == policy.Dispatch {
			_, hops := out.BatchOf(a)
			p.ends[a.Batch] = hops[0].End
		}
	}
}

// sessions runs KNOWLEDGECARD and DEBATE whose language model keeps a state.
func sessions(t interface{ Fatal(...any) }, f workflows.Fleet, name string, seed uint64, requests int, faults ...sim.Fault) (*punctual, *sim.SessionResult, int) {
	opt, err := baselines.Named(name, 1)
	if err != nil {
		t.Fatal(err)
	}
	tab := f.Tables()
	p := &punctual{Policy: workflow.New(tab, opt), ends: map[int32]time.Duration{}}
	answered := 0
	res, err := sim.Run(context.Background(), sim.Config{
		Tables: tab, Policy: p, Source: poisson(float64(requests)/540, 3*time.Minute, seed), Verify: true, NoReport: true, Faults: faults,
		Control: &workflows.Control{Draw: workflows.NewApps(seed).Draw}, MoveTime: workflows.Move(tab),
		OnCompleted: func(_, _ time.Duration) { answered++ },
	})
	if err != nil {
		t.Fatal(name, err)
	}
	return p, res.Sessions, answered
}

// Whatever is kept, moved and dropped, a batch takes what the policy says it will,
// states that are computed anew included; every request is answered, and no state
// is left. A policy that drops all finds none, one that keeps all moves none.
func TestSessions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"dyorc", "dyorc-keep-state", "dyorc-drop-state", "dyorc-early", "greedy", "reactive"}).Draw(t, "policy")
		f := workflows.Fleet{Devices: rapid.IntRange(1, 5).Draw(t, "devices"), Gigabytes: rapid.SampledFrom([]float64{17, 24, 40}).Draw(t, "memory"), PerNode: 2}
		f.Session = flow.SessionState{Bytes: rapid.Int64Range(1, 4e9).Draw(t, "bytes"), Recompute: time.Duration(rapid.Int64Range(1e6, 1e9).Draw(t, "recompute")),
			SameNode: time.Duration(rapid.Int64Range(0, 5e8).Draw(t, "near"))}
		f.Session.OtherNode = f.Session.SameNode + time.Duration(rapid.Int64Range(0, 5e8).Draw(t, "far"))
		p, s, answered := sessions(t, f, name, rapid.Uint64().Draw(t, "seed"), 40)
		if p.off > 10*time.Nanosecond {
			t.Fatalf("%s: a batch ends %v from what was planned", name, p.off)
		}
		if answered == 0 || s.ReusedStates+s.RecomputedStates == 0 {
			t.Fatalf("%s: %d answers, %+v", name, answered, s)
		}
		if name == "dyorc-drop-state" && s.ReusedStates+s.MovedStates > 0 || name == "dyorc-keep-state" && s.MovedStates > 0 {
			t.Fatalf("%s: %+v", name, s)
		}
	})
}

// States on a device that is lost are computed anew.
func TestSessionsOfALostDevice(t *testing.T) {
	f := workflows.Fleet{Devices: 4, Gigabytes: 24, PerNode: 2, Session: flow.SessionState{Bytes: 1e9, Recompute: 300 * time.Millisecond, SameNode: 50 * time.Millisecond, OtherNode: 100 * time.Millisecond}}
	lost := []sim.Fault{{At: 20 * time.Second, Device: 1}, {At: 40 * time.Second, Device: 1, ComesBack: true}, {At: 60 * time.Second, Device: 0}, {At: 60 * time.Second, Device: 2}, {At: 80 * time.Second, Device: 2, ComesBack: true}}
	for _, name := range []string{"dyorc", "dyorc-keep-state", "greedy"} {
		if _, s, n := sessions(t, f, name, 1, 150, lost...); n < 100 || s.RecomputedStates == 0 {
			t.Errorf("%s: %d answers, %+v", name, n, s)
		}
	}
}

// A state is moved where that is quicker than computing it anew, and where the
// device that has it is the busier one.
func TestStatesMove(t *testing.T) {
	f := workflows.Fleet{Devices: 4, Gigabytes: 40, PerNode: 4, Session: flow.SessionState{Bytes: 1e9, Recompute: time.Second, SameNode: 20 * time.Millisecond, OtherNode: 20 * time.Millisecond}}
	_, s, _ := sessions(t, f, "dyorc", 1, 300)
	if s.MovedStates == 0 {
		t.Errorf("%+v, expected moves", s)
	}
	f.Session.SameNode, f.Session.OtherNode = 2*time.Second, 2*time.Second
	if _, s, _ := sessions(t, f, "dyorc", 1, 300); s.MovedStates > 0 {
		t.Errorf("%+v, expected no move that takes longer than computing anew", s)
	}
}

// Policies that keep states hold whatever an interpreter may do.
func TestSessionsAgainstAnAdversary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opt, err := baselines.Named(rapid.SampledFrom([]string{"dyorc", "dyorc-keep-state", "dyorc-drop-state", "reactive"}).Draw(t, "policy"), 1)
		if err != nil {
			t.Fatal(err)
		}
		fleet := workflows.Fleet{Devices: rapid.IntRange(1, 5).Draw(t, "devices"), Gigabytes: rapid.SampledFrom([]float64{17, 24}).Draw(t, "memory"), PerNode: 2,
			Session: flow.SessionState{Bytes: rapid.Int64Range(1, 4e9).Draw(t, "bytes"), Recompute: 400 * time.Millisecond, SameNode: 40 * time.Millisecond, OtherNode: 80 * time.Millisecond}}
		seed := rapid.Uint64().Draw(t, "seed")
		foe := &policytest.Adversary{Tables: fleet.Tables(), Policy: workflow.New(fleet.Tables(), opt), Control: &workflows.Control{Draw: workflows.NewApps(seed).Draw}, Rand: seeded.New(seed, "adversary")}
		if err := foe.Run(rapid.IntRange(10, 400).Draw(t, "steps")); err != nil {
			t.Fatal(err)
		}
	})
}
