// Package process solves milp models in a process of its own. A native solver that crashes (a signal, an abort, no
// memory) then ends one solve, with [milp.ErrFault], and not the program that searches. The next solve starts
// another process.
//
// [Solver] is the side of the caller, [Serve] that of the process. They exchange gob messages over its standard input
// and output: a model as lists with its options, then improved solutions and progress as they come, and the solution.
// Stops have a pipe beside these. A solve that does not hear one within half a second is killed, with what it had found.
// A process that was told to stop is not used again. Every process ends with its caller: when its orders end between
// two solves, when the stops end within one.
//
// Solutions are those of a solve in the caller's own process, to the last bit. A solve costs about .15 ms of CPU more
// than there (`go test ./solver/process -run xxx -bench .`), and the start of a process about 15 ms. That is 1 % of plan
// solve on the pools of testdata/kinds (134 solves), and 15 %, .12 s, on its applications (1,177 tiny programs).
package process
