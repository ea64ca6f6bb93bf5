package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"inferplan/bench/figures"
	"inferplan/executor"
	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/report"
)

// overloadVerdict holds the results of a plan that sheds, above its largest rate and after.
type overloadVerdict struct {
	PeakRPS   float64 `json:"peak_rps"`
	Requests  int     `json:"requests"` // above the largest rate
	Goodput   float64 `json:"goodput"`  // answered in time a second, over the largest rate
	Refused   int     `json:"refused"`
	RefusedMS float64 `json:"refused_p99_ms"` // from the request to its refusal
	After     int     `json:"requests_after"` // from one SLO after the overload
	InTime    float64 `json:"in_time_after"`  // share of them
}

// driftVerdict is how soon harder samples raise the alarm.
type driftVerdict struct {
	PeakRPS  float64 `json:"peak_rps"`
	Requests int     `json:"requests"` // until the alarm
	Seconds  float64 `json:"seconds"`
	Raised   bool    `json:"raised"`
	Before   bool    `json:"raised_before"` // by samples like those planned on
}

// Of the overload, and of the traffic that has to raise the alarm.
const (
	overloadBy   = 1.5
	overloadLong = 20 // s
	overloadRest = 5  // s, at half the largest rate
	driftMost    = 60 // s
	driftLoad    = .5
)

// sheds is a plan whose server refuses what it cannot answer in time.
func sheds(plan *formats.Plan) *formats.Plan {
	p := *plan
	p.Policy.Params = maps.Clone(p.Policy.Params)
	delete(p.Policy.Params, "shed")
	return &p
}

// overload serves a plan above its largest rate, and then below it.
func (b *bench) overload(ctx context.Context) error {
	p := b.plans[len(b.plans)/2]
	rates := append(slices.Repeat([]float64{1}, overloadLong), slices.Repeat([]float64{.5 / overloadBy}, overloadRest)...)
	run, err := b.family.serve(ctx, sheds(p.plan), arrive(rates, overloadBy*p.peak, b.seed), b.family.held, b.cpus, b.seed)
	if err != nil {
		return err
	}
	v := &overloadVerdict{PeakRPS: p.peak}
	var refused []time.Duration
	inTime, again := 0, 0
	for _, a := range run.answers[run.lead:] {
		kept := !a.lost && a.took <= b.slo
		switch at := a.arrived - leadIn; {
		case at < overloadLong*time.Second:
			if v.Requests++; a.lost {
				refused = append(refused, a.took)
			} else if kept {
				inTime++
			}
		case at >= overloadLong*time.Second+b.slo:
			if v.After++; kept {
				again++
			}
		}
	}
	if v.Refused = len(refused); v.Refused == 0 || v.After == 0 {
		return fmt.Errorf("%d refused, %d after: the overload shows nothing", v.Refused, v.After)
	}
	slices.Sort(refused)
	v.Goodput, v.RefusedMS, v.InTime = float64(inTime)/overloadLong/p.peak, ms(report.Percentile(refused, .99)), float64(again)/float64(v.After)
	b.doc.Overload = v
	fmt.Fprintf(b.out, "\nOverload (%g times %g requests/s for %d s, SLO %v): goodput %.3f of the largest rate, %d of %d refused, p99 after %.2f ms; %.4f of %d in time from one SLO after\n",
		overloadBy, p.peak, overloadLong, b.slo, v.Goodput, v.Refused, v.Requests, v.RefusedMS, v.InTime, v.After)
	note := fmt.Sprintf("digits, plan for %g requests/s, p95 %v, in process; %d of %d refused", p.peak, b.slo, v.Refused, v.Requests)
	return b.figure("overload",
		figures.Figure{Claim: "goodput of a served cascade at 1.5 times its largest rate for 20 s, over that rate", Asked: "at least 0.9", Measured: v.Goodput, Holds: figures.If(v.Goodput >= .9), Note: note},
		figures.Figure{Claim: "refusals of a served cascade at 1.5 times its largest rate, p99", Asked: "at most 5", Measured: v.RefusedMS, Unit: "ms", Holds: figures.If(v.RefusedMS <= 5), Note: note},
		figures.Figure{Claim: "requests in time from one SLO after a served cascade's overload", Asked: "at least 95", Measured: 100 * v.InTime, Unit: "%", Holds: figures.If(v.InTime >= .95), Note: fmt.Sprintf("of %d at half the largest rate, p95", v.After)})
}

