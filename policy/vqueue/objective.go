package vqueue

import (
	"math"

	"inferplan/solver/stoch"
)

// certainSDs is the number of standard deviations from which on a request counts as certainly late or certainly in
// time.
const certainSDs = 6

// lateTolerance is the lateness, in seconds, up to which a group is in time. It absorbs rounding.
const lateTolerance = 1e-9

// memberQuantiles has the parts of the group's work that are done when the judged members start.
var memberQuantiles = [Quantiles]float64{1. / 8, 3. / 8, 5. / 8, 7. / 8}

// startCost returns the cost of a group that starts at a time with this mean and variance:
//
//	Size / Quantiles * sum over u of (LateWeight P(late_u > 0) + TardyWeight max(0, late_u)),
//	late_u = start + u Work + Residence - deadline_u
//
// The probability is that of a normal late_u. Its variance is taken for all members at the middle of the work.
func (p *Problem) startCost(g *Group, c *Cost, start, variance float64) float64 {
	if p.Judge != ByQuantiles {
		return p.wholeGroupCost(g, p.lateness(g, c, start, variance))
	}
	perSD := 1 / math.Sqrt(variance+0.5*c.Variance+c.ResidenceVar+p.commonVariance(start+0.5*c.Work)+1e-9)
	answerAt := start + c.Residence
	lateSum, tardiness := 0.0, 0.0
	for u := range memberQuantiles {
		lateBy := answerAt + memberQuantiles[u]*c.Work - g.Deadline[u]
		if lateBy > 0 {
			tardiness += lateBy
		}
		lateSum += stoch.Phi(lateBy * perSD)
	}
	return g.Size / Quantiles * (p.LateWeight*lateSum + p.TardyWeight*tardiness)
}

// wholeGroupCost returns the cost of a group that the objective judges as a whole, by its lateness in seconds
// (negative if early). ByCompletion also rewards early ends, as the paper's sum does. The other rule only counts
// late groups, by their requests.
func (p *Problem) wholeGroupCost(g *Group, lateBy float64) float64 {
	switch {
	case p.Judge == ByCompletion && lateBy <= lateTolerance:
		return lateBy
	case p.Judge == ByCompletion:
		return lateBy + p.LateWeight
	case lateBy <= lateTolerance:
		return 0
	}
	return g.Size * (p.LateWeight + p.TardyWeight*lateBy)
}

// lateness returns by how many seconds a group completes after its last deadline, at Z standard deviations beyond
// the mean. It is negative if the group is early.
func (p *Problem) lateness(g *Group, c *Cost, start, variance float64) float64 {
	lateBy := start + c.Work + c.Residence - g.Deadline[Quantiles-1]
	if p.Z > 0 {
		lateBy += p.Z * math.Sqrt(variance+c.Variance+c.ResidenceVar+p.commonVariance(start+c.Work))
	}
	return lateBy
}

// commonVariance returns the variance that the error of the throughput gives to a time: (CommonSD (time - Now))^2.
func (p *Problem) commonVariance(atTime float64) float64 {
	sd := p.CommonSD * (atTime - p.Now)
	return sd * sd
}

