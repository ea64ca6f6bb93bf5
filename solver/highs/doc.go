// Package highs solves milp models with HiGHS, linked in through cgo.
//
// [Solver] implements milp.Solver. A solve is one call into C++ (shim.cc): it makes a HiGHS object of its own,
// passes the model, runs, copies the answer into memory that Go owns, and frees everything, also when C++ throws. So
// there is nothing to close, and solves from several goroutines do not touch each other. What C++ throws is an error of
// the run, after which the model is solved in another way; a test lets allocations fail one after the other, behind
// the build tag testfault. A crash ends the process: package solver/process solves in one beside.
//
// # Threads
//
// HiGHS keeps one task scheduler per operating-system thread, made by the first solve on that thread with that solve's
// thread count; a later solve there with another count fails. Every solve here uses one thread, which is also
// what makes results repeatable: parallelism is over solves.
//
// # Building
//
// The #cgo lines look for HiGHS in third_party/highs/prefix, where `make setup` puts it. Without cgo the
// package compiles to a stub whose Solve returns ErrUnavailable.
package highs
