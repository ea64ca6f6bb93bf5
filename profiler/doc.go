// Package profiler measures the cost of every block of every model on a device of this machine and writes it into
// a profile.
//
//	p, err := profiler.Run(ctx, profiler.Options{
//		Models: []string{"models/resnet50.onnx"}, Engine: eng, OutPath: "profile.json",
//	})
//
// Vocabulary:
//
//   - Atom: the smallest part of a model between two possible cuts.
//   - Block: a group of atoms; the model is cut into about ten blocks of similar time.
//   - Whole: the model in one piece. Range: neighbouring blocks in one piece, as a stage runs them.
//   - Probe: one thing that is timed: a block, a range or the whole model, at a batch size.
//   - Probe set: all probes of a (model, share, batch), which become one Measurement.
//   - Round: one sample of every probe of a probe set.
//   - Tight: known well enough, by the half width of the 95 % interval of a median.
//   - Quiet rounds: the half of the rounds that other work on the machine disturbed least.
//   - Pass: the ranges that are loaded and sampled at the same time.
//
// # The steps
//
//  1. Open the models (model.go, buckets.go), and look up in the existing profile which measurements
//     it has (by hash of the model, device kind, share, batch and number of blocks; adopt.go, run.go).
//  2. Run every model once and pass an Estimate to the caller, who may stop here (estimate.go).
//  3. For each group of models that fits into memory (group.go, prepare.go): time the atoms, cut the
//     models into blocks of about equal time (or take the cuts of the profile: a model has one set of
//     cuts on all devices), load every block and the whole model, check the effect of float16 at each
//     cut (fp16.go), warm up.
//  4. Take samples in rounds (sampler.go, probeset.go): each round runs every probe of every probe set
//     once. A probe set is finished, and written to the file (record.go, file.go), when all its
//     medians are tight, or its largest number of samples or the budget is spent.
//
// # What is measured
//
// Blocks are measured as they are cut, not as sums over layers: a block reads and writes its tensors in the layout
// that crosses the cut, and loses the fusions across it. Inputs and outputs are bound, so that times on a GPU
// include no copies from or to the host. On a CPU the calling thread is pinned, and both its CPU time and wall
// time are recorded; intra-op threads do not spin.
//
// Stages run several blocks in one piece, which takes less time than the sum. The whole model is always measured
// in one piece, and ranges of blocks if they are requested (ranges.go): all ranges, or those of a plan. Settle
// (settle.go) solves a plan and measures its ranges in turns, until no time of the plan is estimated.
//
// # Noise
//
// Samples of one number are spread over the whole run of its group, because on a shared machine neighbours slow
// everything down for seconds or minutes. Medians are taken over the quiet rounds, chosen by the time of a whole
// round, so that the choice favours no block; p99 is over all rounds. The reported half width is the larger of
// two: one that assumes independent samples and one from the medians of eight stretches of time. If the system
// allows it, the measuring thread runs at a raised priority or, if requested, before all others. Between the
// samples of one CPU thread, a fixed piece of work measures how fast the machine is (reference.go). The profile's
// notes name numbers that are not tight, and say how busy the machine was.
//
// # Language models
//
// Package llmfit fits the time of an iteration of a server, and makes a profile of others' measurements. llmserver
// measures a running server, and llmrun compares a run of a server with its model.
//
// TestRepeatability (INFERPLAN_LONG=1) measures how well two profiles agree.
package profiler
