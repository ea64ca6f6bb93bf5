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

// minVariance is added to the variance of a lateness, in squared seconds, so that one without variance has a probability, too.
const minVariance = 1e-9

// memberQuantiles has the parts of the group's work that are done when the judged members start.
var memberQuantiles = [Quantiles]float64{1. / 8, 3. / 8, 5. / 8, 7. / 8}

// startCost returns the cost, in units of the objective, of a group that starts at a time in seconds with this mean and variance:
//
//	Size / Quantiles * sum over u of (LateWeight P(late_u > 0) + TardyWeight max(0, late_u)),
//	late_u = start + u Work + Residence - deadline_u
//
// The quantiles u of the order of service stand for the group's members; late_u is by how many seconds such a member misses its deadline.
// The probability is that of a normal late_u. Its variance is taken for all members at the middle of the work.
func (p *Problem) startCost(group *Group, cost *Cost, start, variance float64) float64 {
	if p.LatenessRule != ByQuantiles {
		return p.groupCostByLateness(group, p.lateness(group, cost, start, variance))
	}

	// lateBy*perSD is the lateness in standard deviations, and stoch.Phi the distribution function of a standard normal. minVariance keeps
	// perSD finite.
	perSD := 1 / math.Sqrt(variance+0.5*cost.Variance+cost.ResidenceVar+p.commonVariance(start+0.5*cost.Work)+minVariance)
	answerAt := start + cost.Residence
	lateSum, tardiness := 0.0, 0.0
	for quantile := range memberQuantiles {
		lateBy := answerAt + memberQuantiles[quantile]*cost.Work - group.Deadline[quantile]
		if lateBy > 0 {
			tardiness += lateBy
		}
		lateSum += stoch.Phi(lateBy * perSD)
	}
	return group.Size / Quantiles * (p.LateWeight*lateSum + p.TardyWeight*tardiness)
}

// groupCostByLateness returns the cost of a group under the rules that count it as late as a whole, given by how many seconds its last
// member is late (negative if early). ByCompletion also rewards early ends, as the paper's sum does.
// ByMeans only counts late groups, by their requests.
func (p *Problem) groupCostByLateness(group *Group, lateBy float64) float64 {
	switch {
	case p.LatenessRule == ByCompletion && lateBy <= lateTolerance:
		return lateBy
	case p.LatenessRule == ByCompletion:
		return lateBy + p.LateWeight
	case lateBy <= lateTolerance:
		return 0
	}
	return group.Size * (p.LateWeight + p.TardyWeight*lateBy)
}

// lateness returns by how many seconds a group that starts at a time with this mean and variance completes after its last deadline, at Z
// standard deviations beyond the mean. It is negative if the group is early.
func (p *Problem) lateness(group *Group, cost *Cost, start, variance float64) float64 {
	lateBy := start + cost.Work + cost.Residence - group.Deadline[Quantiles-1]
	if p.Z > 0 {
		lateBy += p.Z * math.Sqrt(variance+cost.Variance+cost.ResidenceVar+p.commonVariance(start+cost.Work))
	}
	return lateBy
}

// commonVariance returns the variance that the error of the estimated throughput, which all work of a queue shares, gives to a time in
// seconds: (CommonSD (time - Now))^2.
func (p *Problem) commonVariance(atTime float64) float64 {
	sd := p.CommonSD * (atTime - p.Now)
	return sd * sd
}

