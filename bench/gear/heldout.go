package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"inferplan/bench/gear/published"
	"inferplan/bench/instrument"
	"inferplan/formats/report"
)

// devicesOf returns the devices on which plans of a family are made for the parts fresh, heldout and thirds.
func devicesOf(f *published.Family) []int {
	switch f.Name {
	case "bert5":
		return []int{1, 2, 3, 4, 5}
	case "llama4":
		return []int{3, 4, 5, 6, 8}
	}
	return []int{2, 4, 6, 8} // the others have the latencies of imdb3
}

// onProven measures plans of a family on draws of its samples, each on the devices of devicesOf. Results come draw by draw.
func onProven[T any](r *instrument.Run, f *published.Family, what string, draws int, measure func(draw uint64, p place) (T, error)) ([]T, error) {
	devices := devicesOf(f)
	results := make([]T, draws*len(devices))
	err := r.ForEach(len(results), func(_ context.Context, i int) (err error) {
		draw, p := i/len(devices), place{f, devices[i%len(devices)], f.SLO}
		results[i], err = instrument.Measured(r, fmt.Sprintf("%s/%s/%d", p, what, draw), func() (T, error) { return measure(uint64(draw), p) })
		return err
	})
	return results, err
}

// freshGears holds the results of a plan's gears in fresh trials.
type freshGears struct {
	Accuracy float64
	Failed   []int   // trials, by gear
	Late     int     // of those of all gears, with a tail past the SLO: the others' latency grew
	Worst    float64 // tail over SLO
}

// fresh tries every gear of plans again, with other arrivals and ten times as long.
func (b *bench) fresh(r *instrument.Run, t *instrument.Table) error {
	t.Columns = []string{"workload", "devices", "planned", "gears", "trials failed", "most of a gear", "of them late", "worst p95, SLOs"}
	for _, f := range b.families {
		plans, err := onProven(r, f, fmt.Sprintf("fresh %d", b.trials), 1, func(_ uint64, p place) (*freshGears, error) { return tryAgain(r, p, b.trials) })
		if err != nil {
			return err
		}
		for i, v := range plans {
			devices := devicesOf(f)[i]
			if v == nil {
				t.Add(f.Name, devices, "no plan", "", "", "", "", "")
				continue
			}
			failed, all := 0, len(v.Failed)*b.trials
			for _, n := range v.Failed {
				failed += n
			}
			most := fmt.Sprintf("%d of %d", slices.Max(v.Failed), b.trials)
			t.Add(f.Name, devices, digits(v.Accuracy), len(v.Failed), fmt.Sprintf("%d of %d", failed, all), most, v.Late, fmt.Sprintf("%.2f", v.Worst))
			claim := fmt.Sprintf("fresh trials that gears of the plan of %s on %d devices fail", f.Name, devices)
			figure := r.AtMost(claim, "trials at a stated confidence (docs/methods/gear.md)", 1, "%", 100*float64(failed)/float64(all))
			figure.Interval, figure.Note = wilson(failed, all), fmt.Sprintf("%d of %d, ten times as long as the shortest; of one gear %s at most", failed, all, most)
		}
	}
	return r.WriteCSV("fresh", t)
}

// wilson returns the 95 % interval of a share, in percent.
func wilson(hits, all int) *[2]float64 {
	low, high := report.Wilson(int64(hits), int64(all), .95)
	return &[2]float64{100 * low, 100 * high}
}

// tryAgain makes a plan and tries each of its gears again. It returns nil if there is no plan.
func tryAgain(r *instrument.Run, p place, times int) (*freshGears, error) {
	q, err := p.problem()
	if err != nil {
		return nil, err
	}
	found, err := solve(r.Ctx, q)
	if err != nil || found == nil {
		return nil, err
	}
	v := &freshGears{Accuracy: found.Accuracy, Failed: make([]int, len(found.Gears))}
	for gear := range found.Gears {
		for k := range times {
			trial, err := found.RetryGear(r.Ctx, nil, gear, uint64(1_000_000*p.devices+1000*gear+k))
			if err != nil {
				return nil, err
			}
			if v.Worst = max(v.Worst, trial.Latency.Seconds()/p.slo.Seconds()); !trial.Passed {
				v.Failed[gear]++
			}
			if trial.Latency > p.slo {
				v.Late++
			}
		}
	}
	return v, nil
}

// drawnPlan is a plan against samples that it was not made on.
type drawnPlan struct {
	Planned            float64
	HeldOut, Low, High float64 // accuracy on the samples held out, with its 95 % interval
	Wider              float64 // how much wider the interval is that allows for the choice of the samples planned on, too
}

// heldout makes plans on draws of the families' samples, synthetic ones from their generator, real ones split 60 to 40, and holds the
// planned accuracy against the samples that were not planned on.
func (b *bench) heldout(r *instrument.Run, t *instrument.Table) error {
	t.Columns = []string{"workload", "plans", "planned less held out, points", "within the held-out interval", "within the difference's interval"}
	allWithin, allPlans := 0, 0
	for _, f := range b.families {
		plans, err := onProven(r, f, "heldout", b.draws, func(draw uint64, p place) (*drawnPlan, error) { return drawPlan(r, p, draw) })
		if err != nil {
			return err
		}
		plans = slices.DeleteFunc(plans, func(v *drawnPlan) bool { return v == nil })
		within, alike, less := 0, 0, 0.0
		for _, v := range plans {
			less += (v.Planned - v.HeldOut) / float64(len(plans))
			if v.Low <= v.Planned && v.Planned <= v.High {
				within++
			}
			if math.Abs(v.Planned-v.HeldOut) <= v.Wider*(v.High-v.Low)/2 {
				alike++
			}
		}
		t.Add(f.Name, len(plans), fmt.Sprintf("%.2f", 100*less), within, alike)
		allWithin, allPlans = allWithin+within, allPlans+len(plans)
	}
	if allPlans == 0 {
		return errors.New("no problem has a plan")
	}
	const claim = "planned accuracy within the held-out interval, all families together"
	figure := r.AtLeast(claim, "accuracy out of sample (docs/methods/gear.md)", 93, "%", 100*float64(allWithin)/float64(allPlans))
	figure.Interval, figure.Note = wilson(allWithin, allPlans), fmt.Sprintf("%d of %d plans on %d draws of samples", allWithin, allPlans, b.draws)
	return r.WriteCSV("heldout", t)
}

// drawPlan makes a plan on a draw of samples. It returns nil if there is none, or none whose accuracy held out is known.
func drawPlan(r *instrument.Run, p place, draw uint64) (*drawnPlan, error) {
	drawn, err := p.f.Draw(r.Data, draw)
	if err != nil {
		return nil, err
	}
	q, err := place{drawn, p.devices, p.slo}.problem()
	if err != nil {
		return nil, err
	}
	found, err := solve(r.Ctx, q)
	if err != nil || found == nil {
		return nil, err
	}
	held, ok := found.HeldOutAccuracy()
	if !ok {
		return nil, nil
	}
	wider := math.Sqrt(1 + float64(q.HeldOutSamples.N)/float64(q.PlanningSamples.N))
	return &drawnPlan{found.Accuracy, held.Accuracy, held.Low, held.High, wider}, nil
}
