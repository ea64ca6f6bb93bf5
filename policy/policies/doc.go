// Package policies makes the policy that a plan names. Simulator and executor
// both get theirs here.
package policies
