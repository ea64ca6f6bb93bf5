package check

import (
	"context"
	"fmt"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/report"
	"inferplan/formats/seeded"
	policygear "inferplan/policy/gear"
	"inferplan/policy/policies"
	"inferplan/sim"
)

// cascadeOf is the cascade that a gear plan was made for, as far as the plan
// tells: models that no gear asks are not in it.
func cascadeOf(p *formats.Plan) *formats.Cascade {
	g := p.Gear
	c := &formats.Cascade{SLO: formats.CascadeSLO{Percentile: g.Percentile, Accuracy: g.Accuracy, Over: g.Over}, QPS: formats.CascadeQPS{Max: g.MaxQPS}}
	if p.Objective.Name != "latency" {
		c.SLO.Latency = formats.SLO{Duration: g.SLOUS.D()}
	}
	for i := range g.Models {
		c.Family = append(c.Family, g.Models[i].Model)
		c.Grid = len(g.Models[i].Thresholds) + 1
	}
	for i := range g.Gears {
		c.QPS.Histogram = append(c.QPS.Histogram, g.Gears[i].Weight)
	}
	return c
}

// gearRPS compares the highest rate that the plan's fastest gear holds, by the
// load of its busiest device.
func (c *comparison) gearRPS() []sample {
	g := c.plan.Gear
	last := len(g.Gears) - 1
	now := c.gears.list[last].loadToday
	promised := &c.against.Gear.Gears[len(c.against.Gear.Gears)-1]
	if !(now > 0) || !(promised.Utilisation > 0) {
		return nil
	}
	return []sample{{"cascade, fastest gear", promised.ToQPS / promised.Utilisation, g.Gears[last].ToQPS / now, "rps"}}
}

// accuracy compares what the plan was promised to answer right with what it
// does by today's records, or what a plan of today would.
func (c *comparison) accuracy() []sample {
	if c.gears == nil || c.against.Objective.Name != "accuracy" {
		return nil
	}
	now := 0.0
	for i := range c.gears.list {
		now += c.plan.Gear.Gears[i].Weight * c.gears.list[i].accuracyToday
	}
	out := []sample{{"cascade", c.against.Objective.Value, now, "share of answers"}}
	if c.planned != nil && c.planned.Objective.Name == "accuracy" {
		out = append(out, sample{"cascade, planned again", c.against.Objective.Value, max(now, c.planned.Objective.Value), "share of answers"})
	}
	return out
}

// simulate runs every gear alone at its upper edge, with the latencies of the
// plan and with those of today, on the same arrivals. Nothing where the
// latencies are the plan's.
func (c *comparison) simulate(ctx context.Context) ([]sample, error) {
	if !c.gears.slower {
		return nil, nil
	}
	var out []sample
	for i := range c.plan.Gear.Gears {
		r := &c.plan.Gear.Gears[i]
		if c.gears.list[i].loadToday > 1 {
			continue // its tail grows for ever: its load is a finding
		}
		var tail [2]time.Duration
		for k, times := range [2][][][]time.Duration{c.gears.planned, c.gears.today} {
			var err error
			if tail[k], err = tailOf(ctx, c.plan, i, times); err != nil {
				return nil, fmt.Errorf("simulating gear %d of the plan: %w", i, err)
			}
		}
		out = append(out, sample{fmt.Sprintf("cascade at %.6g rps (%s)", r.ToQPS, c.plan.Gear.Percentile), us(tail[0]), us(tail[1]), "us"})
	}
	return out, nil
}

// tailOf is the latency at the plan's percentile of one gear alone.
func tailOf(ctx context.Context, p *formats.Plan, gear int, times [][][]time.Duration) (time.Duration, error) {
	t, err := policies.Compile(p)
	if err != nil {
		return 0, err
	}
	rate := p.Gear.Gears[gear].ToQPS
	one := *policygear.Of(t)
	one.Gears, one.MaxQPS = one.Gears[gear:gear+1], rate
	t.Own = &one
	t.Models[0].RPS = rate
	at := 0
	for _, stages := range times {
		for _, list := range stages {
			t.Stages[at].Infer = list
			at++
		}
	}
	pol, err := policies.New(p.Policy, t)
	if err != nil {
		return 0, err
	}
	slo := p.Gear.SLOUS.D()
	length := time.Duration(max(8, 20*slo.Seconds(), 2000/rate) * float64(time.Second))
	src, err := arrivals.Process(nil, seeded.New(p.Seed, "check/tail"), 0, rate, length)
	if err != nil {
		return 0, err
	}
	var latency []time.Duration
	cfg := sim.Config{Tables: t, Policy: pol, Source: src, Duration: length, Completed: func(arrived, answered time.Duration) {
		if arrived >= length/4 {
			latency = append(latency, answered-arrived)
		}
	}}
	if _, err := sim.Run(ctx, cfg); err != nil {
		return 0, err
	}
	slices.Sort(latency)
	return report.Percentile(latency, t.Models[0].Percentile), nil
}
