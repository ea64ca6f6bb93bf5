// Package gear serves a family of models as cascades that change with the rate of requests (CascadeServe, sections
// 3 and 5). It is the policy of gear plans.
//
// Words:
//
//   - Gear: a cascade with its thresholds, a split of the load over replicas, and a minimal queue length, for one range
//     of rates. The gear in force is the one that new requests get.
//   - Gear stage: one model of a gear's cascade. Level: the number of thresholds that the certainty of an answer
//     reaches.
//   - Replica: an instance of a model. Chain: the devices of a replica, one for each stage of its pipeline.
//   - Hop: a stage of a pipeline that a batch has reached on its chain. Slot: the number of a batch or a request, which
//     is used again.
//   - Window: the time over which arrivals are counted. Flush time: the longest wait for a longer queue.
//   - To refuse: to drop a request at its arrival because it could not be in time.
//   - Work row: the work, in seconds on every device, that a request at one point of a gear is expected to cause from there on.
//
// Files, in the order in which to read them: tables.go has the tables of a gear plan, compile.go makes them,
// options.go has the parameters. policy.go holds the state and the events, queue.go the queues, chain.go the batches
// on their chains. refusal.go decides what is refused, switchrule.go chooses the gear, replay.go replays measured
// rates through that choice.
//
// The policy counts arrivals over a window and takes the gear of that rate: a faster one at once, a slower one
// only after several windows in a row, and while the queue in front of the gear is short. (The paper's rule is qps
// >= alpha * queue. As written it also blocks the way to a faster gear.)
//
// Every replica of a model has a queue. A replica is one device or, if the model's pipeline has several stages, a
// chain of one device per stage. A batch goes along its chain without further decisions: a device takes what comes
// from the stage before ahead of anything new. A chain holds at most one batch per stage and one between each two,
// so that its slowest stage sets the pace and the other devices serve what else they hold. If a device is lost,
// the batches and requests that still need it go to other replicas. Answers are revealed behind the last stage.
//
// An idle device serves the longest of its ready queues. A queue is ready if it holds as many requests as the gear
// asks for, or if its head has waited for the flush time. Serving the longest queue instead of the oldest lets
// expensive models collect batches, on which most of the capacity depends. While requests are refused, queues that
// fill a batch are served in the order in which their heads arrived.
//
// A request keeps the gear under which it came: its thresholds and its split. Only the minimal queue length
// follows the gear in force.
//
// A request is refused at its arrival if the work of all open requests on the busiest device, and its own way
// through batches of one, take longer than its deadline allows. Under overload the gear is then the fastest,
// queues are as long as the SLO allows, and what is accepted is in time. Otherwise requests are dropped only if
// the client went away or no device is left that could answer.
package gear
