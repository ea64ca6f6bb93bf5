// Package profiler measures what every block of every model costs on a device
// of this machine and writes it into a profile.
//
//	p, err := profiler.Run(ctx, profiler.Options{
//		Models: []string{"models/resnet50.onnx"}, Engine: eng, Out: "profile.json",
//	})
//
// # The steps
//
//  1. Open the models, look up in the existing profile what is measured already
//     (by hash of the model, device kind, share, batch and number of blocks).
//  2. Time every model once and hand an Estimate to the caller, who may stop here.
//  3. Per group of models that fits into memory: time the atoms, cut into blocks of
//     about equal time (or take over the cuts of the profile: a model has one set of
//     cuts on all devices), load every block and the whole model, check what float16
//     does at each cut, warm up.
//  4. Take samples in rounds: each round runs every block and every whole model at
//     every batch once. A (model, share, batch) is finished, and written to the file,
//     when the 95 % intervals of all its medians are tight or its samples or the
//     budget are spent.
//
// # What is measured
//
// Blocks as cut, not sums over layers: a block reads and writes its tensors in
// the layout that crosses the cut, and loses the fusions across it. Inputs and
// outputs are bound, so that times on a GPU include no host copies. On a CPU
// the calling thread is pinned, and both its CPU time and wall time are kept;
// intra-op threads do not spin.
//
// Stages run several blocks in one piece, in less time than that. The whole
// model is measured so in any case, and ranges of blocks where they are asked for
// (ranges.go): all of them, or those of a plan. Settle (settle.go) has a plan solved
// and its ranges measured in turns until it stays.
//
// # Noise
//
// Samples of one number are spread over the whole run of its group, because on
// a shared machine neighbours slow everything down for seconds or minutes.
// Medians are taken over the quieter half of the rounds, chosen by what a whole
// round took, so that the choice favours no block; p99 is over all rounds. The
// half width reported is the larger of two: one that supposes independent
// samples and one from the medians of eight stretches of time. Where the system
// allows it the measuring thread runs at a raised priority, or, where that is asked
// for, before all others. Beside the samples of one CPU thread a fixed piece of work
// tells how fast the machine was (reference.go). Numbers that stayed
// loose, and how busy the machine was, are named in the profile's notes.
//
// # Language models
//
// Package llmfit fits what an iteration of a server costs and makes a profile of others' measurements, llmserver measures
// a running server, and llmrun compares a run of one with its model.
//
// TestRepeatability (INFERPLAN_LONG=1) measures how well two profiles agree.
package profiler
