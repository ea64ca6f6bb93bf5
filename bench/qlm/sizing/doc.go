// Package sizing counts the GPUs that policies need to keep 99 % of interactive and
// 99 % of batch requests in time: QLM's question for a fleet ("One Queue Is All You
// Need", section 8), with one trace, several seeds pooled, and A100s that run one
// model at a time.
//
//	cases.go    the cases: models, popularity, rates
//	count.go    the fewest GPUs of a competitor, by the planner's own search
//	central.go  baselines: requests of a pool in one queue, also that of a gateway
//	floor.go    GPUs that no order and no assignment does without, on this trace
//	forced.go   requests that must be late on so many GPUs
package sizing
