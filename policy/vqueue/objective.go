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

// lastMemberLateness returns by how many seconds, in the mean, the last member of a queue's entry reaches its milestone, the
// point to which its SLO applies, after its deadline; negative if it is early. kind is that of the queue's device. The last
// member starts when the work of its group ends. Its deadline is taken to be that of the last quantile of the order of
// service.
func (p *Problem) lastMemberLateness(entry *queueEntry, kind int32) float64 {
	return entry.end + p.Cost(entry.group, kind).Residence - p.Groups[entry.group].Deadline[Quantiles-1]
}

// commonVariance returns the variance that the error of the estimated throughput, which all work of a queue shares, gives to a time in
// seconds: (CommonSD (time - Now))^2.
func (p *Problem) commonVariance(atTime float64) float64 {
	sd := p.CommonSD * (atTime - p.Now)
	return sd * sd
}

// linearSlack returns by how many seconds a group may start later while its cost grows linearly (slack), and by how much the cost then grows
// per second (rate). start and variance are the mean and variance of its start in seconds. The result holds even if up to addedVariance is
// added to that variance. If the cost is not linear, it returns zeros. A search uses it to add up the costs of many delayed groups without
// computing each.
func (p *Problem) linearSlack(group *Group, cost *Cost, start, variance, addedVariance float64) (slack, rate float64) {
	// The cost of a group that is late as a whole or not at all is linear up to its deadline, and again after it.
	// The common error grows with the time, so that a start that is a second later makes the group later by 1 + Z CommonSD seconds.
	if p.LatenessRule != ByQuantiles {
		if p.LatenessRule == ByCompletion {
			rate = 1 // its cost is the lateness itself, in seconds
		}
		if lateBy := p.lateness(group, cost, start, variance+addedVariance); lateBy <= lateTolerance {
			return -lateBy / (1 + p.Z*p.CommonSD), rate // it is in time even with the added variance, until the lateness is 0
		}
		if lateBy := p.lateness(group, cost, start, variance); lateBy <= lateTolerance {
			return 0, 0 // only the added variance would make it late, so its cost may jump
		}
		// It is late already, and stays so.
		if p.LatenessRule == ByMeans {
			rate = group.Size * p.TardyWeight * (1 + p.Z*p.CommonSD)
		}
		return math.Inf(1), rate
	}

	// With quantiles it is linear while each member is certainly in time, or all are certainly late, by certainSDs standard deviations. As in
	// startCost, the variance is taken for all members at the middle of the work. Tardiness counts by the mean, so that its rate does not
	// depend on the common error; a margin does, and grows by certainSDs CommonSD per second.
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
// the cost of the whole queue. It is called after a change there. The linear slack of an entry is how many seconds later it may start while
// its cost grows linearly, by costRate per second. It holds as long as insertions before the entry add a variance of at most addedVariance.
func (p *Problem) recomputeEntries(queueIndex int32, order *queueOrder, firstPosition int, addedVariance float64) {
	// The first entry follows the previous one, or the queue's start. An entry has the variance of its own start; behind it that of its work is
	// added.
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

	// Compute from back to front the cost of the queue, which begins with that of the time until it is empty (EndWeight), and for each entry
	// the least slack and the total rate of it and all entries behind it.
	queueCost, leastSlack, totalRate := p.EndWeight*(startAt-queue.Start), math.Inf(1), 0.0
	for i := len(order.entries) - 1; i >= 0; i-- {
		entry := &order.entries[i]
		queueCost += entry.cost
		leastSlack, totalRate = min(leastSlack, entry.slack), totalRate+entry.costRate
		entry.suffixSlack, entry.suffixRate = leastSlack, totalRate
	}
	order.cost, order.duration, order.isStale = queueCost, startAt-queue.Start, false
}

// delayCost returns the increase in the cost of the entries of a queue (order), on a kind of device, from firstPosition on if they start
// `shift` seconds later and addedVariance is added to the variance of their starts. It stops once the sum reaches bound, which is as much as
// the caller would accept, or at an entry from which on all costs grow linearly up to that shift (suffixSlack, which allows for the added
// variance of any group). From position linearFrom on costs are taken to grow linearly in any case, so that a caller can limit the time
// that this takes; the length of the queue is no limit.
func (p *Problem) delayCost(kind int32, order *queueOrder, firstPosition, linearFrom int, shift, addedVariance, bound float64) float64 {
	sum := 0.0
	for i := firstPosition; i < len(order.entries); i++ {
		// suffixRate is by how much the costs of this and all later entries grow per second.
		entry := &order.entries[i]
		if shift <= entry.suffixSlack || i == linearFrom {
			return sum + entry.suffixRate*shift
		}
		sum += p.startCost(&p.Groups[entry.group], p.Cost(entry.group, kind), entry.start+shift, entry.variance+addedVariance) - entry.cost
		if sum >= bound {
			return sum
		}
	}
	return sum
}
