// Command promise holds what the simulator says of a plan of queues against what is seen
// when the plan is served by a real llama-server with one slot and two models.
//
// The server is profiled, the plan is made of the profile, and a trace is both simulated
// (plan simulate) and served (plan serve, plan load). Both write the events of the policy,
// from which everything here is read: the order in which requests end, swaps, and the
// share that is in time.
//
// Another part serves batches beside interactive requests: how long the first token takes,
// alone and while a batch is worked off.
//
//	main.go    parts, flags, figures
//	plan.go    the plans, the profile of the server, what served times say of it
//	trace.go   the two traces, and how a plan is simulated and served with them
//	log.go     the contents of an event log
//	beside.go  a batch beside interactive requests
package main
