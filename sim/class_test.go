package sim_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/formats"
	"inferplan/policy"
	"inferplan/sim"
	"inferplan/testkit/policytest"
)

// deadlineWatcher stands between simulator and policy and holds every request against
// the class that it asked for.
type deadlineWatcher struct {
	policy.Policy
	t             *policy.Tables
	fail          func(format string, args ...any)
	arrivalEvents map[int32]policy.Event  // arrivals by request slot
	batches       map[int32][]int32       // requests by batch slot
	stages        map[int32]int16         // last hop by batch slot
	lateAnswers   []int64                 // by model, of those answered
	answers       []int64                 // by model
	latestAnswers map[int32]time.Duration // latest answer after arrival, by model
}

func newDeadlineWatcher(inner policy.Policy, t *policy.Tables, fail func(string, ...any)) *deadlineWatcher {
	return &deadlineWatcher{
		Policy: inner, t: t, fail: fail, arrivalEvents: map[int32]policy.Event{}, batches: map[int32][]int32{}, stages: map[int32]int16{},
		lateAnswers: make([]int64, len(t.Models)), answers: make([]int64, len(t.Models)), latestAnswers: map[int32]time.Duration{},
	}
}

func (w *deadlineWatcher) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.Arrival:
		if slo := w.t.Models[ev.Model].SLO; ev.Deadline-ev.ArrivedAt != slo {
			w.fail("a request for %s has %v to its deadline, its class has %v", w.t.Models[ev.Model].Key(), ev.Deadline-ev.ArrivedAt, slo)
		}
		w.arrivalEvents[ev.Req] = *ev
	case policy.BatchFinished:
		if ev.Hop == w.stages[ev.Batch] {
			for _, r := range w.batches[ev.Batch] {
				a := w.arrivalEvents[r]
				w.answers[a.Model]++
				if ev.End > a.ArrivedAt+w.t.Models[a.Model].SLO {
					w.lateAnswers[a.Model]++
				}
				w.latestAnswers[a.Model] = max(w.latestAnswers[a.Model], ev.End-a.ArrivedAt)
			}
		}
	}
	w.Policy.Handle(now, ev, out)
	for i := range out.List {
		a := &out.List[i]
		if a.Kind != policy.Dispatch {
			continue
		}
		reqs, hops := out.BatchOf(a)
		w.batches[a.Batch], w.stages[a.Batch] = append([]int32(nil), reqs...), int16(len(hops)-1)
		for _, r := range reqs {
			if of := w.arrivalEvents[r].Model; of != w.t.Pipelines[a.Pipeline].Model {
				w.fail("a request for %s runs in a batch of %s", w.t.Models[of].Key(), w.t.Models[w.t.Pipelines[a.Pipeline].Model].Key())
			}
		}
	}
}

// No request is answered under another class's deadline: whatever the policy,
// the load and the jitter, a request has the deadline of the class that it
// names, shares batches with that class only, and counts as late by that
// class's SLO in that class's row of the report.
func TestClassesKeepTheirDeadlines(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.IntRange(2, 4).Draw(r, "entries")
		var entries []policytest.Model
		for i := range n {
			first := time.Duration(rapid.IntRange(1, 8).Draw(r, "first")) * ms
			entries = append(entries, policytest.Model{
				Batch: rapid.IntRange(1, 4).Draw(r, "batch"), First: first, More: first / 4,
				SLO: time.Duration(rapid.IntRange(15, 200).Draw(r, "slo"))*ms + time.Duration(i), // no two alike
				RPS: float64(rapid.IntRange(5, 80).Draw(r, "rps")),
			})
		}
		plan := policytest.Single(rapid.IntRange(1, 3).Draw(r, "devices"), rapid.Bool().Draw(r, "shared"), entries...)
		for i := range plan.Deployment {
			// The last may be another model, whose class is the same name.
			plan.Deployment[i].Model, plan.Deployment[i].Class = "m", fmt.Sprintf("c%d", i)
			if i == n-1 && n > 2 {
				plan.Deployment[i].Model, plan.Deployment[i].Class = "other", "c0"
			}
			promised := &formats.PoolOf(plan).Models[i]
			promised.Model, promised.Class = plan.Deployment[i].Model, plan.Deployment[i].Class
		}
		sc, err := sim.NewScenario(plan)
		if err != nil {
			r.Fatal(err)
		}
		sc.Policy.Name = rapid.SampledFrom([]string{"artifact", "reserve"}).Draw(r, "policy")
		sc.Load = rapid.Float64Range(0.3, 2).Draw(r, "load")
		sc.Seed = rapid.Uint64Range(1, 1000).Draw(r, "seed")
		sc.Duration, sc.Verify = 700*ms, true
		if rapid.Bool().Draw(r, "jitter") {
			sc.Service = func(seed uint64) (sim.Service, error) {
				return sim.JitterService(sc.Tables, sim.Lognormal, 0.5, seed), nil
			}
		}
		cfg, err := sc.Config(0)
		if err != nil {
			r.Fatal(err)
		}
		w := newDeadlineWatcher(cfg.Policy, cfg.Tables, r.Fatalf)
		cfg.Policy = w
		res, err := sim.Run(context.Background(), cfg)
		if err != nil {
			r.Fatal(err)
		}
		if err := res.Report.Validate(); err != nil {
			r.Fatal(err)
		}
		for i, m := range res.Report.Models {
			if m.Key() != plan.Deployment[i].Key() || m.SLOUS != plan.PromiseFor(i).SLOUS {
				r.Fatalf("row %d is of %s with an SLO of %v", i, m.Key(), m.SLOUS)
			}
			if m.Completed != w.answers[i] || m.Late != w.lateAnswers[i] || m.Latency.MaxUS.D() != w.latestAnswers[int32(i)] {
				r.Fatalf("%s: %d answered, %d late, slowest %v; the report says %d, %d, %v",
					m.Key(), w.answers[i], w.lateAnswers[i], w.latestAnswers[int32(i)], m.Completed, m.Late, m.Latency.MaxUS)
			}
		}
	})
}
