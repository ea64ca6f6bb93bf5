package reserve_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy"
	"inferplan/policy/reserve"
	"inferplan/sim"
	"inferplan/testkit/policytest"
)

const ms = time.Millisecond

// auditor watches a reserve policy: what it reserves against the tables and
// against what then happens, and its timelines after every event.
type auditor struct {
	*reserve.Policy
	t     *policy.Tables
	exact bool // reservations must come true
	tb    interface{ Fatalf(string, ...any) }
	// by batch slot
	hops     map[int32][]policy.Hop
	deadline map[int32]time.Duration // by request slot
	events   int
	pushed   int // reservations that came true otherwise than at dispatch
}

func newAuditor(tb interface{ Fatalf(string, ...any) }, t *policy.Tables, opt reserve.Options, exact bool) *auditor {
	return &auditor{Policy: reserve.New(t, opt), t: t, exact: exact, tb: tb,
		hops: map[int32][]policy.Hop{}, deadline: map[int32]time.Duration{}}
}

func (a *auditor) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	a.events++
	switch ev.Kind {
	case policy.Arrival:
		a.deadline[ev.Req] = ev.Deadline
	case policy.BatchStarted, policy.BatchFinished, policy.TransferFinished:
		if a.exact {
			a.cameTrue(now, ev)
		}
	}
	a.Policy.Handle(now, ev, out)
	for i := range out.List {
		if act := &out.List[i]; act.Kind == policy.Dispatch {
			a.checkDispatch(now, act, out)
		}
	}
	if err := a.CheckTimelines(); err != nil {
		a.tb.Fatalf("at %v, after %+v: %v", now, *ev, err)
	}
}

// cameTrue holds an event against the reservation, which may have been pushed since the
// dispatch, but only back.
func (a *auditor) cameTrue(now time.Duration, ev *policy.Event) {
	hop := a.hops[ev.Batch][ev.Hop]
	ready, start, end := a.ReservedTimes(ev.Batch, ev.Hop)
	want, first := end, hop.End
	switch ev.Kind {
	case policy.BatchStarted:
		want, first = start, hop.Start
	case policy.TransferFinished:
		want, first = ready, hop.XferEnd
	}
	if now != want || now < first {
		a.tb.Fatalf("event %+v at %v, reserved for %v, at dispatch for %v", *ev, now, want, first)
	}
	if now > first {
		a.pushed++
	}
}

// checkDispatch checks a path against the tables and the deadlines. That nothing is
// reserved twice is checked in the timelines, after every event.
func (a *auditor) checkDispatch(now time.Duration, act *policy.Action, out *policy.Actions) {
	reqs, hops := out.BatchOf(act)
	a.hops[act.Batch] = append([]policy.Hop(nil), hops...)
	from := int32(-1)
	for h := range hops {
		hop := &hops[h]
		if got, want := hop.End-hop.Start, a.t.Stages[hop.Stage].Infer[act.Size-1]; got != want {
			a.tb.Fatalf("batch of %d at stage %d reserved for %v, the table has %v", act.Size, hop.Stage, got, want)
		}
		if h > 0 {
			want := a.t.TransferBetween(hop.Stage, act.Size, from, hop.Device)
			if got := hop.XferEnd - hop.XferStart; got != want {
				a.tb.Fatalf("transfer of %d into stage %d reserved for %v, the table has %v", act.Size, hop.Stage, got, want)
			}
			up, down := a.t.Devices[from].Uplink, a.t.Devices[hop.Device].Downlink
			if want == 0 {
				up, down = -1, -1
			}
			if hop.Uplink != up || hop.Downlink != down {
				a.tb.Fatalf("transfer from device %d to %d over links %d and %d, want %d and %d", from, hop.Device, hop.Uplink, hop.Downlink, up, down)
			}
		}
		from = hop.Device
	}
	for _, r := range reqs {
		if end := hops[len(hops)-1].End; end > a.deadline[r] {
			a.tb.Fatalf("at %v: a request due at %v is in a batch reserved until %v", now, a.deadline[r], end)
		}
	}
}

