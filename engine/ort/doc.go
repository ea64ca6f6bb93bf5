// Package ort executes submodels with ONNX Runtime, through our own thin cgo wrapper over its C API. The library
// is opened at run time (see FindLibrary), so a binary runs without it until a model is loaded.
//
// On the CPU a block runs on the calling thread (Options.Threads 1) or on its own pool of threads, which inherits
// the caller's CPU set; pin with engine.PinThread before Load. On CUDA the tensors of a Binding live in device
// memory, timing excludes copies, and a node that the device cannot execute is an error (engine.ErrFallback),
// never a silent run on the CPU.
//
// The CUDA provider keeps handles, workspaces and captured graphs per thread. A goroutine that runs a block on a
// GPU must stay on one thread (runtime.LockOSThread).
//
// There is one Engine per process, because ONNX Runtime has one environment. Without cgo, or with the build tag
// noort, Open reports that this binary was built without it.
//
// Vocabulary: a staged binding copies its inputs into, and its outputs out of, tensors that are captured in a CUDA
// graph; its core is the binding of those tensors. A static session runs at one batch size only.
//
// Read library.go and open.go first, then session.go, tensor.go, block.go and staged.go. cuda.go is about GPUs,
// eval.go runs a model once, and folders.go finds CUDA's libraries.
package ort
