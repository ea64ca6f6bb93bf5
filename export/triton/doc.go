// Package triton exports plans as model repositories of Triton Inference Server: one for each host, with a model for
// each deployed part, cut model files, and an ensemble for each pipeline of several stages.
//
// The words of this package:
//
//   - Variant: a way in which a deployed model runs: all whole pipelines of one batch size and execution, or one
//     pipeline of several stages. Requests ask for it by its name.
//   - Part: the stage of a variant, which is a model of a repository.
//
// The files, in the order of reading:
//
//	target.go    the target, and the models in their repositories
//	variants.go  a plan's deployment as variants and their parts
//	configs.go   the configuration of a part and of an ensemble
//	batching.go  how long requests may wait in a part's queue
//	guide.go     what the README says
package triton
