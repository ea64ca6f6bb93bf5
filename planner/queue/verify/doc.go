// Package verify tells whether a plan of queues holds by the documents of today,
// from first principles. It shares no code with the planner, so that a mistake there
// shows here.
//
//	check.go    Check: findings, each with its constraint and field
//	work.go     what an instance must at least do for a request, and for all
//	figures.go  Figures: simulated then and now; WorkloadOf
package verify
