// Package rules has what bench/qlm compares virtual queues with: one list for all instances, like SHEPHERD
// (Zhang et al., NSDI 2023) or an inference gateway, instances of their own for models, queues that are
// dealt in turn or at random, and fleets that grow.
//
// hash.go binds sessions to instances. pool.go has the list of shepherd.go and gateway.go, partition.go the instances of models,
// scale.go instances that come and go.
package rules
