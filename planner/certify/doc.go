// Package certify tests by simulation what a plan sustains on the arrivals of its workload, and
// stores that in the plan. All kinds of plans share it.
//
//	certify.go  a plan's runs: how long, how many, on which arrivals; the certificate
//	budget.go   how many requests a search and its tests may simulate
//	climb.go    a sequential test, and the highest loads that pass it
//	hold.go     plans that are made until the test confirms their rates
//	grid.go     the order in which settings of a plan are tried
//	state.go    the value and the bound of a plan that passed
package certify
