// Package condition evaluates the conditions of applications: expressions in the Common Expression Language (CEL)
// over the parameters of a request and the outputs of its modules.
//
// A Scope lists the names with their types. Compile checks an expression against it, so that a mistake is reported
// with its column before anything runs. Holds, Items and Words evaluate. The cost of an evaluation is bounded.
//
// Types are written as in CEL: bool, int, double, string, and list(T) of them.
package condition
