package sim

import (
	"bytes"
	"context"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/conform"
	"inferplan/testkit/policytest"
)

// coinTruth is the truth of the diamond: every third request leaves out the right
// side, and lengths are of 6 to 10 tokens.
type coinTruth struct{ arrivals int64 }

func (t *coinTruth) Arrive(int32, *arrivals.Request) { t.arrivals++ }

func (t *coinTruth) Outcome(req, _, _ int32) (o policy.Outcome, level int64) {
	if req%3 == 0 {
		o.Branch = 1
	}
	return o, 0
}

func (t *coinTruth) Tokens(task int32) int32 { return 6 + task%5 }

// searchLag is how long a search of the tests takes.
func searchLag(worked int64) time.Duration {
	return 3*time.Millisecond + time.Duration(worked)*time.Microsecond
}

func runDiamond(t *testing.T, pol policy.Policy, rate float64, length time.Duration, faults ...Fault) *Result {
	t.Helper()
	tab := policytest.DiamondTables()
	src, err := arrivals.Process(&formats.Arrivals{Process: "poisson"}, seeded.New(3, "diamond"), 0, rate, length)
	if err != nil {
		t.Fatal(err)
	}
	res, err := Run(context.Background(), Config{
		Tables: tab, Policy: pol, Source: src, Duration: length, Faults: faults, Verify: true,
		Control: &policytest.DiamondControl{}, Truth: &coinTruth{}, instances: newInstances, SearchTime: searchLag,
		MoveTime: func(_, _, to int32) time.Duration { return time.Duration(to) * 200 * time.Microsecond },
	})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// A kind that uses all of the contract runs: requests with a fan-out and a
// merge, an instance beside devices, loads, places, evictions, re-plans, and
// drops of requests whose tasks are in batches. Its log replays to the same
// bytes.
func TestDiamondReplaysToTheSameLog(t *testing.T) {
	for _, c := range []struct {
		name   string
		rate   float64
		faults []Fault
	}{
		{"calm", 25, nil},
		{"overload", 200, nil},
		{"losses", 40, []Fault{
			{At: time.Second, Device: 1}, {At: 1500 * time.Millisecond, Device: 1, ComesBack: true}, {At: 2 * time.Second, Device: 2},
			{At: 2300 * time.Millisecond, Device: 2, ComesBack: true}, {At: 3 * time.Second, Device: 0}, {At: 3001 * time.Millisecond, Device: 0, ComesBack: true},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			pol := policytest.NewDiamond(policytest.DiamondTables())
			var log bytes.Buffer
			rec := conform.NewRecorder(pol, &log)
			res := runDiamond(t, rec, c.rate, 5*time.Second, c.faults...)
			if err := rec.Close(); err != nil {
				t.Fatal(err)
			}
			m := res.Report.Models[0]
			if m.Requests != m.Completed+m.Dropped || m.Completed == 0 || pol.Open() != 0 {
				t.Errorf("%d requests, %d completed, %d dropped, %d open", m.Requests, m.Completed, m.Dropped, pol.Open())
			}
			if pol.Evicted == 0 || pol.Loads == 0 || pol.Plans == 0 {
				t.Errorf("%d evicted, %d loads, %d re-plans: expected some of each", pol.Evicted, pol.Loads, pol.Plans)
			}
			if c.name == "calm" && m.Dropped > m.Requests/10 || c.name == "overload" && m.Dropped < m.Requests/4 {
				t.Errorf("%d of %d dropped", m.Dropped, m.Requests)
			}
			n, err := conform.Replay(&log, policytest.NewDiamond(policytest.DiamondTables()))
			if err != nil || n < 1000 {
				t.Errorf("after %d calls: %v", n, err)
			}
		})
	}
}

// eventLog keeps the events that a policy of a test is told.
type eventLog struct {
	act   func(now time.Duration, ev *policy.Event, out *policy.Actions)
	list  []policy.Event
	times []time.Duration
}

func (p *eventLog) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	p.list, p.times = append(p.list, *ev), append(p.times, now)
	p.act(now, ev, out)
}

func (p *eventLog) eventKinds(kind policy.EventKind) (list []policy.Event, at []time.Duration) {
	for i := range p.list {
		if p.list[i].Kind == kind {
			list, at = append(list, p.list[i]), append(at, p.times[i])
		}
	}
	return list, at
}

// runPolicy runs a policy of a test over tables and arrivals.
func (p *eventLog) runPolicy(t *testing.T, change func(*Config), at ...time.Duration) *Result {
	t.Helper()
	var list []arrivals.Request
	for _, a := range at {
		list = append(list, arrivals.Request{ArrivedAt: a})
	}
	cfg := Config{Tables: policytest.DiamondTables(), Policy: p, Source: arrivals.Slice(list), Verify: true}
	if change != nil {
		change(&cfg)
	}
	res, err := Run(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func drop(ev *policy.Event, out *policy.Actions) {
	out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: ev.Req, Reason: policy.ReasonQueueFull})
}

