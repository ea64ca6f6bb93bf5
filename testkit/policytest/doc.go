// Package policytest makes plans for the tests and benchmarks of policies,
// simulator and executor (policytest.go), has an interpreter that is as unkind to
// a policy as the contract allows (Adversary: adversary.go, foetasks.go,
// foework.go, foenews.go, foebook.go, foereferee.go), and an application that uses all of the contract with
// a policy for it (diamondgraph.go, diamond.go). Entry puts a policy of pipelines under steady arrivals (entry.go).
package policytest
