// Package stages lists how models can be cut into stages: which ranges of their blocks may run
// on which kinds of devices, how long they take there, and what crosses between them. It
// chooses no plan. The kinds decide how many replicas a stage has and on which devices they
// are. Several kinds need the package and no kind imports another, so it lies below them.
//
// The words of this package:
//
//   - Block: the smallest part of a model that a stage can consist of.
//   - Cut: a place between two blocks, and the tensors that cross there.
//   - Range: consecutive blocks [first, last).
//   - Share: 1/v of a device.
//   - Measured range: a range that was measured in one run (MeasuredRange).
//   - Maximum time: what a batch takes at the next larger measured size; SLOs use it.
//   - Mean time: what a batch takes on average; rates use it.
//   - Template: stages that cover a model at one batch size, without replica counts.
//   - Transfer: the transport of a batch over a cut.
//
// Order of reading:
//
//	problem.go       models and pools of devices as numbers: costs by batch size, SLOs, memory
//	times.go         the time of a range: measured in one piece, or estimated
//	expect.go        the median and mean time of a batch, also between measured sizes, and these times in a stage of a plan
//	costs.go         the costs from the measurements of a profile
//	template.go      templates: times, rates and memory of their stages
//	enumerate.go     every template that keeps the SLO and fits in memory; the fastest; the least memory
//	prepartition.go  fewer places to cut at: blocks of similar times, or cuts of few bytes
//	cuts.go          whether a cut may cross, and as float16 or float32; its time on the network between two pools
//
// A stage has five forms on its way from a profile to a worker:
//
//	Stage, in a Template   what is possible: a block range on a device kind and share, its time and rate
//	problem.Pipeline          what is chosen: a template with replicas, and the devices they are placed on
//	formats.Stage          the same in a plan file: names and microseconds, complete without the profile
//	policy.Stage           what decisions need: indexes into tables of devices, times by batch size
//	executor's stageLoad   what a worker loads: a worker.StageSpec, with the model file and the tensors at both cuts
package stages
