// Package policytest makes plans for the tests and benchmarks of policies,
// simulator and executor, and has an interpreter that is as unkind to a policy as
// the contract allows (Adversary).
package policytest
