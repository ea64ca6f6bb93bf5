package verify

import (
	"context"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
)

// Figures compares what was promised with what the gears reach today, and with the best plan of today.
func Figures(ctx context.Context, t *kind.CheckInput) (list []kind.FigurePair, note string, err error) {
	c := newChecker(t)
	g := c.evaluateGears()
	if g == nil {
		return nil, "figures are not compared: the plan does not fit the documents", nil
	}
	list = append(c.compareRates(g), c.compareAccuracies(g)...)
	tails, err := c.compareTails(ctx, g)
	return append(list, tails...), "", err
}

// compareRates returns the highest rate that the plan's fastest gear holds, promised and today: the rate at
// which its busiest device has no time left. If a constraint is broken anyway, it returns nothing.
func (c *gearChecker) compareRates(g *gearsToday) []kind.FigurePair {
	promisedPlan := formats.GearOf(c.Promised)
	if promisedPlan == nil || len(promisedPlan.Gears) == 0 {
		return nil
	}
	last := len(c.gear.Gears) - 1
	loadToday, promised := g.gears[last].loadToday, &promisedPlan.Gears[len(promisedPlan.Gears)-1]
	if c.BreaksConstraint || !(loadToday > 0) || !(promised.Utilisation > 0) {
		return nil
	}
	return []kind.FigurePair{{Metric: "rps", Subject: "cascade, fastest gear", Old: promised.ToQPS / promised.Utilisation, New: c.gear.Gears[last].ToQPS / loadToday, Unit: "rps"}}
}

// compareAccuracies compares the promised accuracy with that by today's records, and with that of a plan made
// today.
func (c *gearChecker) compareAccuracies(g *gearsToday) []kind.FigurePair {
	if c.Promised.Objective.Name != "accuracy" {
		return nil
	}
	accuracyToday := 0.0
	for i := range g.gears {
		accuracyToday += c.gear.Gears[i].Weight * g.gears[i].accuracyToday
	}
	sampleOf := func(what string, accuracyToday float64) kind.FigurePair {
		return kind.FigurePair{Metric: "accuracy", Subject: what, Old: c.Promised.Objective.Value, New: accuracyToday, Unit: "share of answers"}
	}
	var samples []kind.FigurePair
	if !c.BreaksConstraint {
		samples = append(samples, sampleOf("cascade", accuracyToday))
	}
	if c.BestPlan != nil && c.BestPlan.Objective.Name == "accuracy" {
		best, _ := c.Reachable(accuracyToday)
		samples = append(samples, sampleOf("cascade, planned again", best))
	}
	return samples
}

// WorkloadOf returns the workload that a plan was made for, with its targets as times, as far as the plan shows
// it. Models that no gear asks are missing.
func WorkloadOf(p *formats.Plan) *formats.Workload {
	w := &formats.Workload{Format: formats.FormatWorkload, Arrivals: p.Arrivals}
	g := formats.GearOf(p)
	if g == nil {
		return w
	}
	c := &formats.Cascade{SLO: formats.CascadeSLO{Percentile: g.Percentile, Accuracy: g.Accuracy, Scope: g.SLOScope}, QPS: formats.CascadeQPS{Max: g.MaxQPS}}
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
