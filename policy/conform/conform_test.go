package conform_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/conform"
	"inferplan/policy/policies"
	"inferplan/sim"
	"inferplan/testkit/policytest"
)

// record simulates a plan under jitter, with a device that fails, and returns
// the log.
func record(t testing.TB, plan *formats.Plan) (*sim.Scenario, []byte) {
	t.Helper()
	sc, err := sim.NewScenario(plan)
	if err != nil {
		t.Fatal(err)
	}
	sc.Load, sc.Duration, sc.Verify = 1.1, 2*time.Second, true
	sc.Faults = []sim.Fault{{At: 500 * time.Millisecond, Device: 0}, {At: time.Second, Device: 0, ComesBack: true}}
	sc.Service = func(seed uint64) (sim.Service, error) {
		return sim.JitterService(sc.Tables, sim.Lognormal, 0.2, seed), nil
	}
	cfg, err := sc.Config(0)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	rec := conform.NewRecorder(cfg.Policy, &log)
	cfg.Policy = rec
	if _, err := sim.Run(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	return sc, log.Bytes()
}

func TestReplayAgreesWithTheSimulator(t *testing.T) {
	small := policytest.Pooled{High: 3, Low: 9, Batch: 4, HighTime: 6 * time.Millisecond, LowTime: 18 * time.Millisecond, Bytes: 1 << 19, SLO: 200 * time.Millisecond}
	shared := policytest.Single(2, true,
		policytest.Model{Batch: 4, First: 10 * time.Millisecond, More: 5 * time.Millisecond, SLO: 100 * time.Millisecond, RPS: 100},
		policytest.Model{Batch: 2, First: 3 * time.Millisecond, More: 2 * time.Millisecond, SLO: 50 * time.Millisecond, RPS: 150})
	artifacts := small.Plan()
	artifacts.Policy.Name = "artifact"
	for name, plan := range map[string]*formats.Plan{"pooled": small.Plan(), "time-shared": shared, "artifact": artifacts} {
		t.Run(name, func(t *testing.T) {
			sc, log := record(t, plan)
			p, err := policies.New(plan.Policy, sc.Tables)
			if err != nil {
				t.Fatal(err)
			}
			n, err := conform.Replay(bytes.NewReader(log), p)
			if err != nil {
				t.Fatal(err)
			}
			if n < 1000 {
				t.Errorf("only %d calls in the log", n)
			}
		})
	}
}

// A policy with another parameter is told apart, at a call that names both answers.
func TestReplaySeesADifference(t *testing.T) {
	plan := policytest.Hundred().Plan()
	sc, log := record(t, plan)
	p, err := policies.New(formats.PolicySpec{Name: "reserve", Params: map[string]float64{"guard_us": 50_000}}, sc.Tables)
	if err != nil {
		t.Fatal(err)
	}
	_, err = conform.Replay(bytes.NewReader(log), p)
	if d, ok := errors.AsType[*conform.Difference](err); !ok || len(d.Logged.List)+len(d.PolicyActions.List) == 0 {
		t.Fatalf("got %v, want a Difference with actions", err)
	}
}

// A log may be of any of several policies. What is told is of the one that went
// furthest.
func TestReplayAny(t *testing.T) {
	plan := policytest.Hundred().Plan()
	sc, log := record(t, plan)
	fresh := func(params map[string]float64) policy.Policy {
		p, err := policies.New(formats.PolicySpec{Name: "reserve", Params: params}, sc.Tables)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	other := map[string]float64{"guard_us": 50_000}
	whole, err := conform.Replay(bytes.NewReader(log), fresh(nil))
	if err != nil {
		t.Fatal(err)
	}
	n, err := conform.ReplayAny(bytes.NewReader(log), fresh(other), fresh(nil), nothing{})
	if err != nil || n != whole {
		t.Errorf("%d calls and %v, want %d of one of the policies", n, err, whole)
	}
	n, err = conform.ReplayAny(bytes.NewReader(log), nothing{}, fresh(other))
	if alone, want := conform.Replay(bytes.NewReader(log), fresh(other)); err == nil || n < alone || want == nil {
		t.Errorf("%d calls and %v, want at least %d and a difference", n, err, alone)
	}
}

// Events that cannot have happened to a policy are the log's fault.
func TestReplayOfAnotherPlan(t *testing.T) {
	sc, err := sim.NewScenario(policytest.Hundred().Plan())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ev   policy.Event
		want string
	}{
		{policy.Event{Kind: policy.Arrival, Model: 1000, Deadline: 1}, "call 0 at 5ns: the policy cannot take the event {Kind:Arrival"},
		{policy.Event{Kind: policy.Arrival, Req: 1 << 30}, "call 0: the slot 1073741824"},
	} {
		var log bytes.Buffer
		rec := conform.NewRecorder(nothing{}, &log)
		rec.Handle(5, &c.ev, new(policy.Actions))
		if err := rec.Close(); err != nil {
			t.Fatal(err)
		}
		p, err := policies.New(formats.PolicySpec{}, sc.Tables)
		if err != nil {
			t.Fatal(err)
		}
		_, err = conform.Replay(&log, p)
		if _, differs := errors.AsType[*conform.Difference](err); err == nil || differs || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want an error with %q", err, c.want)
		}
	}
}

func TestDamagedLogs(t *testing.T) {
	_, log := record(t, policytest.Hundred().Plan())
	for _, c := range []struct {
		name string
		log  []byte
		want string
	}{
		{"empty", nil, "starts with"},
		{"other file", []byte("PK\x03\x04 this is something else"), "starts with"},
		{"cut off", log[:len(log)-1], "unexpected EOF"},
		{"huge record", append([]byte("inferplan.eventlog/v1\n"), 0xff, 0xff, 0xff, 0xff, 0x7f), "bytes, expected at most"},
		{"unknown kind", append([]byte("inferplan.eventlog/v1\n"), 1, 200), "decoding an event"},
	} {
		if err := readAll(c.log); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
	}
}

func readAll(log []byte) error {
	l, err := conform.OpenLog(bytes.NewReader(log))
	if err != nil {
		return err
	}
	for {
		c, err := l.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = policy.DecodeActions(c.Actions, new(policy.Actions))
		}
		if err != nil {
			return err
		}
	}
}

// nothing is a policy without decisions.
type nothing struct{}

func (nothing) Handle(time.Duration, *policy.Event, *policy.Actions) {}

func FuzzReplay(f *testing.F) {
	f.Add([]byte("inferplan.eventlog/v1\n"))
	ev := policy.AppendEvent(nil, 5, &policy.Event{Kind: policy.Arrival, Model: 1, Deadline: 7})
	acts := policy.AppendActions(nil, &policy.Actions{
		List: []policy.Action{{Kind: policy.Dispatch, Size: 1, HopCount: 1}}, Tasks: []int32{3}, Hops: []policy.Hop{{Device: 2}}}, 0)
	log := append([]byte("inferplan.eventlog/v1\n"), byte(len(ev)))
	log = append(append(append(log, ev...), byte(len(acts))), acts...)
	f.Add(log)
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = readAll(b) // must not panic
		_, _ = conform.Replay(bytes.NewReader(b), nothing{})
	})
}
