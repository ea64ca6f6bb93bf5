// Package reserve is PPipe's run-time policy: resource reservation-based
// adaptive batching (PPipe §5.4, appendix A.3, Algorithms 1 and 2).
//
// For the head of a model's queue it picks the pipeline that waits least at its
// planned batch size, then the largest batch whose completion meets the head's
// deadline, and drops, waits or dispatches. A dispatched batch reserves its
// whole path: devices, and both ends of every transfer.
//
// How the pieces fit: package waiting holds each model's requests in deadline
// order. lanes.go holds what is reserved on every device and link, timeline.go keeps
// it true as actual times come in, and rebuild.go does where orders contradict each
// other. probe.go finds the path of least completion (Algorithm 2), push.go says what it
// may move, decide.go is Algorithm 1 with its wait rule, faults.go takes devices away and back, and policy.go
// is the entry and the options.
//
// # Truthful gaps
//
// The two interpreters of this project run work first-in first-out on every
// device and link and never hold it back for a reserved start. A reservation
// that is to come true must therefore stand where first-in first-out will put
// it. A gap in a timeline is filled when the new work, ready before the work
// behind the gap, ends before that work is ready; a gap that is too small may
// not be skipped, for the new work would then run first and push the other.
// On a device the batch is then held back in the queue until the other work has its
// place (path.hold), and other devices are preferred where they finish earlier.
//
// # Pushes
//
// Held back, a batch leaves its first device idle. On links, which models share, that
// costs more than it saves. So a transfer may go in front of others and push them, if
// every batch that moves still ends in time and comes to its resources in the same
// order. Where one does not, the batch is held back there as well.
//
// A device whose uplink is reserved for later is as good as another, as long as the
// transfer is over by then.
//
// With exact service times every reservation holds to the nanosecond from its last push
// on, and no dispatched batch is late.
package reserve