// drawPlan draws a plan: pools with and without NICs, time-shared or not,
// models of one to three stages, some with two pipelines.
func drawPlan(t *rapid.T) *formats.Plan {
	num := func(name string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(t, name) }
	shared := rapid.Bool().Draw(t, "shared")
	plan := &formats.Plan{Kind: formats.PlanPool}
	pools := num("pools", 1, 3)
	for i := range pools {
		p := formats.Pool{Device: fmt.Sprintf("kind%d", i), Count: num("count", 2, 6), MaxShares: 2, PerNode: num("per_node", 1, 3), Sharing: formats.SharingExclusive}
		if rapid.Bool().Draw(t, "nic") {
			p.NICGbps = 10
		}
		if shared {
			p.Sharing = formats.SharingTime
		}
		plan.Pools = append(plan.Pools, p)
	}
	used := make([]int, pools)
	promised := &formats.PoolPlan{}
	plan.Section = promised
	for m := range num("models", 1, 3) {
		model := formats.Deployed{Model: fmt.Sprintf("m%d", m)}
		promised.Models = append(promised.Models, formats.Served{Model: model.Model, SLOUS: document.Micros(time.Duration(num("slo", 20, 200)) * ms), RPS: 1})
		for range num("pipelines", 1, 2) {
			pl := formats.Pipeline{Batch: num("batch", 1, 5)}
			for range num("stages", 1, 3) {
				pool := num("pool", 0, pools-1)
				s := formats.Stage{Device: plan.Pools[pool].Device, Share: 1, Replicas: 1,
					InferUS: policytest.Times(time.Duration(num("first", 1000, 9000))*time.Microsecond, time.Duration(num("more", 0, 4000))*time.Microsecond, pl.Batch),
					Cut:     &formats.Cut{Bytes: int64(num("bytes", 0, 4_000_000))}}
				s.Placement = []formats.Placement{{FirstDevice: used[pool], PerDevice: 1, Replicas: 1}}
				if shared {
					s.Replicas = num("replicas", 1, plan.Pools[pool].Count)
					s.Placement[0] = formats.Placement{PerDevice: 1, Replicas: s.Replicas}
				} else {
					s.Replicas = num("replicas", 1, 3)
					s.Placement[0].Replicas = s.Replicas
					used[pool] += s.Replicas
					plan.Pools[pool].Count = max(plan.Pools[pool].Count, used[pool])
				}
				pl.Stages = append(pl.Stages, s)
			}
			model.Pipelines = append(model.Pipelines, pl)
		}
		plan.Deployment = append(plan.Deployment, model)
	}
	return plan
}

// auditRun simulates a drawn plan under a drawn load and audits it.
func auditRun(t *rapid.T, exact bool, faults bool) {
	plan := drawPlan(t)
	tables, err := policy.Compile(plan)
	if err != nil {
		t.Fatalf("%v", err)
	}
	sc := &sim.Scenario{Tables: tables, Duration: 600 * ms, Load: 1, Seed: rapid.Uint64Range(1, 1000).Draw(t, "seed"), Verify: true}
	for range tables.Models {
		sc.Rates = append(sc.Rates, float64(rapid.IntRange(20, 1200).Draw(t, "rps")))
	}
	cfg, err := sc.Config(0)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if !exact {
		cfg.Service = sim.JitterService(tables, sim.Lognormal, 0.3, sc.Seed)
	}
	if faults {
		for range rapid.IntRange(1, 6).Draw(t, "faults") {
			cfg.Faults = append(cfg.Faults, sim.Fault{
				At:        time.Duration(rapid.IntRange(0, 700).Draw(t, "at")) * ms,
				Device:    int32(rapid.IntRange(0, len(tables.Devices)-1).Draw(t, "device")),
				ComesBack: rapid.Bool().Draw(t, "up"),
			})
		}
	}
	opt := reserve.Options{DropHopeless: rapid.Bool().Draw(t, "shed"), SendWhenFree: rapid.Bool().Draw(t, "eager"), DecideAhead: time.Duration(rapid.IntRange(0, 2).Draw(t, "ahead")) * ms}
	a := newAuditor(t, tables, opt, exact && !faults)
	cfg.Policy = a
	res, err := sim.Run(context.Background(), cfg)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if exact && !faults && res.Report.Late > 0 {
		t.Fatalf("%d requests late although nothing deviates", res.Report.Late)
	}
	if n := a.WaitingRequests(); n > 0 {
		t.Fatalf("%d requests still wait", n)
	}
}

// With exact times every reservation comes true to the nanosecond, where it was pushed
// to if it was, nothing is reserved twice, and nobody is late.
func TestReservationsComeTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { auditRun(t, true, false) })
}

// Under jitter the timelines stay what first-in first-out execution gives.
func TestTimelinesUnderJitter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { auditRun(t, false, false) })
}

// And when devices come and go: every request is answered or dropped once,
// which the simulator's invariants check.
func TestTimelinesUnderFaults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { auditRun(t, rapid.Bool().Draw(t, "exact"), true) })
}
