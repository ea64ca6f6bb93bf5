// Package condition reads the conditions of applications: expressions in the
// Common Expression Language (CEL) over what a request brings and what its
// modules have put out.
//
// A Scope lists the names with their types. Compile checks an expression against
// it, so that a mistake is told with its column before anything runs. Bool, Count
// and Text evaluate. The cost of an evaluation is bounded.
//
// Types are written as in CEL: bool, int, double, string, and list(T) of them.
package condition
