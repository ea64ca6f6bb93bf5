// Package highs solves milp models with HiGHS, linked in through cgo.
//
// [Solver] implements milp.Solver. A solve is one call into C++ (shim.cc). It makes its own HiGHS object, passes the
// model, runs, copies the answer into memory that Go owns, and frees everything, also if C++ throws. So there is
// nothing to close, and solves from several goroutines do not affect each other. An exception of C++ becomes an error of
// the run, and the model is then solved in another way. A test with the build tag testfault lets one allocation after
// the other fail. A crash ends the process; package solver/process runs solves in a process of their own.
//
// Run: one call of HiGHS. Verdict: a status other than unknown or an error. Fallback: other settings for a model without
// a verdict. Read highs.go, start.go, run.go and events.go.
//
// # Threads
//
// HiGHS keeps one task scheduler per operating-system thread. The first solve on a thread makes it with its own thread
// count, and a later solve there with another count fails. Here every solve uses one thread, which also makes results
// repeatable. Parallelism is over solves.
//
// # Building
//
// The #cgo lines look for HiGHS in third_party/highs/prefix, where `make setup` puts it. Without cgo the
// package compiles to a stub whose Solve returns ErrUnavailable.
package highs
