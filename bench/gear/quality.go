package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"inferplan/bench/gear/baseline"
	"inferplan/bench/gear/published"
	"inferplan/bench/instrument"
	"inferplan/cputime"
	"inferplan/formats/seeded"
)

// small is a space in which all plans can be tried: some models, few thresholds and ranges, batches of one, every model everywhere, and a
// trace of eight steps around the burst.
type small struct {
	models  []string
	devices int
	ranges  int
	apart   int     // seconds between the rates taken from the trace
	last    int     // seconds that each of them lasts
	peak    float64 // of the short trace
}

var smalls = map[string]small{
	"bert5":  {[]string{"tiny", "small", "base"}, 4, 3, 15, 1, 1500},
	"llama4": {[]string{"7B", "13B", "70B"}, 8, 4, 60, 10, 60},
	"imdb3":  {[]string{"GitHub(Vader)", "Amazon", "Google"}, 4, 3, 15, 1, 800},
}

// smallGrid is its grid of thresholds, and randomRounds how often random plans are drawn.
const (
	smallGrid    = 3
	randomRounds = 5
)

// compared is one latency target in the small space.
type compared struct {
	Ours    baseline.Point
	CPU     float64        // seconds
	Overall baseline.Point // our plan for all requests of the trace
	Longer  float64        // its CPU seconds
	Random  []float64      // best accuracy by round; 0 if none is in time
}

// quality holds our plans against every plan, and against the best of random ones that take twice our time, as figure 10 does.
func quality(r *instrument.Run, f *published.Family, t *instrument.Table) error {
	t.Columns = []string{"workload", "p95 target ms", "every plan", "planner", "its p95 ms", "CPU s", "planner, all requests", "its p95 ms", "CPU s",
		"random, twice the CPU", "ours below the best, points"}

	// Try every plan.
	c := smalls[f.Name]
	few := f.Only(c.models...)
	few.Grid = smallGrid
	var rates published.Rates
	for _, rate := range f.Rates.Around(8, c.apart, c.peak) {
		for range c.last {
			rates = append(rates, rate)
		}
	}
	space, err := baseline.NewSpace(few, c.devices, c.ranges, rates)
	if err != nil {
		return err
	}
	key := fmt.Sprintf("%s/small %d", f.Name, c.devices)
	front, err := instrument.Measured(r, key+"/every plan", func() ([]baseline.Point, error) {
		points, err := space.Exhaustive(r.Ctx, r.Jobs)
		return baseline.ParetoFront(points), err
	})
	if err != nil {
		return err
	}

	// Compare ours at several latency targets.
	for _, share := range []float64{1. / 16, 1. / 8, 1. / 4, 1. / 2, 1, 2} {
		slo := time.Duration(share * float64(f.SLO))
		v, err := instrument.Measured(r, fmt.Sprintf("%s/%v", key, slo), func() (*compared, error) { return compare(r, space, slo) })
		if err != nil {
			return err
		}
		best := baseline.Best(front, slo)
		row := []any{f.Name, fmt.Sprintf("%.4g", ms(slo)), digits(best)}
		if best == 0 {
			row[2] = "none"
		}
		if v == nil {
			t.Add(append(row, "none", "", "", "", "", "", "", "")...)
			continue
		}
		random := meanOf(v.Random, 4)
		if slices.Min(v.Random) == 0 {
			random = fmt.Sprintf("not in time in every round, at most %s", digits(slices.Max(v.Random)))
		}
		t.Add(append(row, digits(v.Ours.Accuracy), fmt.Sprintf("%.1f", ms(v.Ours.P95)), fmt.Sprintf("%.3f", v.CPU),
			digits(v.Overall.Accuracy), fmt.Sprintf("%.1f", ms(v.Overall.P95)), fmt.Sprintf("%.3f", v.Longer), random,
			fmt.Sprintf("%.2f, %.2f", 100*(best-v.Ours.Accuracy), 100*(best-v.Overall.Accuracy)))...)
	}
	t.Note("%s: %d cascades in %d ranges are %d plans.", f.Name, len(space.Cascades), c.ranges, space.Size())
	return nil
}

// compare plans for a latency and draws plans for twice the CPU time, which nothing else uses meanwhile. It returns nil if there is no
// plan.
func compare(r *instrument.Run, space *baseline.Space, slo time.Duration) (*compared, error) {
	v := &compared{}
	for _, one := range []struct {
		overRequests bool
		shown        *baseline.Point
		seconds      *float64
	}{{false, &v.Ours, &v.CPU}, {true, &v.Overall, &v.Longer}} {
		before := cputime.Used()
		found, ok, err := space.Planned(r.Ctx, slo, one.overRequests, planSeed)
		if err == nil && !ok && one.overRequests {
			err = errors.New("no plan for all requests where there is one for every range")
		}
		if err != nil || !ok {
			return nil, err
		}
		*one.seconds = (cputime.Used() - before).Seconds()
		if *one.shown, err = space.Show(r.Ctx, found); err != nil {
			return nil, err
		}
	}
	for round := range randomRounds {
		began := cputime.Used()
		isOver := func() bool { return (cputime.Used() - began).Seconds() >= 2*max(v.CPU, v.Longer) }
		points, err := space.Random(r.Ctx, seeded.New(uint64(round+1), "bench/gear/plans"), isOver)
		if err != nil {
			return nil, err
		}
		v.Random = append(v.Random, baseline.Best(points, slo))
	}
	return v, nil
}
