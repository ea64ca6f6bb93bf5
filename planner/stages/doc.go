// Package stages says how models can be cut into stages: which ranges of their
// blocks may run on which kinds of devices, how long they take there, and what
// crosses between them. Several plan kinds need this and no kind imports another,
// so it lies below them. It chooses no plan. How many replicas a stage has and
// which devices they are is for the kinds to say.
//
//	problem.go       models and pools of devices as numbers: costs by batch size, SLOs, memory
//	times.go         what a range of blocks takes: measured in one piece, or estimated
//	expect.go        what a batch takes undisturbed and on average, also between measured ones
//	served.go        these times in a stage of a plan
//	costs.go         those costs from the measurements of a profile
//	template.go      a template: a model's stages at one batch size, with times, rates and memory
//	enumerate.go     every template that keeps the SLO and fits in memory; the fastest; the least memory
//	transfer.go      what a cut takes of the network between two pools
//	prepartition.go  fewer places to cut at: blocks of like times, or cuts of few bytes
//	cuts.go          whether a cut may cross, and as float16 or float32
//
// A stage takes five forms on its way from a profile to a worker:
//
//	Stage, in a Template   what is possible: a block range on a device kind and share, its time and rate
//	pool.Pipeline          what is chosen: a template with replicas, and the devices they are placed on
//	formats.Stage          the same in a plan file: names and microseconds, complete without the profile
//	policy.Stage           what decisions need: indexes into tables of devices, times by batch size
//	executor's stagePlan   what is to be loaded: a worker.StageSpec, with the model file and the tensors at both cuts
package stages
