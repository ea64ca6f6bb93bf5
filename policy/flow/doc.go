// Package flow has what plans of applications have at run time, whatever their
// policy: graphs of modules as tables, which task of a request comes next, and
// the book that policies keep of requests and tasks.
//
// A module is a service, and a step of an application is a node that asks for
// one. A request has a task per node that it comes to. A node that reads several
// others is a merge: its task is revealed once those have ended that the request
// came to. A node with ways on is a branch: the outcome of its task says which
// way is taken, and what no task comes to any more is passed over, so that a
// merge does not wait for it. All of that is decided here, once for both
// interpreters.
//
// A request that is dropped is dropped as a whole: none of its tasks is revealed
// or waited for any more.
//
// # Workflows
//
// A workflow has segments in place of a graph. All tasks of a segment are revealed
// at once. What comes behind it is chosen when the last of them has ended. How
// often a module runs, which model does it and where a request goes on is asked of
// Choices: the simulator draws, a server evaluates the conditions.
//
//	tables.go     graphs, paths and scaling as tables; what a plan compiles to
//	control.go    which tasks come next (policy.Control)
//	demand.go     how many workers are wanted, by the arrivals at the entry
//	book.go       requests and tasks as policies see them
//	workflows.go  segments as tables
//	walk.go       which tasks come next in a workflow; choices by chance
//	evaluate.go   choices by the conditions of the plan
//
// A service may be a language model, whose tasks have tokens (generation.go).
// generation_profile.go has the times and the memory of its sequences by a profile,
// for planning and for what checks plans.
package flow
