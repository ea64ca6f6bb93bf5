// Package vqueue holds QLM's virtual queues ("One Queue Is All You Need", sections 4 to 7) as a policy. It
// estimates when requests to language models will be answered, and searches for the order of service with the
// fewest expected violations of deadlines. It is pure: times are arguments, random numbers come from the caller's
// generator, and work is counted in positions looked at.
//
// Words:
//
//   - Request group: waiting requests of one served model, which are similar in length.
//   - Virtual queue: the order in which one instance serves request groups.
//   - Served model: a model with one SLO class. Network: the weights that an instance loads; classes share them.
//   - Head: the first group of a queue. The instance serves it next.
//   - Open group: a group that still takes members. Mega prompt: a request many times longer than its model's median.
//   - Unplaced: a group that is in no queue, or a request that no instance which is up can serve.
//   - Index: groups are named by their index in Problem.Groups, queues by that of their instance (queueIndex).
//   - Entry: a group in a queue, with its start and cost. Position: the index of an entry in its queue.
//   - Request number, batch number: the names that events and actions use. A batch of this policy is one request.
//   - Milestone: the point of a request to which its SLO applies (its start, its first token or its answer).
//   - Residence: the time from a request's start to its answer. Lead time: the same, to its milestone.
//   - Estimator (RCT): the times of requests of a model on a kind of device (request completion time).
//   - Pull: to add a waiting request to the running batch. Cap: the most requests of a class on an instance.
//   - Stale queue: a queue whose starts and costs have not been computed since it changed.
//   - Linear slack: how much later a group may start while its cost grows linearly.
//   - LSO: an LLM serving operation of the paper's section 5. Tick: the periodic update of all queues.
//   - Search work: the number of positions of queues that a search has looked at.
//
// Files, in the order in which to read them:
//
//	problem.go       Problem: groups, their costs by device kind, queues, objective
//	objective.go     startCost: the cost of a group that starts at a given time
//	assignment.go    Assignment: groups in queues, in order, with their costs, changed and copied in place
//	stale.go         long queues whose order does not depend on costs
//	greedy.go        cheapest insertion by deadline; queues by deadline
//	search.go        large-neighbourhood search with simulated annealing
//	removal.go       the groups that a step of the search removes
//	exchange.go      pieces of queues that are swapped or moved
//	cluster.go       request groups from requests: k-means++, split by size (Algorithm 1)
//	rct.go           RCT: the estimator of completion times (equations 1 to 5), corrected
//	lastanswer.go    when the last request of a group is answered
//	follower.go      Follower: the estimator recalibrated while requests finish
//	forecast.go      WaitQuantile: a quantile of waits that adapts
//	tables.go        Tables and Options
//	queueplan.go     Tables compiled from a plan of queues
//	options.go       policies by name, parameters
//	class.go         when a request is due
//	lso.go           the serving operations
//	requests.go      the open requests and their batches
//	turns.go         clients that take turns in a class
//	fleet.go         instances: running batches, KV memory, caps of classes
//	groups.go        groups: members, costs, open groups
//	sessions.go      where the memory of an instance holds the context of a session
//	place.go         the queue and position that a request joins
//	serve.go         which group an instance serves next; pulling, changes of network
//	evict.go         eviction
//	pause.go         pauses of pulling
//	calibrator.go    calibrator: the policy's estimators, which follow its instances
//	ticks.go         the times of ticks
//	replan.go        replanner: the search that runs beside the loop, and its result
//	policy.go        Policy: the events, lost instances, and when requests are dropped
//	expect.go        Expect: the start and answer to expect for a new request
//	observations.go  Observations: figures of served models for reports
//	view.go          QueueViews: the queues as reports show them
//	control.go       InstanceControl: the interface to baselines (bench/qlm/rules)
//
// # Objective
//
// The paper minimises the sum of completion times less SLOs (equation 13). This ignores the sizes of groups: it
// differs from the sum of completion times by a constant only. Here the objective counts requests:
//
//	sum over groups of size * mean over quantiles u of P(start + u work + residence > deadline_u)
//	+ TardyWeight * sum of size * tardiness + EndWeight * sum of the queues' ends
//
// The probability is that of a normal completion time. It replaces the chance constraint (equation 12): it is
// never infeasible, and a group that is late in any case moves to the end. The members of a group count by
// quantiles of their order of service, not by the group's maximum (equation 5). The maximum overpredicts, because
// the last members of a batch decode faster.
//
// # Policy
//
// The order of a queue determines what its instance does next. The instance pulls requests of the head group into
// the running batch while memory is free. If the head needs another network, the instance first lets the batch run
// out. It evicts the batch only if that brings clearly more requests in time than it makes late. The batch counts
// like the head in this comparison: without that rule two groups would evict each other for ever. A head of the
// loaded network that is urgent replaces the request with the latest deadline. An evicted request waits again in
// the queue of the same instance, because its state is there. A started request never migrates.
//
// If several queues of one network wait, an instance takes the head with the earliest deadline among them, so that
// a request does not wait for its own instance while another instance serves less urgent ones.
//
// A request joins where the objective grows least. At every tick (each second, less often while no instance does
// anything) the problem is updated to the time and a search starts beside the loop. Its result names groups with
// the generation of their index. If groups are gone when the result arrives, they are skipped, and new groups keep
// their place at the end.
//
// With FollowInstances the estimators follow the instances: the work that a saturated instance completes shows its
// throughput, and answers show their lengths.
//
// # What classes ask for
//
// An SLO applies to the whole answer, the first token, or the time per token. The first two set a time for a
// milestone of the request, and the problem counts from its start to that milestone alone. An SLO on waiting
// applies to the start itself, and counts if it asks for the earlier start. The time per token is kept by a limit
// on the requests that run at once. Priorities are strict in every queue: the search orders only groups of equal
// priority (appendix A.3).
//
// A cap bounds how many requests of a class run at once on an instance. Groups behind a capped group in the queue
// pass it. A cap of 0 keeps the class away from the instance, so that caps can split the instances among classes.
//
// # Where deadlines cannot be met
//
// By default requests are late in the order that costs least. Options instead drop requests that are late before
// they start, drop arrivals while too many requests wait, or order queues by deadline (appendix A.3).
//
// # How the search is fast
//
// Every entry of a queue stores the mean and variance of its start. An insertion looks at the group's own cost at
// each position, and at the increase in the cost of the groups behind it. Entries store their linear slack, and the
// least of it over all later entries, so most insertions stop at once. The others stop when they cost more than the
// best position so far.
package vqueue
