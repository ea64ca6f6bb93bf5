// Package held says what plans hold in simulation with fresh seeds, and what keeps a plan of pools below its bound.
//
//	held.go        the rate that a plan holds
//	shortfall.go   the gap to the bound by its causes
package held
