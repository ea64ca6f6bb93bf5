package main

import (
	"fmt"
	"math"
	"time"

	"inferplan/bench/instrument"
	"inferplan/formats"
	"inferplan/formats/report"
)

// each goes through all plans and traces, at 95 % of the plan's largest rate.
func (b *bench) each(seconds int, do func(peak float64, plan *formats.Plan, t *trace, moments []time.Duration, seed uint64) error) error {
	for i, plan := range b.plans {
		for k := range usual {
			rates, err := usual[k].rates(b.data, b.seconds, .95*b.peaks[i])
			if err != nil {
				return err
			}
			seed := b.seed + uint64(i*len(usual)+k)
			if err := do(b.peaks[i], plan, &usual[k], poisson(rates[:seconds], seed), seed); err != nil {
				return err
			}
		}
	}
	return nil
}

// runs serves every plan on every trace, and the plan for the largest rate on the spike, and simulates each run twice.
func (b *bench) runs(r *instrument.Run, t *instrument.Table) error {
	within, replayedNear, forecastNear := 0, 0, 0
	measure := func(peak float64, plan *formats.Plan, tr *trace, moments []time.Duration, seed uint64) error {
		x, err := b.family.serve(r.Ctx, plan, moments, seed)
		if err != nil {
			return err
		}
		v := x.judge(plan)
		replayed, err := b.family.replay(r.Ctx, plan, x, true)
		if err != nil {
			return err
		}
		forecast, err := b.family.replay(r.Ctx, plan, x, false)
		if err != nil {
			return err
		}
		ms := func(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()*1e3) }
		off := func(d time.Duration) float64 { return d.Seconds()/v.p95.Seconds() - 1 }
		for count, holds := range map[*int]bool{&within: math.Abs(v.accuracy-v.planned) <= v.halfWidth, &replayedNear: math.Abs(off(replayed)) <= .1, &forecastNear: math.Abs(off(forecast)) <= .1} {
			if holds {
				*count++
			}
		}
		t.Add(peak, tr.name, v.requests, v.lost, x.switches, fmt.Sprintf("%.4f", v.accuracy), fmt.Sprintf("%.4f ± %.4f", v.planned, v.halfWidth), ms(v.p95),
			ms(replayed), fmt.Sprintf("%+.2f %%", 100*off(replayed)), ms(forecast), fmt.Sprintf("%+.1f %%", 100*off(forecast)))
		return nil
	}
	if err := b.each(b.seconds, measure); err != nil {
		return err
	}
	largest := len(b.plans) - 1
	rates, err := spike.rates(b.data, 15, .95*b.peaks[largest])
	if err != nil {
		return err
	}
	if err := measure(b.peaks[largest], b.plans[largest], &spike, poisson(rates, b.seed), b.seed); err != nil {
		return err
	}
	t.Note("Of %d runs, accuracy is within its interval in %d; p95 is within 10 %% in %d where the run's own times are replayed, in %d as forecast from the plan's times.", len(t.Rows), within, replayedNear, forecastNear)
	return nil
}

// verdict is a run against its plan.
type verdict struct {
	requests, lost int
	accuracy       float64
	planned        float64 // of the gears under which the requests came, on the samples planned on
	halfWidth      float64 // 95 %, of the difference
	p95            time.Duration
}

// judge compares a run with its plan. The interval of the difference allows for the choice of the samples planned on and of the held-out
// samples, which come again and again: its variance is that of a mean over samples, not over requests.
func (r *run) judge(plan *formats.Plan) verdict {
	v := verdict{}
	var latencies []time.Duration
	sum, count := map[int]float64{}, map[int]float64{} // of the differences, by row
	for _, a := range r.answers[r.lead:] {
		v.requests++
		if a.lost {
			v.lost++
			continue
		}
		latencies = append(latencies, a.took)
		planned := formats.GearOf(plan).Gears[a.gear].Accuracy
		v.planned += planned
		sum[a.row] -= planned
		count[a.row]++
		if a.correct {
			v.accuracy++
			sum[a.row]++
		}
	}
	n := float64(len(latencies))
	v.accuracy, v.planned = v.accuracy/n, v.planned/n
	variance := clustered(sum, count) + v.planned*(1-v.planned)/float64(formats.GearOf(plan).Samples)
	v.halfWidth = 1.96 * math.Sqrt(variance)
	v.p95 = report.PercentileReordering(latencies, .95)
	return v
}

// clustered returns the variance of a mean over requests whose samples repeat, from their sums and counts by sample.
func clustered(sum, count map[int]float64) float64 {
	total, n, squares := 0.0, 0.0, 0.0
	for row := range sum {
		total, n = total+sum[row], n+count[row]
	}
	for row := range sum {
		d := sum[row] - total/n*count[row]
		squares += d * d
	}
	return squares / (n * n)
}

// pairs serves the same requests with gears and with the cheapest model that is as accurate.
func (b *bench) pairs(r *instrument.Run, t *instrument.Table) error {
	var logs, differences []float64
	err := b.each(b.seconds/3, func(peak float64, plan *formats.Plan, tr *trace, moments []time.Duration, seed uint64) error {
		gears, err := b.family.serve(r.Ctx, plan, moments, seed)
		if err != nil {
			return err
		}
		v := gears.judge(plan)
		model := b.family.cheapest(plan, v.accuracy)
		single, err := b.family.serve(r.Ctx, b.family.single(plan, model), moments, seed)
		if err != nil {
			return err
		}
		w := single.judge(plan)
		ratio := gears.device.Seconds() / single.device.Seconds()
		logs, differences = append(logs, math.Log(ratio)), append(differences, v.accuracy-w.accuracy)
		t.Add(peak, tr.name, v.requests, v.lost+w.lost, model, fmt.Sprintf("%.2f", gears.device.Seconds()), fmt.Sprintf("%.2f", single.device.Seconds()), fmt.Sprintf("%.3f", ratio),
			fmt.Sprintf("%+.4f", v.accuracy-w.accuracy), fmt.Sprintf("%.1f", v.p95.Seconds()*1e3), fmt.Sprintf("%.1f", w.p95.Seconds()*1e3))
		return nil
	})
	if err != nil || len(logs) < 2 {
		return err
	}
	ratio, interval := instrument.Mean(logs)
	difference, spread := instrument.Mean(differences)
	t.Note("%d pairs: device time %.3f of the model's (95 %% of the geometric mean: %.3f to %.3f), accuracy %+.4f (%+.4f to %+.4f).",
		len(logs), math.Exp(ratio), math.Exp(interval[0]), math.Exp(interval[1]), difference, spread[0], spread[1])
	return nil
}
