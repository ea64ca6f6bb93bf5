package reserve_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/policy"
	"inferplan/policy/reserve"
	"inferplan/sim"
	"inferplan/testkit/policytest"
)

// driver feeds a policy by hand and writes down what it answers.
type driver struct {
	t   *testing.T
	p   *reserve.Policy
	out policy.Actions
}

func newDriver(t *testing.T, plan *formats.Plan, opt reserve.Options) *driver {
	return &driver{t: t, p: reserve.New(policytest.Compile(t, plan), opt)}
}

// handle gives one event and returns the actions as text.
func (d *driver) handle(now time.Duration, ev policy.Event) string {
	d.t.Helper()
	d.out.Reset()
	d.p.Handle(now, &ev, &d.out)
	if err := d.p.CheckTimelines(); err != nil {
		d.t.Fatalf("at %v: %v", now, err)
	}
	var lines []string
	for i := range d.out.List {
		lines = append(lines, describe(&d.out, &d.out.List[i]))
	}
	return strings.Join(lines, "; ")
}

func describe(out *policy.Actions, a *policy.Action) string {
	switch a.Kind {
	case policy.Dispatch:
		reqs, hops := out.BatchOf(a)
		s := fmt.Sprintf("dispatch %v on", reqs)
		for _, h := range hops {
			s += fmt.Sprintf(" %d until %v", h.Device, h.End)
		}
		return s
	case policy.Drop:
		return fmt.Sprintf("drop %d %v", a.Req, a.Reason)
	case policy.Wake:
		return fmt.Sprintf("wake %d at %v", a.Tag, a.At)
	case policy.Abort:
		return fmt.Sprintf("abort %d", a.Batch)
	}
	return fmt.Sprint(a.Kind)
}

// step is one event and the answer that it must get.
type step struct {
	at   time.Duration
	ev   policy.Event
	want string
}

func (d *driver) play(steps []step) {
	d.t.Helper()
	for i, s := range steps {
		if got := d.handle(s.at, s.ev); got != s.want {
			d.t.Fatalf("step %d, %+v at %v:\n got %s\nwant %s", i, s.ev, s.at, got, s.want)
		}
	}
}

func arrivalEvent(req int32, deadline time.Duration) policy.Event {
	return policy.Event{Kind: policy.Arrival, Req: req, Deadline: deadline}
}

func timerEvent(tag int64) policy.Event { return policy.Event{Kind: policy.Timer, Value: tag} }

func finishEvent(batch, device int32, start, end time.Duration) policy.Event {
	return policy.Event{Kind: policy.BatchFinished, Batch: batch, Device: device, Start: start, End: end}
}

// batchOfThree is one model of batch 3 on two devices: 10 ms and 5 ms for each further sample.
func batchOfThree() *formats.Plan {
	return policytest.Single(2, false, policytest.Model{Batch: 3, First: 10 * ms, More: 5 * ms, SLO: 100 * ms, RPS: 100})
}

// A head waits until a batch of one more could no longer be in time.
func TestWaitsForFullerBatches(t *testing.T) {
	d := newDriver(t, batchOfThree(), reserve.Options{})
	d.play([]step{
		{0, arrivalEvent(1, 100*ms), "wake 0 at 85.000001ms"},                                 // two take 15 ms
		{ms, arrivalEvent(2, 101*ms), "wake 0 at 80.000001ms"},                                // three take 20 ms
		{2 * ms, arrivalEvent(3, 102*ms), "dispatch [1 2 3] on 0 until 22ms; wake 0 at -1ns"}, // full
		{3 * ms, arrivalEvent(4, 103*ms), "wake 0 at 88.000001ms"},
		{88*ms + 1, timerEvent(0), "dispatch [4] on 1 until 98.000001ms"},
	})
}

// A batch that cannot be as large as planned any more goes as large as it can.
func TestLargestBatchInTime(t *testing.T) {
	d := newDriver(t, batchOfThree(), reserve.Options{})
	d.play([]step{
		{0, arrivalEvent(1, 17*ms), "wake 0 at 2.000001ms"}, // 20 ms for three is too long
		{ms, arrivalEvent(2, 18*ms), "dispatch [1 2] on 0 until 16ms; wake 0 at -1ns"},
		{ms, arrivalEvent(3, 10*ms), "drop 3 deadline"},
	})
}