// Loads of a device come one after the other. One that the memory has no room
// for says so; one that has not begun can be taken back.
func TestLoadsOfADeviceComeOneByOne(t *testing.T) {
	ms := time.Millisecond
	p := &eventLog{}
	p.act = func(_ time.Duration, ev *policy.Event, out *policy.Actions) {
		if ev.Kind != policy.Arrival {
			return
		}
		drop(ev, out)
		for _, n := range []int32{policytest.Left, policytest.Right, policytest.Merge} {
			out.List = append(out.List, policy.Action{Kind: policy.Load, Network: n, Device: 1})
		}
		out.List = append(out.List, policy.Action{Kind: policy.Unload, Network: policytest.Merge, Device: 1},
			policy.Action{Kind: policy.Load, Network: -1, Device: 1, Key: 77})
	}
	p.runPolicy(t, nil, 0)
	loaded, at := p.eventKinds(policy.NetworkLoaded)
	if len(loaded) != 3 || at[0] != 3*ms || at[1] != 6*ms || at[2] != 6*ms {
		t.Fatalf("loads %+v at %v", loaded, at)
	}
	if loaded[0].Network != policytest.Left || loaded[0].Value != 0 || loaded[1].Start != 3*ms || policy.ReturnReason(loaded[1].Value) != policy.ReturnFull {
		t.Errorf("loads %+v: expected the left network, then no room for the right one", loaded)
	}
	if loaded[2].Network != -1 || loaded[2].Key != 77 {
		t.Errorf("the state of a session: %+v", loaded[2])
	}
	if gone, _ := p.eventKinds(policy.NetworkUnloaded); len(gone) != 1 || gone[0].Network != policytest.Merge {
		t.Errorf("unloads %+v", gone)
	}
}

// testSearcher searches for as long as it is told.
type testSearcher struct {
	eventLog
	work []int64
}

func (p *testSearcher) Search(now time.Duration, tag int32) func(context.Context, int64, []int32) ([]int32, int64) {
	return func(_ context.Context, work int64, dst []int32) ([]int32, int64) {
		p.work = append(p.work, work)
		return append(dst, tag, int32(now/time.Millisecond)), 5
	}
}

// A re-plan comes back after its modelled time; a further one with the same tag
// takes its place.
func TestReplanReplacesThatOfItsTag(t *testing.T) {
	ms := time.Millisecond
	p := &testSearcher{}
	p.act = func(_ time.Duration, ev *policy.Event, out *policy.Actions) {
		if ev.Kind == policy.Arrival {
			drop(ev, out)
			out.List = append(out.List, policy.Action{Kind: policy.Replan, Tag: 2}, policy.Action{Kind: policy.Replan, Tag: 1})
		}
	}
	var list []arrivals.Request
	for _, a := range []time.Duration{0, 4 * ms, 20 * ms} {
		list = append(list, arrivals.Request{ArrivedAt: a})
	}
	_, err := Run(context.Background(), Config{Tables: policytest.DiamondTables(), Policy: conform.NewRecorder(p, &bytes.Buffer{}), Source: arrivals.Slice(list), Verify: true,
		SearchWork: 9, SearchTime: func(worked int64) time.Duration { return time.Duration(worked) * ms }})
	if err != nil {
		t.Fatal(err)
	}
	got, at := p.eventKinds(policy.ReplanResult)
	if len(got) != 4 || at[0] != 9*ms || at[3] != 25*ms || got[0].Value != 1 || got[1].Value != 2 || p.work[0] != 9 {
		t.Errorf("results %+v at %v, work %v", got, at, p.work)
	}
}

// A request may be dropped while a batch holds it: its client has the drop at
// once, the batch runs on, and the slot is another's only after that.
func TestDropWhileItRuns(t *testing.T) {
	ms := time.Millisecond
	p := &eventLog{}
	p.act = func(now time.Duration, ev *policy.Event, out *policy.Actions) {
		switch ev.Kind {
		case policy.Arrival:
			out.Tasks = append(out.Tasks, ev.Req)
			out.List = append(out.List, policy.Action{Kind: policy.Dispatch, Batch: ev.Req, Size: 1, HopCount: 1, TaskFirst: int32(len(out.Tasks)) - 1, HopFirst: int32(len(out.Hops))})
			out.Hops = append(out.Hops, policy.Hop{Uplink: -1, Downlink: -1, XferStart: now, XferEnd: now, Start: now, End: now + 4*ms})
		case policy.BatchStarted:
			if ev.Batch == 0 {
				out.List = append(out.List, policy.Action{Kind: policy.Drop, Req: 0, Reason: policy.ReasonDeadline})
			}
		}
	}
	res := p.runPolicy(t, nil, 0, ms, 10*ms)
	if m := res.Report.Models[0]; m.Dropped != 1 || m.Completed != 2 {
		t.Errorf("%d dropped, %d completed, expected 1 and 2", m.Dropped, m.Completed)
	}
	came, _ := p.eventKinds(policy.Arrival)
	if came[1].Req != 1 || came[2].Req > 1 {
		t.Errorf("slots %d, %d, %d: expected a new one while the first is in a batch", came[0].Req, came[1].Req, came[2].Req)
	}
	if ended, at := p.eventKinds(policy.BatchFinished); len(ended) != 3 || at[0] != 4*ms {
		t.Errorf("ends %+v at %v: expected that of the dropped request's batch, too", ended, at)
	}
}

// A policy is told what it wants to hear.
func TestPolicyHearsOnlyTheKindsItWants(t *testing.T) {
	p := &eventLog{act: func(_ time.Duration, ev *policy.Event, out *policy.Actions) {
		if ev.Kind == policy.Arrival {
			drop(ev, out)
		}
		out.List = append(out.List, policy.Action{Kind: policy.Wake, At: ev.Start})
	}}
	p.runPolicy(t, func(cfg *Config) { cfg.Tables.HandledEvents = 1 << policy.Arrival }, 0, time.Millisecond)
	if len(p.list) != 2 {
		t.Errorf("events %+v, expected the two arrivals", p.list)
	}
}
