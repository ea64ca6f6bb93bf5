// Package certify tests by simulation what a plan sustains on the arrivals of its workload, and
// stores that in the plan. All kinds of plans share it.
//
// The words of this package:
//
//   - Test: the simulations of a plan, with their number, length and seed.
//   - Load: a multiple of the promised rate of a model.
//   - Look: an evaluation of a sequential test, after a number of runs.
//   - Certificate: the load that a plan sustains, with the attainment of each model.
//   - Budget: how many requests the simulations may have.
//   - Setting: a choice of values that a search over plans tries.
//
// Order of reading:
//
//	certify.go  the test of a plan: how long, how many runs, which arrivals; the certificate
//	climb.go    the sequential test, and the highest loads that pass it
//	confirm.go  repeated planning until the test confirms the rates
//	grid.go     the order in which settings of a plan are tried, and how many requests a search and its tests may simulate
//	state.go    the value and the bound of a plan that passed
package certify
