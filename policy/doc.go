// Package policy holds the contract between run-time decisions and the two interpreters that carry them out: the
// simulator in virtual time and the executor in real time. Both feed the same events to the same policy, so that a
// plan is served as it was promised.
//
// A policy is a state machine without I/O. Handle takes the time, one event and a buffer for actions. It never
// sleeps, reads a clock, logs or, in steady state, allocates. One goroutine calls it.
//
// # Words
//
// Indexes in events and actions point into Tables.
//
//   - Interpreter: the simulator or the executor.
//   - Request: it asks for a model, which has an SLO. Task: one visit of a request to a service, which has pipelines.
//   - Network: weights that a device holds. Instance: a device that admits batches of one task continuously.
//   - Slot: the index of a request, task or batch while it is in use.
//   - Control: the state machine that says which tasks follow which. Without one, a request has one task, in its own slot.
//   - Reveal: to make a task known to the policy. Hop: a stage of a pipeline in the path of a batch.
//   - Wake: a Timer event that the policy has asked for. Extension: an interface that a policy may implement beside Handle.
//
// # Slots
//
//	slot     chosen by        free again when
//	request  the interpreter  it has ended (answered, dropped, failed) and none of its tasks is in a batch
//	task     the interpreter  no batch runs it and no task that has not ended reads it
//	batch    the policy       it has left its last hop, was aborted, or came back (BatchReturned)
//
// A Drop may come while tasks of the request are in batches. The client is answered at once and the batches run
// on: the policy still gets the events of these batches, but no others of the request. In the same turn the policy
// forgets the request's waiting tasks, because their slots may be used for others at the next event.
//
// # Order
//
// Events of one instant come in the order of their kinds, then of their sequence. What a batch reveals comes
// before its BatchFinished. A Replan runs beside the loop, and its result is part of an event, so that a log has
// everything that a policy was told.
//
// # Files
//
// In the order in which to read them: policy.go has events and actions, tables.go the tables that all kinds of
// plans share. compile.go makes tables from a plan, with build.go, which makes them from parts, services.go, which
// completes them, and topology.go, which makes them on other links. server.go has the costs of networks on
// instances, and queue.go makes instances from a plan. control.go says which tasks come next, and tasks.go is the
// ledger of tasks that both interpreters use. extensions.go has the extensions. codec.go writes and reads events and
// actions, codec_v1.go reads those of version 1 of event logs, and names.go has the names of their kinds.
//
// Sub-packages hold one policy each: reserve (PPipe §5.4, Algorithms 1 and 2), its baseline artifact, gear
// (CascadeServe), drop (PARD, EuroSys '26), workflow (DyOrc, SoCC '25), which uses the forecasts of predict,
// vqueue (QLM) and its baseline balance. fair divides the capacity among clients, before a policy sees a request.
// flow has what policies of applications share; waiting and underway are shared by all policies. policies chooses
// tables and policy by the kind of a plan. Baselines with which only instruments compare are in bench and register
// there.
package policy
