// Package graph reads ONNX models, finds where they can be cut, and writes ranges of blocks as stand-alone models.
// It is pure Go: an engine supplies a Probe that runs a model once to measure shapes.
//
//	m, err := graph.Open("resnet50.onnx", graph.Options{})
//	chain, err := m.Chain(ctx, probe, graph.ChainOptions{})      // cuts and their shapes
//	blocks, err := chain.Partition(atomTimes, 10)                // 10 blocks, the largest as small as possible
//	sub, err := blocks.Slice(3, 7, graph.SliceOptions{})         // an engine.Submodel
//
// # Words
//
//   - Compute node: an operator that depends on a model input. All else is a constant.
//   - Position: a place between two nodes in topological order.
//   - Live tensor: at a position, a tensor that is produced before it and read after it.
//   - Cut: a position at which cutting is useful: few live tensors, all of which grow with the batch,
//     and no pair of operators separated that runtimes fuse.
//   - Atom: the part of a model between neighbouring cuts. Block: a run of atoms.
//   - Chain: a model with its cuts. Slice: a range of blocks, written as a model.
//   - Probe: a run of a model that reports the shapes of tensors.
//   - Seeded weight: a random weight that follows from a seed.
//
// Read read.go, inputs.go and outside.go (reading), net.go (the sorted graph), batch.go (the free batch), chain.go
// and blocks.go (cuts and blocks), write.go, half.go and clip.go (writing), seed.go and synth.go (models of our
// own), and work.go (counting).
//
// # Batch
//
// Models get a symbolic batch: the first dimension of every input becomes "N", and constant Reshape targets that
// start with 1 copy that dimension. Values that are computed from shapes are replaced by constants if two probes
// at different batch sizes show that they do not depend on the batch.
//
// # Identity
//
// A model's identity is the SHA-256 of its file. If options change what is computed (seeded weights, fixed
// dimensions), they are included in the hash.
//
// Models that come without weights (with ConstantOfShape in their place) can be given seeded random ones. BERT,
// ViT and MLP build seeded models from scratch.
package graph
