package main

import (
	"context"
	"fmt"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/policy"
	"inferplan/policy/flow"
	"inferplan/policy/policies"
	"inferplan/sim"
)

// found says where requests went: as many lines were found as in the run.
type found struct {
	list []asked
	next int
	of   []int // request of the list, by slot
}

func (c *found) BeginRequest(req, _ int32) {
	for int(req) >= len(c.of) {
		c.of = append(c.of, 0)
	}
	c.of[req] = c.next
	c.next++
}

func (c *found) ItemCount(req, _, _, _, _ int32) int32 { return int32(c.list[c.of[req]].found) }

func (*found) ChooseRoute(_, _, _, _, _, _ int32) int32 { return 0 }

// ChooseNext: the first leads to the lines, the second ends a request without one.
func (c *found) ChooseNext(req, _, _, _ int32, _ []bool) int32 {
	if c.list[c.of[req]].found > 0 {
		return 0
	}
	return 1
}

// loadsHeard counts the loads that a policy hears of.
type loadsHeard struct {
	policy.Policy
	n int64
}

func (w *loadsHeard) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	if ev.Kind == policy.NetworkLoaded && ev.Value == 0 {
		w.n++
	}
	w.Policy.Handle(now, ev, out)
}

// again plays a run again in virtual time, with its recorded times.
func (b *ocr) again(ctx context.Context, r *served) error {
	t, err := policies.Compile(b.plan)
	if err != nil {
		return err
	}
	pol, err := policies.New(b.plan.Policy, t)
	if err != nil {
		return err
	}
	s := r.service
	times, err := sim.RecordedService(t, sim.Samples{Runs: s.Runs, Starts: s.Starts, ReportDelays: s.ReportDelays, Loads: s.Loads, LoadStarts: s.LoadStarts}, false, 1)
	if err != nil {
		return err
	}
	walk, ok := policies.NewControl(t).(*flow.WorkflowControl)
	if !ok {
		return fmt.Errorf("the plan has no workflows")
	}
	walk.SetChoices(&found{list: r.list})
	var list []arrivals.Request
	for _, a := range r.list {
		list = append(list, arrivals.Request{ArrivedAt: a.at, Model: int32(a.app)})
	}
	heard := &loadsHeard{Policy: pol}
	_, err = sim.Run(ctx, sim.Config{Tables: t, Policy: heard, Source: arrivals.Slice(list), Service: times, Control: walk,
		Ingress: s.Ingress, Egress: s.Egress, Verify: true, NoReport: true,
		OnCompleted: func(arrived, answered time.Duration) {
			if arrived >= leadIn {
				r.virtual = append(r.virtual, answered-arrived)
			}
		}})
	if err != nil {
		return fmt.Errorf("simulating: %w", err)
	}
	r.simLoads = heard.n
	return nil
}
