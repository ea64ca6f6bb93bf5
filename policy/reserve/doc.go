// Package reserve is PPipe's run-time policy: resource reservation-based adaptive batching (PPipe §5.4, appendix
// A.3, Algorithms 1 and 2).
//
// For the head of a model's queue it picks the pipeline that waits least at its planned batch size, then the
// largest batch that meets the head's deadline. It then dispatches the batch, waits, or drops the head. A
// dispatched batch reserves its whole path: devices, and both ends of every transfer.
//
// Words:
//
//   - Head: the first request of a model's queue, which has the earliest deadline.
//   - Resource: a device or one direction of a node's links. Devices have the first numbers.
//   - Slot: the number of a batch, which is used again. Hop: one of its stages on a device, with the transfer into it.
//   - Reservation: the use of a resource by one batch at one hop, with the time at which its work is ready. A hop has
//     three parts: on its device, and on both ends of the transfer. An index is that of a reservation.
//   - Path: a device for each stage of a pipeline, with the reservations that a batch needs.
//   - Required delay: how much later a batch has to be dispatched so that it delays no other work.
//   - Guard: a part of every deadline in reserve against jitter and overheads.
//   - First look: the first decision about a head. Verdict: what such a decision says is to be done.
//   - Fuller batch: a batch of one request more than wait.
//   - Colocated models: models that have stages on the same device.
//   - To settle: to update the start of a reservation to the work that precedes it.
//   - To move a reservation, or to push it: to give it a later start.
//
// Files, in the order in which to read them: policy.go has the options, the state and the events. decide.go is
// Algorithm 1 with its wait rule; package waiting holds each model's requests in deadline order. probe.go finds
// the path that finishes first (Algorithm 2). reservations.go holds the reservations of every device and link.
// timeline.go keeps them true as actual times come in, and rebuild.go repairs orders that contradict each other.
// push.go reserves paths that move other reservations. yield.go lets a more urgent model go first. faults.go
// handles lost devices, and realclock.go has the guards for real devices.
//
// # Truthful gaps
//
// The simulator and the executor run work first-in first-out on every device and link, and never hold it back for
// a reserved start. A reservation therefore comes true only if it stands where first-in first-out puts it. New
// work fills a gap in a timeline if it is ready before the work behind the gap, and ends before that work is
// ready. It may not skip a gap that is too small, because it would then run first and delay the other work. On a
// device the batch is then held back in the queue until the other work has its place (reservedPath.requiredDelay), and
// other devices are preferred if they finish earlier.
//
// # Pushes
//
// A batch that is held back leaves its first device idle. On links, which models share, that costs more than it
// saves. So a transfer may go in front of others and push them, if every batch that moves still ends in time and
// comes to its resources in the same order. If one does not, the batch is held back there as well.
//
// A device whose uplink is reserved for later is as good as another, as long as the transfer ends before that.
//
// With exact service times every reservation holds to the nanosecond from its last push on, and no dispatched
// batch is late.
package reserve