// figure puts figures where they are kept.
func (b *bench) figure(part string, list ...figures.Figure) error {
	if b.figures == "" {
		return nil
	}
	for i := range list {
		list[i].Source = "gear plans at run time (docs/operations.md)"
	}
	return figures.Put(b.figures, b.command(part), list...)
}

// drift serves samples like those planned on, and then the harder half alone, until the
// alarm is raised.
func (b *bench) drift(ctx context.Context) error {
	p := b.plans[len(b.plans)/2]
	x, err := b.family.open(ctx, sheds(p.plan), b.cpus)
	if err != nil {
		return err
	}
	defer x.Close()
	rates := slices.Repeat([]float64{1}, driftMost)
	v := &driftVerdict{PeakRPS: p.peak}
	if v.Before, _, _, err = b.untilAlarm(ctx, x, b.family.held, arrive(rates[:driftMost/2], driftLoad*p.peak, b.seed)); err != nil {
		return err
	}
	if v.Raised, v.Requests, v.Seconds, err = b.untilAlarm(ctx, x, b.family.harder(), arrive(rates, driftLoad*p.peak, b.seed+1)); err != nil {
		return err
	}
	b.doc.Drift = v
	fmt.Fprintf(b.out, "\nHarder samples (%g of %g requests/s): alarm %v after %.1f s and %d requests; by samples like those planned on, in %d s: %v\n",
		driftLoad, p.peak, v.Raised, v.Seconds, v.Requests, driftMost/2, v.Before)
	return b.figure("drift", figures.Figure{Claim: "a served cascade's alarm where only the harder half of the samples comes, after", Asked: "at most 60", Measured: v.Seconds, Unit: "s", Holds: figures.If(v.Raised && !v.Before),
		Note: fmt.Sprintf("digits, plan for %g requests/s at %g of them; by samples like those planned on: %v in %d s", p.peak, driftLoad, v.Before, driftMost/2)})
}

// harder is the half of the held-out samples that the members are least certain of.
func (f *family) harder() []int {
	certainty := func(row int) (sum float64) {
		for i := range f.records.Models {
			sum += f.records.Models[i].Certainty[row]
		}
		return sum
	}
	rows := slices.Clone(f.held)
	slices.SortStableFunc(rows, func(a, b int) int { return cmp.Compare(certainty(a), certainty(b)) })
	return rows[:len(rows)/2]
}

// untilAlarm sends samples until the server says that they are not forwarded as planned.
func (b *bench) untilAlarm(ctx context.Context, x *executor.Executor, rows []int, list []arrivals.Request) (raised bool, sent int, seconds float64, err error) {
	order, answers := shuffled(rows, len(list), b.seed), make([]answer, len(list))
	send := sending{f: b.family, x: x}
	defer send.wait.Wait()
	start := time.Now()
	for i, r := range list {
		answers[i].row = order[i]
		send.at(ctx, start, r.ArrivedAt, &answers[i])
		if i%100 > 0 {
			continue
		}
		drifted, err := sumOf(x, "inferplan_forward_drifted", "", "")
		if err != nil || drifted > 0 {
			return drifted > 0, i + 1, time.Since(start).Seconds(), err
		}
		if err := ctx.Err(); err != nil {
			return false, 0, 0, err
		}
	}
	return false, len(list), time.Since(start).Seconds(), nil
}
