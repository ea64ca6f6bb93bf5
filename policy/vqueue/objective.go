package vqueue

import (
	"math"

	"inferplan/solver/stoch"
)

// certain is the number of standard deviations from which on a request counts as
// surely late or in time.
const certain = 6

// quantile is the part of the group's work that is done when a member starts.
var quantile = [Quantiles]float64{1. / 8, 3. / 8, 5. / 8, 7. / 8}

// cost is what a group costs that starts at this mean and variance: expected late
// requests and their tardiness.
func (p *Problem) cost(g *Group, c *Cost, start, variance float64) float64 {
	if p.Means {
		late := start + c.Work + c.Residence - g.Deadline[Quantiles-1]
		if late <= lateAfter {
			return 0
		}
		return g.Size * (1 + p.Tardy*late)
	}
	spread := p.Common * (start + 0.5*c.Work - p.Now)
	perSD := 1 / math.Sqrt(variance+0.5*c.Variance+c.ResidenceVar+spread*spread+1e-9)
	t := start + c.Residence
	missed, tardy := 0.0, 0.0
	for u := range quantile {
		late := t + quantile[u]*c.Work - g.Deadline[u]
		if late > 0 {
			tardy += late
		}
		missed += stoch.Phi(late * perSD)
	}
	return g.Size / Quantiles * (missed + p.Tardy*tardy)
}

// lateAfter keeps rounding from making a group late.
const lateAfter = 1e-9

// slack is how much later the group may start before its cost is other than
// linear, and the cost's growth per second within it. spare is a variance that may
// be added before the group.
func (p *Problem) slack(g *Group, c *Cost, start, variance, spare float64) (slack, rate float64) {
	if p.Means {
		late := start + c.Work + c.Residence - g.Deadline[Quantiles-1]
		if late <= lateAfter {
			return -late, 0
		}
		return math.Inf(1), g.Size * p.Tardy
	}
	spread := p.Common * (start + 0.5*c.Work - p.Now)
	margin := certain * math.Sqrt(variance+spare+0.5*c.Variance+c.ResidenceVar+spread*spread)
	t := start + c.Residence
	early, sure := math.Inf(1), true
	for u := range quantile {
		late := t + quantile[u]*c.Work - g.Deadline[u]
		early = min(early, -late-margin)
		sure = sure && late > margin
	}
	switch {
	case sure:
		return math.Inf(1), g.Size * p.Tardy
	case early > 0:
		return early / (1 + certain*p.Common), 0
	}
	return 0, 0
}
