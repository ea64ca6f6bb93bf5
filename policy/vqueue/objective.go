package vqueue

import (
	"math"

	"inferplan/solver/stoch"
)

// certainSDs is the number of standard deviations from which on a request counts as certainly late or certainly in
// time.
const certain = 6

// lateTolerance is the lateness, in seconds, up to which a group is in time. It absorbs rounding.
const lateAfter = 1e-9

// memberQuantiles has the parts of the group's work that are done when the judged members start.
var quantile = [Quantiles]float64{1. / 8, 3. / 8, 5. / 8, 7. / 8}

// startCost returns the cost of a group that starts at a time with this mean and variance:
//
//	Size / Quantiles * sum over u of (LateWeight P(late_u > 0) + TardyWeight max(0, late_u)),
//	late_u = start + u Work + Residence - deadline_u
//
// The probability is that of a normal late_u. Its variance is taken for all members at the middle of the work.
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

// wholeGroupCost returns the cost of a group that the objective judges as a whole, by its lateness in seconds.
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

// lateness returns by how many seconds a group completes after its last deadline, at Z standard deviations beyond
// the mean. It is negative if the group is early.
func (p *Problem) lateness(g *Group, c *Cost, start, variance float64) float64 {
	late := start + c.Work + c.Residence - g.Deadline[Quantiles-1]
	if p.Z > 0 {
		late += p.Z * math.Sqrt(variance+c.Variance+c.ResidenceVar+p.common(start+c.Work))
	}
	return late
}

// commonVariance returns the variance that the error of the throughput gives to a time: (CommonSD (time - Now))^2.
func (p *Problem) common(at float64) float64 {
	spread := p.Common * (at - p.Now)
	return spread * spread
}

// linearSlack returns how many seconds later a group may start while its cost grows linearly, and the growth per
// second up to there. A variance of up to addedVariance may be added to its start meanwhile. If the cost is not
// linear at all, it returns zeros.
func (p *Problem) slack(g *Group, c *Cost, start, variance, spare float64) (slack, rate float64) {
	// The cost of a group that is judged as a whole is linear up to its deadline, and again after it.
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

	// With quantiles it is linear while each member is certainly in time, or all are certainly late.
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

// recostSlots recomputes a queue's slots from firstSlot on, and the queue's cost. Up to addedVariance may be added
// before any of them, see linearSlack.
func (p *Problem) recost(q int32, l *line, from int, spare float64) {
	// The first slot follows the previous one, or the queue's start.
	def := &p.Queues[q]
	t, v, model := def.Start, 0.0, def.Model
	if from > 0 {
		before := &l.slots[from-1]
		t, model = before.end, before.model
		v = before.variance + p.Cost(before.group, def.Kind).Variance
	}

	// Compute starts, ends and costs from front to back.
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

	// Compute from back to front the cost of the queue, and the least slack and total rate of each slot and all behind it.
	sum, slack, rate := p.End*(t-def.Start), math.Inf(1), 0.0
	for i := len(l.slots) - 1; i >= 0; i-- {
		x := &l.slots[i]
		sum += x.cost
		slack, rate = min(slack, x.own), rate+x.grows
		x.slack, x.rate = slack, rate
	}
	l.cost, l.tail, l.behind = sum, t-def.Start, false
}

// delayCost returns the increase in the cost of the slots from firstSlot on if they start `shift` seconds later,
// with more variance. It may stop once the sum reaches bound. From the slot linearFrom on, costs count as linear.
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
