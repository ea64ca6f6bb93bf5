package verify

import (
	"context"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
)

// Figures returns pairs of the figures that were promised and those that the gears (cascades of ranges of rates) reach
// today, or the best plan of today: highest rate, accuracy and tail latency. If the plan does not fit the documents,
// there are none, and the note says so.
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

// compareRates returns the highest rate (requests per second) that the gear of the highest range holds, promised and
// today: the rate at which its busiest device has no time left. If a constraint is broken today, or a load is not
// known, it returns nothing.
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

// compareAccuracies returns up to two pairs of figures. Both have the promised accuracy. Beside it the first has the
// accuracy that the plan reaches by today's records, unless the plan breaks a constraint. The second has the best that
// today's documents allow, if there is a plan made today: the accuracy of that plan, or of the present one if it is
// more accurate. If accuracy is not the objective, it returns nothing.
func (c *gearChecker) compareAccuracies(g *gearsToday) []kind.FigurePair {
	if c.Promised.Objective.Name != "accuracy" {
		return nil
	}
	accuracyToday := 0.0
	for i := range g.gears {
		accuracyToday += c.gear.Gears[i].Weight * g.gears[i].accuracyToday
	}
	pairOf := func(subject string, accuracy float64) kind.FigurePair {
		return kind.FigurePair{Metric: "accuracy", Subject: subject, Old: c.Promised.Objective.Value, New: accuracy, Unit: "share of answers"}
	}
	var pairs []kind.FigurePair
	if !c.BreaksConstraint {
		pairs = append(pairs, pairOf("cascade", accuracyToday))
	}
	if c.BestPlan != nil && c.BestPlan.Objective.Name == "accuracy" {
		best, _ := c.Reachable(accuracyToday) // with a plan made today there always is one
		pairs = append(pairs, pairOf("cascade (today: of the best plan)", best))
	}
	return pairs
}

// WorkloadOf returns the workload that a gear plan was made for, as far as the plan shows it, so that a check without a
// workload can plan again. SLOs are times and not multiples of a model's latency, and the weights of ranges are a
// histogram. Models that no gear asks are missing.
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
