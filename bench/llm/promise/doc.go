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
//	main.go   parts, flags, figures
//	beside.go batch beside interactive
//	plan.go   the server, its profile, the plan, what served times say of the profile
//	trace.go  the two traces
//	log.go    the contents of an event log
package main
