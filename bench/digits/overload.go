package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/instrument"
	"inferplan/bench/served"
	"inferplan/executor"
	"inferplan/formats"
	"inferplan/formats/report"
)

// Of the overload, and of the traffic that has to raise the alarm.
const (
	overloadBy   = 1.5
	overloadLong = 20 // s
	overloadRest = 5  // s, at half the largest rate
	driftMost    = 60 // s
	driftLoad    = .5
)

// source is that of all figures.
const source = "gear plans at run time (docs/howto/switch.md)"

// shedding returns a plan whose server refuses what it cannot answer in time, and its largest rate: the middle one.
func (b *bench) shedding() (*formats.Plan, float64) {
	middle := len(b.plans) / 2
	p := *b.plans[middle]
	p.Policy.Params = maps.Clone(p.Policy.Params)
	delete(p.Policy.Params, "shed")
	return &p, b.peaks[middle]
}

// overload serves a plan above its largest rate, and then below it.
func (b *bench) overload(r *instrument.Run, t *instrument.Table) error {
	plan, peak := b.shedding()
	rates := append(slices.Repeat([]float64{overloadBy * peak}, overloadLong), slices.Repeat([]float64{peak / 2}, overloadRest)...)
	x, err := b.family.serve(r.Ctx, plan, poisson(rates, b.seed), b.seed)
	if err != nil {
		return err
	}
	var refusals []time.Duration
	requests, inTime, after, inTimeAfter := 0, 0, 0, 0
	for _, a := range x.answers[x.lead:] {
		isInTime := !a.lost && a.took <= b.slo
		switch at := a.arrived - leadIn; {
		case at < overloadLong*time.Second:
			if requests++; a.lost {
				refusals = append(refusals, a.took)
			} else if isInTime {
				inTime++
			}
		case at >= overloadLong*time.Second+b.slo:
			if after++; isInTime {
				inTimeAfter++
			}
		}
	}
	if len(refusals) == 0 || after == 0 {
		return fmt.Errorf("%d refused, %d after: the overload shows nothing", len(refusals), after)
	}
	goodput, share := float64(inTime)/overloadLong/peak, 100*float64(inTimeAfter)/float64(after)
	p99 := report.PercentileReordering(refusals, .99).Seconds() * 1e3
	t.Add(peak, requests, len(refusals), fmt.Sprintf("%.3f", goodput), fmt.Sprintf("%.2f", p99), after, fmt.Sprintf("%.2f %%", share))
	note := fmt.Sprintf("digits, plan for %g requests/s, p95 %v, in process; %d of %d refused", peak, b.slo, len(refusals), requests)
	r.Figure(figures.Figure{Claim: "goodput of a served cascade at 1.5 times its largest rate for 20 s, over that rate", Source: source, Asked: "at least 0.9", Measured: goodput, Holds: figures.If(goodput >= .9), Note: note})
	r.Figure(figures.Figure{Claim: "refusals of a served cascade at 1.5 times its largest rate, p99", Source: source, Asked: "at most 5", Measured: p99, Unit: "ms", Holds: figures.If(p99 <= 5), Note: note})
	r.Figure(figures.Figure{Claim: "requests in time from one SLO after a served cascade's overload", Source: source, Asked: "at least 95", Measured: share, Unit: "%", Holds: figures.If(share >= 95),
		Note: fmt.Sprintf("of %d at half the largest rate, p95", after)})
	return nil
}

// drift serves samples like those planned on, and then the harder half alone, until the
// alarm is raised.
func (b *bench) drift(r *instrument.Run, t *instrument.Table) error {
	plan, peak := b.shedding()
	x, err := b.family.open(r.Ctx, plan)
	if err != nil {
		return err
	}
	defer x.Close()
	var raised [2]bool
	var seconds float64
	for i, c := range []struct {
		samples string
		rows    []int
		seconds int
	}{{"as planned", b.family.heldOut, driftMost / 2}, {"the harder half", b.family.harder(), driftMost}} {
		moments := poisson(slices.Repeat([]float64{driftLoad * peak}, c.seconds), b.seed+uint64(i))[leadCount:]
		var sent int
		if raised[i], sent, seconds, err = b.untilAlarm(r.Ctx, x, c.rows, moments); err != nil {
			return err
		}
		t.Add(peak, c.samples, sent, fmt.Sprintf("%.1f", seconds), raised[i])
	}
	r.Figure(figures.Figure{Claim: "a served cascade's alarm where only the harder half of the samples comes, after", Source: source, Asked: "at most 60", Measured: seconds, Unit: "s", Holds: figures.If(raised[1] && !raised[0]),
		Note: fmt.Sprintf("digits, plan for %g requests/s at %g of them; by samples like those planned on: %v in %d s", peak, driftLoad, raised[0], driftMost/2)})
	return nil
}

// untilAlarm sends samples until the server says that they are not forwarded as planned, or to the end of the moments.
func (b *bench) untilAlarm(ctx context.Context, x *executor.Executor, rows []int, moments []time.Duration) (raised bool, sent int, seconds float64, err error) {
	order, answers := shuffled(rows, len(moments), b.seed), make([]answer, len(moments))
	sending, stop := context.WithCancel(ctx)
	defer stop()
	var alarm atomic.Bool
	var failed atomic.Pointer[error]
	began, err := served.Pace(sending, moments, func(i int, at time.Time) {
		if i%100 == 0 {
			drifted, err := isDrifted(x)
			if err != nil {
				failed.Store(&err)
			}
			if drifted || err != nil {
				alarm.Store(drifted)
				stop()
			}
		}
		b.family.ask(ctx, x, &answers[i], order[i], at)
	})
	if e := failed.Load(); e != nil {
		return false, 0, 0, *e
	}
	if ctx.Err() != nil || err != nil && !errors.Is(err, context.Canceled) || len(began) == 0 {
		return false, 0, 0, errors.Join(err, ctx.Err())
	}
	return alarm.Load(), len(began), (began[len(began)-1] - moments[0]).Seconds(), nil
}

// isDrifted returns whether the server says that samples are not forwarded as planned.
func isDrifted(x *executor.Executor) (bool, error) {
	families, err := x.Gatherer().Gather()
	if err != nil {
		return false, fmt.Errorf("reading metrics: %w", err)
	}
	for _, m := range families {
		if m.GetName() == "inferplan_forward_drifted" {
			return m.Metric[0].GetGauge().GetValue() > 0, nil
		}
	}
	return false, errors.New("the server has no metric of drift")
}
