// Package fleet measures policies of queues on a fleet of instances: QLM's workloads W_A, W_B and W_C ("One Queue Is All You
// Need", section 8) with arrivals and lengths of real traces.
//
//	rows.go        the workloads: which request comes when, for which model and class
//	talks.go       conversations of traces, whose turns repeat the ones before
//	tables.go      the fleet, and its estimators calibrated on drained queues
//	measure.go     policies, and one run of one of them
//	long.go        what the simulation of long queues and of many instances takes
//	operations.go  what swaps and loads take
package fleet
