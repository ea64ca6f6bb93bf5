// Package process solves milp models in a process of its own. A native solver that crashes (a signal, an abort, no
// memory) then ends one solve, with [milp.ErrFault], and not the program that searches. The next solve starts
// another process.
//
// [Solver] is the caller's side, and [Serve] the process's. They exchange gob messages over its standard input and
// output: an order has a model as lists with its options, and reports have improved solutions, progress and the
// solution. Stops have a pipe of their own. A solve that does not end within half a second of a stop is killed, and its
// solutions are lost. A process that was told to stop is not used again. Every process ends with its caller: when its
// orders end between two solves, and when the stops end within one.
//
// Solutions are the same, bit by bit, as those of a solve in the caller's own process. A solve costs about .15 ms of CPU
// more than there (`go test ./solver/process -run xxx -bench .`), and the start of a process about 15 ms. That is 1 % of
// plan solve on the pools of testdata/kinds (134 solves), and 15 %, .12 s, on its applications (1,177 tiny programs).
//
// Order: a request for a solve. Report: an answer during or at the end of a solve. Stop: a byte that ends a solve.
// Read message.go, process.go and serve.go.
package process
