// Package fleet measures policies of queues on a fleet of instances: QLM's
// workloads W_A, W_B and W_C ("One Queue Is All You Need", section 8) with arrivals
// and lengths of real traces.
//
//	rows.go      the workloads: which request comes when, for which model and class
//	tables.go    the fleet, and its estimators calibrated on drained queues
//	ceiling.go   requests per second that no policy passes
//	measure.go   policies, and one run of one of them
//	timeline.go  what each instance does over a run
package fleet