// At its first look a head that would force a small batch is shed, but one that
// passed it is not.
func TestFirstLookDropsHeadsOfSmallBatches(t *testing.T) {
	d := newDriver(t, batchOfThree(), reserve.Options{DropHopeless: true})
	d.play([]step{
		{0, arrivalEvent(1, 17*ms), "drop 1 deadline"},
		{0, arrivalEvent(2, 25*ms), "wake 0 at 10.000001ms"},
		{10*ms + 1, timerEvent(0), "dispatch [2] on 0 until 20.000001ms"},
	})
}

// Requests with less time go first.
func TestEarliestDeadlineFirst(t *testing.T) {
	d := newDriver(t, batchOfThree(), reserve.Options{})
	d.play([]step{
		{0, arrivalEvent(1, 100*ms), "wake 0 at 85.000001ms"},
		{0, arrivalEvent(2, 50*ms), "wake 0 at 30.000001ms"},
		{0, arrivalEvent(3, 70*ms), "dispatch [2 3 1] on 0 until 20ms; wake 0 at -1ns"},
	})
}

func TestQueueLimit(t *testing.T) {
	d := newDriver(t, batchOfThree(), reserve.Options{QueueLimit: 2})
	d.play([]step{
		{0, policy.Event{Kind: policy.WorkerLost, Device: 0}, ""},
		{0, policy.Event{Kind: policy.WorkerLost, Device: 1}, ""},
		{0, arrivalEvent(1, 100*ms), "wake 0 at 100ms"},
		{0, arrivalEvent(2, 100*ms), ""},
		{0, arrivalEvent(3, 100*ms), "drop 3 queue_full"},
	})
}

func TestCancelDropsAWaitingRequest(t *testing.T) {
	d := newDriver(t, batchOfThree(), reserve.Options{})
	cancel := func(req int32) policy.Event { return policy.Event{Kind: policy.Cancel, Req: req} }
	d.play([]step{
		{0, arrivalEvent(1, 100*ms), "wake 0 at 85.000001ms"},
		{0, arrivalEvent(2, 200*ms), "wake 0 at 80.000001ms"},
		{ms, cancel(1), "drop 1 cancelled; wake 0 at 185.000001ms"},
		{ms, cancel(1), ""},
		{ms, cancel(2), "drop 2 cancelled; wake 0 at -1ns"},
	})
}

// A batch on a lost device runs again elsewhere while that is in time.
func TestLostWorker(t *testing.T) {
	d := newDriver(t, policytest.Single(2, false, policytest.Model{Batch: 2, First: 10 * ms, More: 5 * ms, SLO: 100 * ms, RPS: 100}), reserve.Options{DropHopeless: true})
	lost := func(dev int32) policy.Event { return policy.Event{Kind: policy.WorkerLost, Device: dev} }
	d.play([]step{
		{0, arrivalEvent(1, 40*ms), "wake 0 at 25.000001ms"},
		{0, arrivalEvent(2, 41*ms), "dispatch [1 2] on 0 until 15ms; wake 0 at -1ns"},
		{0, policy.Event{Kind: policy.BatchStarted, Device: 0}, ""},
		{5 * ms, lost(0), "abort 0; dispatch [1 2] on 1 until 20ms"},
		{5 * ms, lost(0), ""},
		// The second device fails too late for both, and with it the last one.
		{12 * ms, lost(1), "abort 0; wake 0 at 40ms"},
		{20 * ms, policy.Event{Kind: policy.WorkerBack, Device: 0}, "dispatch [1 2] on 0 until 35ms; wake 0 at -1ns"},
		{30 * ms, lost(0), "abort 0; wake 0 at 40ms"},
		{40 * ms, timerEvent(0), "drop 1 worker_lost; wake 0 at 41ms"},
		{40 * ms, policy.Event{Kind: policy.WorkerBack, Device: 1}, "drop 2 worker_lost; wake 0 at -1ns"},
	})
}