// linearSlack returns how many seconds later a group may start while its cost grows linearly, and the growth per
// second up to there. A variance of up to addedVariance may be added to its start meanwhile. If the cost is not
// linear at all, it returns zeros.
func (p *Problem) linearSlack(g *Group, c *Cost, start, variance, addedVariance float64) (slack, rate float64) {
	// The cost of a group that is judged as a whole is linear up to its deadline, and again after it.
	if p.Judge != ByQuantiles {
		lateBy := p.lateness(g, c, start, variance+addedVariance)
		if p.Judge == ByCompletion {
			rate = 1
		}
		if lateBy <= lateTolerance {
			return -lateBy / (1 + p.Z*p.CommonSD), rate
		}
		if lateBy = p.lateness(g, c, start, variance); lateBy <= lateTolerance {
			return 0, 0
		}
		if p.Judge == ByMeans {
			rate = g.Size * p.TardyWeight * (1 + p.Z*p.CommonSD)
		}
		return math.Inf(1), rate
	}

	// With quantiles it is linear while each member is certainly in time, or all are certainly late.
	margin := certainSDs * math.Sqrt(variance+addedVariance+0.5*c.Variance+c.ResidenceVar+p.commonVariance(start+0.5*c.Work))
	answerAt := start + c.Residence
	earlySlack, surelyLate := math.Inf(1), true
	for u := range memberQuantiles {
		lateBy := answerAt + memberQuantiles[u]*c.Work - g.Deadline[u]
		earlySlack = min(earlySlack, -lateBy-margin)
		surelyLate = surelyLate && lateBy > margin
	}
	switch {
	case surelyLate:
		return math.Inf(1), g.Size * p.TardyWeight
	case earlySlack > 0:
		return earlySlack / (1 + certainSDs*p.CommonSD), 0
	}
	return 0, 0
}

// recostSlots recomputes the slots of a queue (groups in order, with starts and costs) from firstSlot on, and the
// queue's cost, after a change there. Up to addedVariance may be added before any of them, see linearSlack.
func (p *Problem) recostSlots(q int32, order *queueOrder, firstSlot int, addedVariance float64) {
	// The first slot follows the previous one, or the queue's start.
	problemQueue := &p.Queues[q]
	startAt, variance, model := problemQueue.Start, 0.0, problemQueue.Model
	if firstSlot > 0 {
		previous := &order.slots[firstSlot-1]
		startAt, model = previous.end, previous.model
		variance = previous.variance + p.Cost(previous.group, problemQueue.Kind).Variance
	}

	// Compute starts, ends and costs from front to back.
	for i := firstSlot; i < len(order.slots); i++ {
		slot := &order.slots[i]
		g, c := &p.Groups[slot.group], p.Cost(slot.group, problemQueue.Kind)
		slot.model, slot.priority = g.Model, g.Priority
		startAt += problemQueue.changeTime(model, slot.model)
		slot.start, slot.variance, slot.end = startAt, variance, startAt+c.Work
		slot.cost = p.startCost(g, c, startAt, variance)
		slot.ownSlack, slot.ownRate = p.linearSlack(g, c, startAt, variance, addedVariance)
		startAt, variance, model = slot.end, variance+c.Variance, slot.model
	}

	// Compute from back to front the cost of the queue, and the least slack and total rate of each slot and all behind it.
	sum, slack, rate := p.EndWeight*(startAt-problemQueue.Start), math.Inf(1), 0.0
	for i := len(order.slots) - 1; i >= 0; i-- {
		slot := &order.slots[i]
		sum += slot.cost
		slack, rate = min(slack, slot.ownSlack), rate+slot.ownRate
		slot.suffixSlack, slot.suffixRate = slack, rate
	}
	order.cost, order.duration, order.stale = sum, startAt-problemQueue.Start, false
}

// delayCost returns the increase in the cost of the slots from firstSlot on if they start `shift` seconds later,
// with more variance. It stops early once the sum reaches bound, or at a slot from which on all costs are linear up
// to that shift (suffixSlack). From the slot linearFrom on, costs count as linear in any case.
func (p *Problem) delayCost(kind int32, order *queueOrder, firstSlot, linearFrom int, shift, variance, bound float64) float64 {
	sum := 0.0
	for i := firstSlot; i < len(order.slots); i++ {
		slot := &order.slots[i]
		if shift <= slot.suffixSlack || i == linearFrom {
			return sum + slot.suffixRate*shift
		}
		sum += p.startCost(&p.Groups[slot.group], p.Cost(slot.group, kind), slot.start+shift, slot.variance+variance) - slot.cost
		if sum >= bound {
			return sum
		}
	}
	return sum
}
