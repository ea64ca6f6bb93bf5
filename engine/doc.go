// Package engine defines the interfaces between engines, which execute models, and their users: the profiler,
// which measures blocks, and the worker process, which serves them.
//
// An Engine lists Devices and loads a Submodel (a half-open range of a model's blocks, cut by engine/graph) onto
// one of them. The loaded Block is bound to a batch size once. The Binding holds the pre-allocated tensors of that
// batch and runs without allocating. The output tensors of one binding may be the input tensors of another, so
// that a chain of blocks inside a process copies nothing.
//
//	sub, err := cut.Slice(0, 1, graph.SliceOptions{}) // engine/graph
//	block, err := eng.Load(ctx, sub, dev, engine.Options{})
//	b, err := block.Bind(engine.BindOptions{Batch: 4})
//	copy(b.Inputs()[0].Bytes(), request)
//	err = b.Run(ctx)
//	reply := b.Outputs()[0].Bytes()
//
// # Who owns memory
//
// Tensors that Bind allocates belong to the Binding, and its Close frees them. Tensors passed to Bind belong to
// the caller and must outlive the Binding; the engine neither copies nor frees them. Bindings must be closed
// before their Block, and Blocks before their Engine. Closing the outer object also closes the inner ones that are
// still open, and every Close may be called twice.
//
// # Who may call
//
// Several goroutines may use an Engine and a Block. A Binding belongs to one goroutine at a time. Two Bindings of
// one Block may run at the same time unless the Block was loaded with Options.CUDAGraph.
//
// # Implementations
//
// engine/ort runs ONNX Runtime on cpu, cuda and tensorrt. engine/replay needs no library and replays measured
// times. engine/worker implements this interface across a process boundary.
//
// Read engine.go first, then tensor.go, device.go and errors.go.
package engine
