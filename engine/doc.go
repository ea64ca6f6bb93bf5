// Package engine is the contract between what executes a model and what asks
// for it: the profiler that measures blocks, and the worker process that
// serves them.
//
// An Engine lists Devices and loads a Submodel (a half-open range of a
// model's blocks, cut by engine/graph) onto one of them. The loaded Block is
// bound to a batch size once; the Binding holds the pre-allocated tensors of
// that batch and runs without allocating. Input and output tensors of two
// bindings may be one and the same, so that a chain of blocks inside a
// process moves no bytes.
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
// Tensors that Bind allocated belong to the Binding and are gone after its
// Close. Tensors handed to Bind belong to the caller and must outlive the
// Binding; the engine neither copies nor frees them. Bindings must be closed
// before their Block, Blocks before their Engine; Close of the outer closes
// what is left of the inner, and every Close may be called twice.
//
// # Who may call
//
// An Engine and a Block may be used by several goroutines. A Binding belongs
// to one goroutine at a time. Two Bindings of one Block may run at the same
// time unless the Block was loaded with Options.CUDAGraph.
//
// # Implementations
//
// engine/ort runs ONNX Runtime on cpu, cuda and tensorrt; engine/replay needs
// no library and replays measured times; engine/worker speaks this interface
// across a process boundary.
package engine
