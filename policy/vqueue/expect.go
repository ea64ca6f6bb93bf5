package vqueue

import (
	"math"
	"time"

	"inferplan/policy"
	"inferplan/solver/stoch"
)

// Expectation is the service that a request would get if it arrived now.
type Expectation struct {
	StartsAt, MilestoneAt time.Duration // expected times of its start and of its class's milestone
	Milestone             string        // the milestone in words: the answer, the first token or the start
	LateProbability       float64       // probability that it misses its deadline
	WaitingRequests       int           // number of requests that wait
	// RefusalReason says why the request should be refused: with a QueueLimit because the queue is full, with DropLate
	// because the request is more likely late than not. RetryAfter is the time after which it is worthwhile to ask
	// again; 0 if unknown.
	RefusalReason policy.DropReason
	RetryAfter    time.Duration
}

// maxLateProbability is the probability of being late above which DropLate refuses a request.
const maxLateProbability = 0.5

// Expect returns the service that a request of a served model and a client would get if it arrived now, with this many
// tokens of its prompt and this deadline for its milestone, the point to which its SLO applies. Under rules without virtual
// queues it is expected to start at once. Expect has no effect on later decisions.
func (p *Policy) Expect(now time.Duration, model, promptTokens, client int32, deadline time.Duration) Expectation {
	expectation := Expectation{StartsAt: now, MilestoneAt: now, Milestone: p.fleet.classes[model].milestone.String(), WaitingRequests: p.requests.waitingRequests()}
	if p.groups.options.Rule == VirtualQueues {
		p.placer.estimateStart(&expectation, now, model, promptTokens, client, deadline)
	}

	// Should it be refused? If the queue is full, the client may ask again once a waiting request is answered. If the request
	// is likely to be late, it may ask again after the time by which it would be late, because the deadline is then later by
	// as much. If the deadline is over already, that time counts from now.
	switch {
	case p.groups.options.QueueLimit > 0 && expectation.WaitingRequests >= p.groups.options.QueueLimit:
		expectation.RefusalReason, expectation.RetryAfter = policy.ReasonQueueFull, p.placer.timePerRequest(model)
	case p.groups.options.DropLate && expectation.LateProbability > maxLateProbability:
		expectation.RefusalReason, expectation.RetryAfter = policy.ReasonDeadline, expectation.MilestoneAt-max(deadline, now)
	}
	return expectation
}

// estimateStart estimates when a request would start at the position of the queue where it would join, and sets the times of the
// expectation and the probability that it is late. It adds up the work before that position, then corrects the start for an idle instance and
// for clients that take turns. The milestone of a request is the point to which its SLO applies.
// The request is not added: the probe group, which is in no queue, stands for it and is restored afterwards. It is called when a client asks
// what a request would get, before it sends one.
func (p *placer) estimateStart(expectation *Expectation, now time.Duration, model, promptTokens, client int32, deadline time.Duration) {
	// Save what the estimate changes, and restore it afterwards: the probe group with its costs, and the count of the positions looked at, by
	// which searches are limited.
	group, costs := p.groups.problem.Groups[p.probeGroup], make([]Cost, p.groups.problem.Kinds)
	for kind := range costs {
		costs[kind] = *p.groups.problem.Cost(p.probeGroup, int32(kind))
	}
	searchWork := p.groups.assignment.searchWork
	defer func() {
		p.groups.problem.Groups[p.probeGroup], p.groups.assignment.searchWork = group, searchWork
		for kind := range costs {
			*p.groups.problem.Cost(p.probeGroup, int32(kind)) = costs[kind]
		}
	}()

	// Find the queue and position. Mega prompts (many times longer than others) have estimators of their own.
	request := Request{Model: model, promptTokens: promptTokens, Deadline: deadline}
	p.setProbe(&request, p.fleet.isMegaPrompt(&request))
	queueIndex, position := p.cheapestProbePosition()
	if queueIndex < 0 { // no instance that is up can serve it
		expectation.LateProbability, expectation.MilestoneAt = 1, now+unplacedLateness*time.Second
		return
	}

	// Compute its start: the end of the group before it, and a change of network. Its variance is that of all the work before it: an entry has
	// the variance of its own start, to which that of its work is added.
	queue, entries := &p.groups.problem.Queues[queueIndex], p.groups.assignment.queues[queueIndex].entries
	startAt, variance, lastModel := max(queue.Start, toSeconds(now)), 0.0, queue.Model
	if position > 0 {
		previous := &entries[position-1]
		startAt, lastModel = max(previous.end, toSeconds(now)), previous.model
		variance = previous.variance + p.groups.problem.Cost(previous.group, queue.Kind).Variance
	}
	cost, probe := p.groups.problem.Cost(p.probeGroup, queue.Kind), &p.groups.problem.Groups[p.probeGroup]

	// At the front of an idle instance that holds the network it starts at once, whatever the queue's start says.
	if instance := &p.fleet.instances[queueIndex]; position == 0 && instance.LoadedNetwork == probe.Model && len(instance.RunningBatches) == 0 {
		startAt = toSeconds(now)
	}
	startAt += queue.changeTime(lastModel, probe.Model)

	// If clients take turns, fewer requests of its class are ahead of it than by the order of arrival. Then it starts no later than behind
	// the work of these.
	if aheadByTurns, aheadByArrival := p.requests.turns.countAhead(model, client); aheadByTurns < aheadByArrival {
		startAt = min(startAt, max(queue.Start, toSeconds(now))+queue.changeTime(queue.Model, probe.Model)+float64(aheadByTurns)*cost.Work)
	}

	// Compute the time of its milestone and the probability to reach that late. The time is normal, with the variances of the work ahead, of the
	// time from its start to the milestone, and of the error of the throughput, which all work shares (commonVariance). minVariance keeps the
	// standard deviation above 0.
	expectation.StartsAt, expectation.MilestoneAt = fromSeconds(startAt), fromSeconds(startAt+cost.Residence)
	sd := math.Sqrt(variance + cost.ResidenceVar + p.groups.problem.commonVariance(startAt) + minVariance)
	expectation.LateProbability = stoch.Phi((startAt + cost.Residence - toSeconds(deadline)) / sd)
}

// timePerRequest returns the mean time between two answers of a model if all instances that are up serve it together.
// A refused request may be sent again after it. If no instance serves the model, it returns 0.
func (p *placer) timePerRequest(model int32) time.Duration {
	rate := 0.0 // requests per second
	for i := range p.fleet.instances {
		instance := &p.fleet.instances[i]
		if estimator := p.fleet.EstimatorOn(instance, model, false); instance.IsUp() && estimator.Batch > 0 {
			workEach, _ := estimator.Work(1)
			rate += 1 / workEach
		}
	}
	if rate == 0 {
		return 0
	}
	return fromSeconds(1 / rate)
}
