// Package gear serves a family of models as cascades that change with the rate
// of requests (CascadeServe, sections 3 and 5).
//
// A gear is a cascade with thresholds, a split of the load over replicas and a
// least queue length; the plan has one for every range of rates. The policy
// counts arrivals over a window and takes the gear of the rate it sees: a
// faster one at once, a slower one only after several windows in a row and
// while the queue in front of the gear is short (the paper's rule,
// qps >= alpha * queue, which as written also blocks the way to a faster gear).
//
// Every replica of a model has a queue: a device that holds it, or, where a model
// runs as a pipeline of several stages, a chain of one device per stage. A batch
// goes along its chain without stopping for a decision; a device takes what comes
// from the stage before ahead of anything new, and a chain holds at most one batch
// per stage and one between each two, so that its slowest stage sets the pace and
// the others serve what else they hold. Where a device is lost, what still needs it
// goes to other replicas. Answers are revealed behind the last stage.
//
// A free device serves the longest of its queues that are ready; a queue is ready
// when it holds as many requests as the gear asks for, or its head has waited for
// the flush time. Serving the longest instead of the oldest lets expensive models
// collect batches: this is what most of the capacity depends on. While requests are
// refused, of the queues that fill a batch the one is served whose head arrived first.
//
// A request keeps the gear under which it came: its thresholds and its split.
// The least queue length alone follows the gear in force.
//
// A request that could not be in time is refused when it comes: the work of all that
// is under way, on the busiest device, and its own way through batches of one take
// longer than it has. Under overload the gear is the fastest, queues are as long as
// the SLO allows, and what is taken is in time. Beside that nothing is dropped, except
// where the client went away or no device is left that could answer.
//
// How the pieces fit: tables.go and compile.go hold what a plan says of its
// gears, policy.go holds the state and the events, queue.go the
// queues, shed.go what is refused, chain.go what goes along the chains, shift.go the choice of the gear,
// served.go what that makes of measured rates, options.go the parameters.
package gear
