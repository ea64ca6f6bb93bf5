package vqueue

import (
	"math"

	"inferplan/solver/stoch"
)

// certain is the number of standard deviations from which on a request counts as
// surely late or in time.
const certain = 6

// lateAfter keeps rounding from making a group late, in seconds.
const lateAfter = 1e-9

// quantile is the part of the group's work that is done when a member starts.
var quantile = [Quantiles]float64{1. / 8, 3. / 8, 5. / 8, 7. / 8}

// cost is what a group costs that starts at this mean and variance.
func (p *Problem) cost(g *Group, c *Cost, start, variance float64) float64 {
	if p.Judge != ByQuantiles {
		return p.costWhole(g, p.lateness(g, c, start, variance))
	}
	perSD := 1 / math.Sqrt(variance+0.5*c.Variance+c.ResidenceVar+p.common(start+0.5*c.Work)+1e-9)
	t := start + c.Residence
	missed, tardy := 0.0, 0.0
	for u := range quantile {
		late := t + quantile[u]*c.Work - g.Deadline[u]
		if late > 0 {
			tardy += late
		}
		missed += stoch.Phi(late * perSD)
	}
	return g.Size / Quantiles * (p.Late*missed + p.Tardy*tardy)
}

// costWhole is what a group costs that is late as a whole, or not.
func (p *Problem) costWhole(g *Group, late float64) float64 {
	switch {
	case p.Judge == ByCompletion && late <= lateAfter:
		return late
	case p.Judge == ByCompletion:
		return late + p.Late
	case late <= lateAfter:
		return 0
	}
	return g.Size * (p.Late + p.Tardy*late)
}

// lateness is how long after its last deadline a group ends, at its mean and Z
// standard deviations.
func (p *Problem) lateness(g *Group, c *Cost, start, variance float64) float64 {
	late := start + c.Work + c.Residence - g.Deadline[Quantiles-1]
	if p.Z > 0 {
		late += p.Z * math.Sqrt(variance+c.Variance+c.ResidenceVar+p.common(start+c.Work))
	}
	return late
}

// common is the variance of the common factor at a time.
func (p *Problem) common(at float64) float64 {
	spread := p.Common * (at - p.Now)
	return spread * spread
}

// slack is how much later the group may start before its cost is other than
// linear, and the cost's growth per second within it. spare is a variance that may
// be added before the group.
func (p *Problem) slack(g *Group, c *Cost, start, variance, spare float64) (slack, rate float64) {
	if p.Judge != ByQuantiles {
		late := p.lateness(g, c, start, variance+spare)
		if p.Judge == ByCompletion {
			rate = 1
		}
		if late <= lateAfter {
			return -late / (1 + p.Z*p.Common), rate
		}
		if late = p.lateness(g, c, start, variance); late <= lateAfter {
			return 0, 0
		}
		if p.Judge == ByMeans {
			rate = g.Size * p.Tardy * (1 + p.Z*p.Common)
		}
		return math.Inf(1), rate
	}
	margin := certain * math.Sqrt(variance+spare+0.5*c.Variance+c.ResidenceVar+p.common(start+0.5*c.Work))
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

// recost computes a queue's slots from a place on. spare is a variance that may be
// added before any of them.
func (p *Problem) recost(q int32, l *line, from int, spare float64) {
	def := &p.Queues[q]
	t, v, model := def.Start, 0.0, def.Model
	if from > 0 {
		before := &l.slots[from-1]
		t, model = before.end, before.model
		v = before.variance + p.Cost(before.group, def.Kind).Variance
	}
	for i := from; i < len(l.slots); i++ {
		x := &l.slots[i]
		g, c := &p.Groups[x.group], p.Cost(x.group, def.Kind)
		x.model, x.priority = g.Model, g.Priority
		t += def.change(model, x.model)
		x.start, x.variance, x.end = t, v, t+c.Work
		x.cost = p.cost(g, c, t, v)
		x.own, x.grows = p.slack(g, c, t, v, spare)
		t, v, model = x.end, v+c.Variance, x.model
	}
	sum, slack, rate := p.End*(t-def.Start), math.Inf(1), 0.0
	for i := len(l.slots) - 1; i >= 0; i-- {
		x := &l.slots[i]
		sum += x.cost
		slack, rate = min(slack, x.own), rate+x.grows
		x.slack, x.rate = slack, rate
	}
	l.cost, l.tail, l.behind = sum, t-def.Start, false
}

// pushed is what the slots from a place on cost more when they start later. It may
// stop once that is no less than bound. The slots from until on count as if the shift left their costs linear.
func (p *Problem) pushed(kind int32, l *line, from, until int, shift, variance, bound float64) float64 {
	sum := 0.0
	for i := from; i < len(l.slots); i++ {
		x := &l.slots[i]
		if shift <= x.slack || i == until {
			return sum + x.rate*shift
		}
		sum += p.cost(&p.Groups[x.group], p.Cost(x.group, kind), x.start+shift, x.variance+variance) - x.cost
		if sum >= bound {
			return sum
		}
	}
	return sum
}
