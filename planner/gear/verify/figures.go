package verify

import (
	"context"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
)

// Figures compares what was promised with what the gears reach today, and with the best plan of today.
func Figures(ctx context.Context, t *kind.Today) (list []kind.Sample, note string, err error) {
	c := newChecker(t)
	g := c.evaluate()
	if g == nil {
		return nil, "figures are not compared: the plan does not fit the documents", nil
	}
	list = append(c.rates(g), c.accuracies(g)...)
	tails, err := c.tails(ctx, g)
	return append(list, tails...), "", err
}

// compareRates compares the highest rate that the plan's fastest gear holds, by the load of its busiest device.
func (c *checker) rates(g *gears) []kind.Sample {
	before := formats.GearOf(c.Against)
	if before == nil || len(before.Gears) == 0 {
		return nil
	}
	last := len(c.gear.Gears) - 1
	now, promised := g.list[last].loadToday, &before.Gears[len(before.Gears)-1]
	if c.Broken || !(now > 0) || !(promised.Utilisation > 0) {
		return nil
	}
	return []kind.Sample{{Metric: "rps", What: "cascade, fastest gear", Old: promised.ToQPS / promised.Utilisation, New: c.gear.Gears[last].ToQPS / now, Unit: "rps"}}
}

// compareAccuracies compares the promised accuracy with that by today's records, and with that of a plan made
// today.
func (c *checker) accuracies(g *gears) []kind.Sample {
	if c.Against.Objective.Name != "accuracy" {
		return nil
	}
	now := 0.0
	for i := range g.list {
		now += c.gear.Gears[i].Weight * g.list[i].accuracyToday
	}
	of := func(what string, now float64) kind.Sample {
		return kind.Sample{Metric: "accuracy", What: what, Old: c.Against.Objective.Value, New: now, Unit: "share of answers"}
	}
	var out []kind.Sample
	if !c.Broken {
		out = append(out, of("cascade", now))
	}
	if c.Planned != nil && c.Planned.Objective.Name == "accuracy" {
		best, _ := c.Reachable(now)
		out = append(out, of("cascade, planned again", best))
	}
	return out
}

// WorkloadOf returns the workload that a plan was made for, with its targets as times, as far as the plan shows
// it. Models that no gear asks are missing.
func WorkloadOf(p *formats.Plan) *formats.Workload {
	w := &formats.Workload{Format: formats.FormatWorkload, Arrivals: p.Arrivals}
	g := formats.GearOf(p)
	if g == nil {
		return w
	}
	c := &formats.Cascade{SLO: formats.CascadeSLO{Percentile: g.Percentile, Accuracy: g.Accuracy, Over: g.Over}, QPS: formats.CascadeQPS{Max: g.MaxQPS}}
	if p.Objective.Name != "latency" {
		c.SLO.Latency = document.SLO{Duration: g.SLOUS.D()}
	}
	for i := range g.Models {
		c.Family = append(c.Family, g.Models[i].Model)
		c.Grid = len(g.Models[i].Thresholds) + 1
	}
	for i := range g.Gears {
		c.QPS.Histogram = append(c.QPS.Histogram, g.Gears[i].Weight)
	}
	w.Section = c
	return w
}
