// Package gpucheck tries out everything that needs a GPU, in steps, and says of
// each figure that this project promises whether the device at hand keeps it.
//
// `make bench NAME=gpu` and gpu-check.sh in a copied folder run it, on a
// machine that one has for minutes: the steps come in the order of their worth,
// each runs in a process of its own under a time limit, what is done is kept
// and not done again by the next call. On the CPU (device "cpu") the same steps
// run at small sizes, to try out the check itself; what such a rehearsal
// measures says nothing about a GPU, and is marked so.
//
//	step       what it answers
//	doctor     driver, libraries, what the GPU is
//	outputs    do answers equal the CPU's, TF32 off
//	fallback   is an operator that the provider lacks refused
//	ceilings   copies and matrix products
//	profile    one CNN, 8 batch sizes, 10 blocks, within 2 minutes
//	executor   throughput of the executor against a bare engine loop
//	promise    p50, p99, attainment against simulation at three loads
//	repeat     the same profile again: how far do its numbers move
//	graphs     the chain of blocks against the whole, without and with CUDA graphs
//	roofline   which blocks are far from what the device can do
//	half       whole models in float16: how fast, and what it does to answers
//	shares     1/2, 1/3 and 1/4 of the GPU with as many copies at work
//	pooled     two stages on two shares of one GPU, served
//	cascade    a family of classifiers, served
//	tiers      by which way tensors cross between processes, and how fast
//	swap       loading, first run, unloading
//	cnns       all nine CNNs at batches 1 to 64
//
// The package drives the other verbs of this program as processes, as a user
// would (program.go), and engines and the executor directly where a figure is
// about them (device.go). run.go runs the steps, kept.go keeps what they found
// until they end, document.go and report.go hold and print the results. The
// steps are in outputs.go, ceilings.go, profiles.go (the first profile), against.go
// (others against it), executor.go, serve.go, pooled.go, cascade.go, shares.go
// and tiers.go.
package gpucheck