// A batch that has left a device does not care about it any more; one whose
// tensors are still there does.
func TestLostWorkerOfAnEarlierStage(t *testing.T) {
	for _, c := range []struct {
		transferred bool
		want        string
	}{{true, ""}, {false, "abort 0; dispatch [1] on 1 until 26.4ms 2 until 44.82ms"}} {
		plan := policytest.Pooled{High: 2, Low: 1, Batch: 1, HighTime: 6 * ms, LowTime: 18 * ms, Bytes: 1 << 19, SLO: 100 * ms}.Plan()
		d := newDriver(t, plan, reserve.Options{})
		xfer := plan.Deployment[0].Pipelines[0].Stages[0].Cut.TransferUS[0].D()
		if got, want := d.handle(0, arrivalEvent(1, 100*ms)), fmt.Sprintf("dispatch [1] on 0 until 6ms 2 until %v", 24*ms+xfer); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
		d.handle(6*ms, finishEvent(0, 0, 0, 6*ms))
		if c.transferred {
			d.handle(6*ms+xfer, policy.Event{Kind: policy.TransferFinished, Batch: 0, Hop: 1, Device: 2, Start: 6 * ms, End: 6*ms + xfer})
		}
		got := d.handle(20*ms, policy.Event{Kind: policy.WorkerLost, Device: 0})
		want := ""
		if !c.transferred {
			want = fmt.Sprintf("abort 0; dispatch [1] on 1 until 26ms 2 until %v", 26*ms+xfer+18*ms)
		}
		if got != want {
			t.Errorf("transferred %v: got %s, want %s", c.transferred, got, want)
		}
	}
}

// Actual times move what follows.
func TestActualTimesMoveReservations(t *testing.T) {
	d := newDriver(t, policytest.Single(1, false, policytest.Model{Batch: 1, First: 10 * ms, SLO: 100 * ms, RPS: 100}), reserve.Options{})
	d.play([]step{
		{0, arrivalEvent(1, 100*ms), "dispatch [1] on 0 until 10ms"},
		{0, policy.Event{Kind: policy.BatchStarted}, ""},
		{0, arrivalEvent(2, 100*ms), "dispatch [2] on 0 until 20ms"},
		{4 * ms, finishEvent(0, 0, 0, 4*ms), ""}, // early
		{4 * ms, arrivalEvent(3, 100*ms), "dispatch [3] on 0 until 24ms"},
		{4 * ms, policy.Event{Kind: policy.BatchStarted, Batch: 1, Start: 4 * ms}, ""},
		{30 * ms, finishEvent(1, 0, 4*ms, 30*ms), ""}, // late
		{30 * ms, arrivalEvent(4, 100*ms), "dispatch [4] on 0 until 50ms"},
	})
}

// An idle device is preferred to one that should be idle and is not.
func TestOverrunningDevice(t *testing.T) {
	d := newDriver(t, policytest.Single(2, false, policytest.Model{Batch: 1, First: 10 * ms, SLO: 100 * ms, RPS: 100}), reserve.Options{})
	d.play([]step{
		{0, arrivalEvent(1, 100*ms), "dispatch [1] on 0 until 10ms"},
		{0, policy.Event{Kind: policy.BatchStarted}, ""},
		{12 * ms, arrivalEvent(2, 112*ms), "dispatch [2] on 1 until 22ms"},
		{12 * ms, policy.Event{Kind: policy.BatchStarted, Batch: 1, Device: 1, Start: 12 * ms}, ""},
		{12 * ms, arrivalEvent(3, 112*ms), "dispatch [3] on 0 until 22.625001ms"},
	})
}

// Of two pipelines the one that waits less is taken, and the other where only
// it is in time.
func TestChoiceOfPipeline(t *testing.T) {
	plan := policytest.Single(1, false,
		policytest.Model{Batch: 1, First: 30 * ms, SLO: 100 * ms, RPS: 10},
		policytest.Model{Batch: 1, First: 10 * ms, SLO: 100 * ms, RPS: 10})
	plan.Deployment[0].Pipelines = append(plan.Deployment[0].Pipelines, plan.Deployment[1].Pipelines...)
	plan.Deployment = plan.Deployment[:1]
	d := newDriver(t, plan, reserve.Options{})
	d.play([]step{
		{0, arrivalEvent(1, 100*ms), "dispatch [1] on 0 until 30ms"}, // both idle: the first
		{0, arrivalEvent(2, 100*ms), "dispatch [2] on 1 until 10ms"}, // no wait there
		{0, arrivalEvent(3, 100*ms), "dispatch [3] on 1 until 20ms"}, // 10 ms against 30
		{0, arrivalEvent(4, 100*ms), "dispatch [4] on 1 until 30ms"}, // 20 against 30
		{0, arrivalEvent(5, 100*ms), "dispatch [5] on 0 until 60ms"}, // 30 and 30: the first
		{0, arrivalEvent(6, 45*ms), "dispatch [6] on 1 until 40ms"},  // only the second is in time
	})
}

