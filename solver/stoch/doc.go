// Package stoch holds the probability that plans with unknown lengths need:
// distributions, chance constraints and scenarios.
//
// It knows nothing of requests or GPUs. Chance constraint: a limit that a random sum keeps with a
// given probability. Scenario: one random future. In order of reading:
//
//	dist.go      the normal distribution
//	chance.go    P(X <= limit) >= level as a row of a linear program
//	scenario.go  scenarios for sample-average programs
//	interval.go  a one-sided confidence interval of a mean
//	phi.go       the normal distribution function as a table, for searches
//
// # A common factor
//
// The sum of n independent lengths varies like sqrt(n), so for a long queue it
// hardly varies at all. What remains is the error of the throughput itself. It is
// the same for the whole queue and does not average out. Chance constraints and
// scenarios model it as a factor with mean 1, whose standard deviation is called
// common.
//
// All results are deterministic: random numbers come from the caller's generator.
package stoch
