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
// Every (device, model) has a queue. A free device serves the longest of its
// queues that are ready; a queue is ready when it holds as many requests as the
// gear asks for, or its head has waited for the flush time. Serving the longest
// instead of the oldest lets expensive models collect batches: this is what
// most of the capacity depends on.
//
// A request keeps the gear under which it came: its thresholds and its split.
// The least queue length alone follows the gear in force. Nothing is dropped,
// except where the client went away or no device is left that could answer.
//
// How the pieces fit: policy.go holds the state and the events, queue.go the
// queues and dispatch, shift.go the choice of the gear, options.go the
// parameters.
package gear