// An idle pipeline that is too slow for a head is passed over.
func TestFasterPipeline(t *testing.T) {
	plan := policytest.Single(1, false,
		policytest.Model{Batch: 1, First: 30 * ms, SLO: 100 * ms, RPS: 10},
		policytest.Model{Batch: 1, First: 10 * ms, SLO: 100 * ms, RPS: 10})
	plan.Deployment[0].Pipelines = append(plan.Deployment[0].Pipelines, plan.Deployment[1].Pipelines...)
	plan.Deployment = plan.Deployment[:1]
	newDriver(t, plan, reserve.DefaultOptions()).play([]step{{0, arrivalEvent(1, 20*ms), "dispatch [1] on 1 until 10ms"}})
}

// A device that serves several models has one timeline, and a batch gives way
// to a waiting head that would be late behind it.
func TestSharedDevice(t *testing.T) {
	plan := policytest.Single(1, true,
		policytest.Model{Batch: 1, First: 10 * ms, SLO: 25 * ms, RPS: 10},
		policytest.Model{Batch: 4, First: 5 * ms, More: ms, SLO: 40 * ms, RPS: 10})
	d := newDriver(t, plan, reserve.Options{})
	second := func(req int32, deadline time.Duration) policy.Event {
		return policy.Event{Kind: policy.Arrival, Model: 1, Req: req, Deadline: deadline}
	}
	d.play([]step{
		{0, second(1, 40*ms), "wake 1 at 34.000001ms"},
		// Until 20 ms there is time enough behind it.
		{10 * ms, arrivalEvent(2, 35*ms), "dispatch [2] on 0 until 20ms"},
		{10 * ms, policy.Event{Kind: policy.BatchStarted, Start: 10 * ms}, ""},
		{20 * ms, finishEvent(0, 0, 10*ms, 20*ms), ""},
		// Until 38 ms there is not, and behind the other there is.
		{28 * ms, arrivalEvent(3, 53*ms), "dispatch [1] on 0 until 33ms; dispatch [3] on 0 until 43ms; wake 1 at -1ns"},
	})
	// But not when it would be late itself behind the other.
	d = newDriver(t, plan, reserve.Options{})
	d.play([]step{
		{0, second(1, 40*ms), "wake 1 at 34.000001ms"},
		{28 * ms, arrivalEvent(3, 42*ms), "dispatch [3] on 0 until 38ms; drop 1 deadline; wake 1 at -1ns"},
	})
}

// Evenly spaced arrivals at the planned rate all make it, with planned batches.
func TestEvenArrivalsAllMakeIt(t *testing.T) {
	for _, plan := range []*formats.Plan{
		policytest.Hundred().Plan(),
		policytest.Pooled{High: 3, Low: 9, Batch: 4, HighTime: 6 * ms, LowTime: 18 * ms, Bytes: 1 << 20, SLO: 200 * ms, PerNode: 3}.Plan(),
		policytest.Single(4, false, policytest.Model{Batch: 3, First: 10 * ms, More: 5 * ms, SLO: 60 * ms, RPS: 600}),
	} {
		for _, load := range []float64{0.25, 0.5, 0.9, 0.999} {
			sc, err := sim.NewScenario(plan)
			if err != nil {
				t.Fatal(err)
			}
			sc.Arrivals, sc.Load, sc.Duration, sc.Verify = &formats.Arrivals{Process: "uniform"}, load, 5*time.Second, true
			r, err := sim.Replicate(context.Background(), sc, 1)
			if err != nil {
				t.Fatal(err)
			}
			if r.Report.Dropped+r.Report.Late > 0 || r.Report.Requests == 0 {
				t.Errorf("%s at %v: %d of %d requests dropped, %d late", plan.Deployment[0].Model, load, r.Report.Dropped, r.Report.Requests, r.Report.Late)
			}
		}
	}
}

