// Package vqueue decides which request group of language models is served where
// and when: QLM's virtual queues ("One Queue Is All You Need", sections 4 to 7).
//
// A virtual queue is the order in which one instance serves request groups. The
// package estimates when requests of a group will be answered, and searches for
// the assignment and order with the fewest expected violations. It is pure: times
// are arguments, random numbers come from the caller's generator, and work is
// counted in positions looked at.
//
//	problem.go    Problem: groups, their costs by device kind, queues, objective
//	objective.go  what a group costs that starts at a given time
//	state.go      State: an order with its costs, changed and copied in place
//	greedy.go     cheapest insertion by deadline; earliest deadline first
//	search.go     large-neighbourhood search with simulated annealing
//	choose.go     which groups a step of it takes out
//	exchange.go   pieces of queues that change places
//	cluster.go    requests into groups: k-means++, split by size (Algorithm 1)
//	rct.go        the estimator of completion times (equations 1 to 5), corrected
//	ended.go      when groups have ended
//	follow.go     the estimator recalibrated while requests finish
//	following.go  the policy's estimators, which follow its instances
//	forecast.go   a quantile of waits that adapts
//	loose.go      long queues whose order does not depend on costs
//	tables.go     what the policy knows and how it is steered: rules, options
//	queueplan.go  the tables compiled from a plan of queues
//	options.go    policies by name, parameters
//	policy.go     Policy: events; requests that come, end, come back, or find no instance
//	book.go       the requests that the policy has, and their batches
//	class.go      when a request is due: SLOs by figure, SLOs on waiting, priorities
//	fleet.go      instances: what runs, what fits, caps of classes
//	lso.go        the operations, a type each
//	groups.go     groups: members, costs, which are open
//	place.go      where requests join
//	serve.go      pulling, changes of model
//	turns.go      clients that take turns in a class
//	evict.go      eviction
//	admit.go      pulling that makes more late than it wins, held back
//	ticks.go      when all queues are looked after
//	replan.go     the problem at an instant, the search beside the loop, its result
//	expect.go     what a request that came now would meet
//	view.go       the queues as people see them
//	servers.go    what baselines see and do (bench/qlm/rules)
//
// # Objective
//
// The paper minimises the sum of completion times less SLOs (equation 13), which
// is blind to the sizes of groups: it is a constant away from the sum of completion
// times. Here the objective counts requests:
//
//	sum over groups of size * mean over quantiles u of P(start + u work + residence > deadline_u)
//	+ Tardy * sum of size * tardiness + End * sum of the queues' ends
//
// The probability is that of a normal completion time. It takes the place of the
// chance constraint (equation 12): it is never infeasible, and a group that is
// late in any case goes to the end. The members of a group count by quantiles of
// their order of service, not by the group's maximum (equation 5), which
// overpredicts: the last members of a batch decode faster.
//
// # Policy
//
// The order of a queue says what its instance does next. Requests of the head group
// are pulled into the running batch while there is room. If the head wants another
// model, the batch runs out first, or leaves where that brings clearly more requests
// in time than it makes late: the batch counts as the head. Without that rule two
// groups evict each other for ever. A head of the loaded model that hurries takes
// the place of the request with the latest deadline. What is evicted waits again
// in its own queue, because its state is there. A started request never migrates.
//
// Where queues of one model wait, an instance takes the head that is due first among
// them: a request does not wait for its own instance while another serves what
// hurries less.
//
// A request joins where the objective grows least. Every second, and more rarely while
// no instance does anything, the problem is brought up to the time and a search begins
// beside the loop. Its result names groups with the generation of their index, so a result that comes late passes over
// what is gone, and what is new keeps its place at the end.
//
// Estimators may follow the instances: while an instance has more to do than it can
// take, what it gets done tells of its throughput, and answers tell of their lengths.
//
// # What classes ask for
//
// An SLO is of the whole answer, of its first token, or of the time per token. The
// first two say by when a request has to be at a point of its way, and the problem
// counts from its start to that point alone. An SLO on waiting is about the start
// itself, and counts where it asks for the earlier one. The time per token is kept by
// how many run at once: no more than its share of requests bears. Priorities are
// strict in every queue: the search orders only what is equal (appendix A.3).
//
// A cap bounds how many of a class run at once on an instance. What is behind it in the
// queue passes it. A cap of 0 keeps the class away, so that caps split a fleet.
//
// # Where deadlines cannot be met
//
// Requests are late in the order that costs least. Instead, options drop what is
// late before it starts or what comes while too many wait, or order queues by
// deadline (appendix A.3).
//
// # How the search is fast
//
// A queue's slots hold the mean and variance of their start. An insertion looks at
// the group's own cost at each place, and at what the groups behind it cost more.
// Slots know how much later they and all behind them may start before their cost
// is other than linear, so most insertions stop at once. The others stop when they
// cost more than the best place so far.
package vqueue
