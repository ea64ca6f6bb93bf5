// Package ort executes submodels with ONNX Runtime, through our own thin cgo
// wrapper over its C API. The library is opened at run time (see
// FindLibrary), so a binary runs without it until a model is loaded.
//
// On the CPU a block runs on the calling thread (Options.Threads 1) or on a
// pool of its own that inherits the caller's CPU set; pin with
// engine.PinThread before Load. On CUDA the tensors of a Binding live in
// device memory, timing excludes copies, and a node that the device cannot
// execute is an error (engine.ErrFallback), never a silent run on the CPU.
//
// The CUDA provider keeps handles, workspaces and captured graphs by thread: who
// runs a block on a GPU stays on one (runtime.LockOSThread).
//
// There is one Engine per process: ONNX Runtime has one environment.
//
// Without cgo, or with the build tag noort, Open reports that this binary was
// built without it.
package ort
