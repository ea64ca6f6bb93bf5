// Package policytest makes plans for the tests and benchmarks of policies,
// simulator and executor.
package policytest