// linearSlack returns by how many seconds a group that starts at a time with this mean and variance may start later while its cost grows
// linearly, and by how much the cost then grows per second. A variance of up to addedVariance may be added to its start meanwhile.
// If the cost is not linear at all, it returns zeros. A search uses it to add up the costs of many delayed groups without computing each.
func (p *Problem) linearSlack(group *Group, cost *Cost, start, variance, addedVariance float64) (slack, rate float64) {
	// The cost of a group that is late as a whole or not at all is linear up to its deadline, and again after it.
	// The common error grows with the time, so that a start that is a second later makes the group later by 1 + Z CommonSD seconds.
	if p.LatenessRule != ByQuantiles {
		lateBy := p.lateness(group, cost, start, variance+addedVariance)
		if p.LatenessRule == ByCompletion {
			rate = 1
		}
		if lateBy <= lateTolerance {
			return -lateBy / (1 + p.Z*p.CommonSD), rate
		}
		lateBy = p.lateness(group, cost, start, variance)
		if lateBy <= lateTolerance {
			return 0, 0
		}
		if p.LatenessRule == ByMeans {
			rate = group.Size * p.TardyWeight * (1 + p.Z*p.CommonSD)
		}
		return math.Inf(1), rate
	}

	// With quantiles it is linear while each member is certainly in time, or all are certainly late, by certainSDs standard deviations.
	margin := certainSDs * math.Sqrt(variance+addedVariance+0.5*cost.Variance+cost.ResidenceVar+p.commonVariance(start+0.5*cost.Work))
	answerAt := start + cost.Residence
	earlySlack, surelyLate := math.Inf(1), true
	for quantile := range memberQuantiles {
		lateBy := answerAt + memberQuantiles[quantile]*cost.Work - group.Deadline[quantile]
		earlySlack = min(earlySlack, -lateBy-margin)
		surelyLate = surelyLate && lateBy > margin
	}
	switch {
	case surelyLate:
		return math.Inf(1), group.Size * p.TardyWeight
	case earlySlack > 0:
		return earlySlack / (1 + certainSDs*p.CommonSD), 0
	}
	return 0, 0
}

// recomputeEntries computes starts, ends, costs and linear slacks of the entries (groups in order) of a queue from firstPosition on, and
// the cost of the whole queue. It is called after a change there.
// Insertions before an entry may add a variance of up to addedVariance, see linearSlack.
func (p *Problem) recomputeEntries(queueIndex int32, order *queueOrder, firstPosition int, addedVariance float64) {
	// The first entry follows the previous one, or the queue's start.
	queue := &p.Queues[queueIndex]
	startAt, variance, model := queue.Start, 0.0, queue.Model
	if firstPosition > 0 {
		previous := &order.entries[firstPosition-1]
		startAt, model = previous.end, previous.model
		variance = previous.variance + p.Cost(previous.group, queue.Kind).Variance
	}

	// Compute starts, ends and costs from front to back.
	for i := firstPosition; i < len(order.entries); i++ {
		entry := &order.entries[i]
		group, cost := &p.Groups[entry.group], p.Cost(entry.group, queue.Kind)
		entry.model, entry.priority = group.Model, group.Priority
		startAt += queue.changeTime(model, entry.model)
		entry.start, entry.variance, entry.end = startAt, variance, startAt+cost.Work
		entry.cost = p.startCost(group, cost, startAt, variance)
		entry.slack, entry.costRate = p.linearSlack(group, cost, startAt, variance, addedVariance)
		startAt, variance, model = entry.end, variance+cost.Variance, entry.model
	}

	// Compute from back to front the cost of the queue, and the least slack and total rate of each entry and all behind it.
	sum, slack, rate := p.EndWeight*(startAt-queue.Start), math.Inf(1), 0.0
	for i := len(order.entries) - 1; i >= 0; i-- {
		entry := &order.entries[i]
		sum += entry.cost
		slack, rate = min(slack, entry.slack), rate+entry.costRate
		entry.suffixSlack, entry.suffixRate = slack, rate
	}
	order.cost, order.duration, order.isStale = sum, startAt-queue.Start, false
}

// delayCost returns the increase in the cost of the entries of a queue (order), on a kind of device, from firstPosition on if they start
// `shift` seconds later, with more variance. It stops once the sum reaches bound, which is as much as the caller would accept, or at an
// entry from which on all costs are linear up to that shift (suffixSlack). From position linearFrom on costs count as linear in any case.
func (p *Problem) delayCost(kind int32, order *queueOrder, firstPosition, linearFrom int, shift, variance, bound float64) float64 {
	sum := 0.0
	for i := firstPosition; i < len(order.entries); i++ {
		// suffixRate is by how much the costs of this and all later entries grow per second.
		entry := &order.entries[i]
		if shift <= entry.suffixSlack || i == linearFrom {
			return sum + entry.suffixRate*shift
		}
		sum += p.startCost(&p.Groups[entry.group], p.Cost(entry.group, kind), entry.start+shift, entry.variance+variance) - entry.cost
		if sum >= bound {
			return sum
		}
	}
	return sum
}
