// Package stoch holds the probability that plans with unknown lengths need:
// distributions, their sums and extremes, chance constraints and scenarios.
//
// It knows nothing of requests or GPUs. The pieces:
//
//	dist.go      Dist; normal, empirical and heavy-tailed (log-t) distributions
//	clamp.go     a distribution that ends at a maximum; moments by quadrature
//	order.go     the k-th smallest of n, and so the maximum
//	sum.go       the sum of n draws on a lattice, and a factor that all of them share
//	plus.go      a normal variable plus one that has each of some values
//	chance.go    P(X <= limit) >= level: exact, and as a row of a linear program
//	scenario.go  scenarios for sample-average programs
//	phi.go       the normal distribution function as a table, for searches
//
// # A maximum
//
// A server ends an answer at its maximum of tokens, so the probability above the
// maximum lies on the maximum. Clamp does that. It does not condition on lengths
// below the maximum: that would be another distribution, with a smaller mean.
//
// # A common factor
//
// The sum of n independent lengths varies like sqrt(n), so for a long queue it
// hardly varies at all. What remains is the error of the throughput itself. It is
// the same for the whole queue and does not average out. Sums, chance constraints
// and scenarios take it as a factor with mean 1 and a standard deviation, which is
// called common.
//
// All results are deterministic: random numbers come from the caller's generator.
package stoch
