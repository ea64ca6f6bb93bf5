// Package workflow plans workflows: applications whose next step becomes known only at run time. The devices run all
// models of the workflows, or those of their group, and load them at run time.
//
// Vocabulary:
//
//   - Service: a model that the applications of workflows share.
//   - Visits: how often a request visits each segment of a workflow.
//   - Useful batch: a batch size up to which throughput rises and memory suffices.
//   - Work share: the part of a service's work that runs on a kind of devices.
//   - Partition: devices of a pool that run the same models. A model group has partitions of its own, and each counts
//     as a kind of devices.
//   - Placement: which services devices hold at the start.
//
// The indexes: a is an application, g a segment, s a service, k a kind of devices (a partition), d a device.
//
// The order in which to read the files:
//
//	problem.go    Plan, and from the documents to numbers: demand, visits, deadlines, samples of lengths
//	services.go   services with their useful batch sizes and load times on each kind of devices
//	batches.go    kinds, batch sizes and work shares: a program over all deadlines, with its bound
//	bound.go      the bound of all plans, without queueing
//	place.go      which services devices hold at the start: a program, then extra copies
//	dedicated.go  devices for groups of models alone
//	running.go    the plan that runs, as a problem of its own
//	near.go       a plan that starts from it
//	write.go      from batches and placement to a plan
//	explain.go    the lines of plan explain
package workflow
