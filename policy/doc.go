// Package policy holds the contract between run-time decisions and the two
// things that interpret them: the simulator in virtual time and the executor in
// real time. Both feed the same events to the same policy, so what was promised
// offline is what is served.
//
// A policy is a state machine without I/O. Handle takes the time, one event and
// a buffer for actions; it never sleeps, reads a clock, logs or, in steady
// state, allocates. One goroutine calls it.
//
// # Words
//
// Indexes in events and actions point into Tables. A request asks for a model:
// what has an SLO. A task is one visit of a request to a service: what has
// pipelines. A device holds networks: what has weights. A request has one task,
// in its own slot, unless the plan's kind has a Control; that one says which
// tasks follow which. An instance is a device that admits batches of one task
// continuously.
//
// # Slots
//
//	slot     chosen by        free again when
//	request  the interpreter  it ended (answered, dropped, failed) and none of its tasks is in a batch
//	task     the interpreter  no batch runs it and no task that has not ended reads it
//	batch    the policy       it left its last hop, was aborted, or came back (BatchReturned)
//
// A Drop may come while tasks of the request are in batches. The client is
// answered at once and the batches run on: the policy hears of their ends as
// ever, and nothing more about the request. The policy forgets its waiting tasks
// in the same turn, because their slots may be another's at the next event.
//
// # Order
//
// Events of one instant come in the order of their kinds, then of sequence. What
// a batch reveals is told before its BatchFinished. A Replan is carried out
// beside the loop, and its result is in the event, so a log holds everything
// that a policy was told.
//
// # Files
//
// policy.go has events and actions, control.go which tasks come next, tasks.go the ledger
// of them that both interpreters have, sides.go what a policy may offer beside Handle. tables.go has the tables that all kinds
// share, and build.go makes them from parts, compile.go from a plan, services.go
// completes them, topology.go makes them on other links. server.go says what
// networks cost on instances, and queue.go makes instances from a plan. codec.go writes and reads events and actions, codec_v1.go reads
// those of the first version. names.go names their kinds.
//
// Sub-packages hold one policy each: reserve (PPipe §5.4, Algorithms 1 and 2),
// its baseline artifact, gear, drop (PARD, EuroSys '26), workflow
// (DyOrc, SoCC '25), which predict tells what comes next, vqueue (QLM) and its
// baseline balance. fair shares what is carried among clients, before a policy hears
// of a request. flow has what policies of applications share; waiting and
// underway are what all share, policies makes tables and policy of a plan by its
// kind. Baselines that only instruments compare with stand in bench and register there.
package policy