func TestParseOptions(t *testing.T) {
	o, err := reserve.ParseOptions(map[string]float64{"shed": 0, "eager": 1, "ahead_us": 500, "queue_limit": 7, "guard_us": 1.5, "guard_share": 0.1})
	if want := (reserve.Options{SendWhenFree: true, DecideAhead: 500 * time.Microsecond, QueueLimit: 7, GuardTime: 1500, GuardShare: 0.1}); err != nil || o != want {
		t.Errorf("got %+v, %v, want %+v", o, err, want)
	}
	if o, err := reserve.ParseOptions(nil); err != nil || o != reserve.DefaultOptions() {
		t.Errorf("no parameters: %+v, %v", o, err)
	}
	for _, bad := range []map[string]float64{{"shed": 2}, {"eager": 2}, {"ahead_us": -1}, {"queue_limit": 1.5}, {"queue_limit": -1}, {"guard_us": -1}, {"gard_us": 1}, {"guard_share": 1e308}, {"guard_us": 1e300}, {"ahead_us": 1e13}, {"queue_limit": 1e300}} {
		if _, err := reserve.ParseOptions(bad); err == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
}

// Requests may bring their own SLO.
func TestOwnSLO(t *testing.T) {
	tables := policytest.Compile(t, batchOfThree())
	src := arrivals.Slice([]arrivals.Request{{ArrivedAt: 0, SLO: 5 * ms}, {ArrivedAt: ms}})
	r, err := sim.Run(context.Background(), sim.Config{Tables: tables, Policy: reserve.New(tables, reserve.Options{}), Source: src, Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	if r.Report.Dropped != 1 || r.Report.Completed != 1 {
		t.Errorf("%d dropped, %d completed, want one each", r.Report.Dropped, r.Report.Completed)
	}
}

// TestEagerPays: three models take turns on one device, a slow one beside two
// fast ones, as in the demo. Waiting for fuller batches to the last moment
// makes every answer late-ish at low load, and loses requests whose place
// another model takes; going at once does neither.
func TestEagerPays(t *testing.T) {
	plan := policytest.Single(1, true,
		policytest.Model{Batch: 2, First: 54 * ms, More: 50 * ms, SLO: 400 * ms, RPS: 16},
		policytest.Model{Batch: 4, First: 4500 * time.Microsecond, More: 3500 * time.Microsecond, SLO: 400 * ms, RPS: 16},
		policytest.Model{Batch: 4, First: 5500 * time.Microsecond, More: 4800 * time.Microsecond, SLO: 400 * ms, RPS: 16},
	)
	run := func(eager, load float64) *formats.Report {
		plan.Policy = formats.PolicySpec{Name: reserve.Name, Params: map[string]float64{"eager": eager}}
		sc, err := sim.NewScenario(plan)
		if err != nil {
			t.Fatal(err)
		}
		sc.Load, sc.Duration, sc.Seed, sc.Verify = load, 2*time.Minute, 1, true
		r, err := sim.Replicate(context.Background(), sc, 2)
		if err != nil {
			t.Fatal(err)
		}
		return r.Report
	}
	for _, load := range []float64{0.2, 0.5, 0.8} {
		waits, goes := run(0, load), run(1, load)
		t.Logf("load %v: attainment %.4f waiting, %.4f eager; p50 %v waiting, %v eager", load, waits.Attainment, goes.Attainment, waits.Latency.P50US.D(), goes.Latency.P50US.D())
		if goes.Attainment < waits.Attainment {
			t.Errorf("load %v: eager attains %.4f, waiting %.4f", load, goes.Attainment, waits.Attainment)
		}
		if load < 0.8 && 2*goes.Latency.P50US > waits.Latency.P50US {
			t.Errorf("load %v: p50 %v eager, %v waiting: expected less than half", load, goes.Latency.P50US.D(), waits.Latency.P50US.D())
		}
	}
}

// An idle device does not wait: at low load the median request takes what its path takes
// at batch one, and going at once costs nothing at the planned load and beyond, compared
// with waiting for fuller batches.
func TestIdleDevicesDoNotWait(t *testing.T) {
	pooled := policytest.Hundred()
	pooled.Batch, pooled.SLO = 4, 150*ms
	crossing := policytest.Pooled{High: 4, Low: 12, PerNode: 2, Batch: 2, HighTime: 6 * ms, LowTime: 18 * ms, Bytes: 2 << 20, SLO: 120 * ms}
	for _, c := range []struct {
		name string
		plan *formats.Plan
	}{
		{"one stage", policytest.Single(8, false, policytest.Model{Batch: 8, First: 10 * ms, More: 3 * ms, SLO: 120 * ms, RPS: 2064})},
		{"two stages", pooled.Plan()},
		{"shared links", crossing.Plan()},
	} {
		run := func(eager, load float64) *formats.Report {
			c.plan.Policy = formats.PolicySpec{Name: reserve.Name, Params: map[string]float64{"eager": eager}}
			sc, err := sim.NewScenario(c.plan)
			if err != nil {
				t.Fatal(err)
			}
			sc.Load, sc.Duration, sc.Seed, sc.Verify = load, 2*time.Second, 1, true
			if load >= 1 {
				sc.Duration = 10 * time.Second
			}
			r, err := sim.Replicate(context.Background(), sc, 1)
			if err != nil {
				t.Fatal(err)
			}
			return r.Report
		}
		alone := time.Duration(0)
		for _, s := range policytest.Compile(t, c.plan).Stages {
			alone += s.Infer[0]
			if s.Xfer != nil {
				alone += s.Xfer[0]
			}
		}
		for _, load := range []float64{0.02, 0.3} {
			if waits, goes := run(0, load).Latency.P50US.D(), run(1, load).Latency.P50US.D(); goes > alone*13/10 || waits < alone*13/10 {
				t.Errorf("%s, load %v: p50 %v at once and %v waiting, alone a request takes %v", c.name, load, goes, waits, alone)
			}
		}
		for _, load := range []float64{1, 1.3} {
			if waits, goes := run(0, load), run(1, load); goes.Attainment < waits.Attainment-.001 {
				t.Errorf("%s, load %v: attainment %.4f at once and %.4f waiting", c.name, load, goes.Attainment, waits.Attainment)
			}
		}
	}
}

// The samples of one request go together, where they fit into a batch.
func TestSamplesGoTogether(t *testing.T) {
	d := newDriver(t, policytest.Single(1, false, policytest.Model{Batch: 4, First: 10 * ms, More: 2 * ms, SLO: 100 * ms, RPS: 100}), reserve.DefaultOptions())
	of := func(req int32, more int64) policy.Event {
		ev := arrivalEvent(req, 100*ms)
		ev.Value = more
		return ev
	}
	d.play([]step{{0, of(1, 2), ""}, {0, of(2, 1), ""}, {0, of(3, 0), "dispatch [1 2 3] on 0 until 14ms"}})
}

// A smaller batch goes at the very moment at which it would wait for nothing: its first
// stage is idle all the time, its second as soon as the batch in front leaves it.
func TestGoesWhenItsPathIsFree(t *testing.T) {
	plan := policytest.Pooled{High: 2, Low: 1, Batch: 2, HighTime: 5 * ms, LowTime: 20 * ms, SLO: 200 * ms, OneHost: true}.Plan()
	d := newDriver(t, plan, reserve.DefaultOptions())
	d.play([]step{
		{0, arrivalEvent(1, 200*ms), "dispatch [1] on 0 until 5ms 2 until 25ms"},
		{0, policy.Event{Kind: policy.BatchStarted}, ""},
		{ms, arrivalEvent(2, 201*ms), "wake 0 at 20ms"},
		{5 * ms, finishEvent(0, 0, 0, 5*ms), ""},
		{5 * ms, policy.Event{Kind: policy.BatchStarted, Hop: 1, Device: 2, Start: 5 * ms}, ""},
		{20 * ms, timerEvent(0), "dispatch [2] on 0 until 25ms 2 until 45ms"},
	})
}

// A batch that fails before its turn (its stage is told to have taken no time)
// leaves those that run where they are.
func TestFailedBeforeItsTurn(t *testing.T) {
	d := newDriver(t, policytest.Single(1, false, policytest.Model{Batch: 1, First: 10 * ms, SLO: 100 * ms, RPS: 100}), reserve.Options{})
	d.play([]step{
		{0, arrivalEvent(1, 100*ms), "dispatch [1] on 0 until 10ms"},
		{0, policy.Event{Kind: policy.BatchStarted}, ""},
		{0, arrivalEvent(2, 100*ms), "dispatch [2] on 0 until 20ms"},
		{4 * ms, finishEvent(1, 0, 4*ms, 4*ms), ""},
		{4 * ms, arrivalEvent(3, 100*ms), "dispatch [3] on 0 until 20ms"},
	})
}

// A transfer that is aborted behind another, both of them late, holds nothing.
func TestAbortedBehindALateTransfer(t *testing.T) {
	plan := policytest.Pooled{High: 2, Low: 2, PerNode: 2, Batch: 1, HighTime: 6 * ms, LowTime: 18 * ms, Bytes: 1 << 19, SLO: 100 * ms}.Plan()
	d := newDriver(t, plan, reserve.Options{})
	d.handle(0, arrivalEvent(1, 100*ms))
	d.handle(0, arrivalEvent(2, 100*ms))
	for b := range int32(2) {
		d.handle(6*ms, finishEvent(b, b, 0, 6*ms))
	}
	if got := d.handle(50*ms, policy.Event{Kind: policy.WorkerLost, Device: 3}); !strings.HasPrefix(got, "abort ") {
		t.Fatalf("got %s", got)
	}
}
