// Package graph reads ONNX models, finds where they can be cut, and writes
// ranges of blocks as stand-alone models. It is pure Go: shapes come from
// running the model once through a Probe that an engine supplies.
//
//	m, err := graph.Open("resnet50.onnx", graph.Options{})
//	chain, err := m.Chain(ctx, probe, graph.ChainOptions{})      // cuts and their shapes
//	blocks, err := chain.Partition(atomTimes, 10)                // 10 blocks, smallest largest
//	sub, err := blocks.Slice(3, 7, graph.SliceOptions{})         // an engine.Submodel
//
// # Words
//
// A node is an operator that depends on a model input; everything else is a
// constant. A position lies between two nodes in topological order; the live
// tensors there are those made before it and used after it. A cut is a
// position that is worth cutting at: few live tensors, all of which grow with
// the batch, and no pair of operators torn apart that runtimes fuse. An atom
// is what lies between neighbouring cuts, a block a run of atoms.
//
// # Batch
//
// Models are given a symbolic batch: the first dimension of every input
// becomes "N", constant Reshape targets that start with 1 copy that dimension,
// and whatever is computed from shapes is replaced by constants where two
// probes at different batch sizes show that it does not depend on the batch.
//
// # Identity
//
// A model's identity is the SHA-256 of its file; where options change what is
// computed (seeded weights, fixed dimensions) they are hashed in as well.
//
// Models that come without weights (ConstantOfShape in their place) can be
// given seeded random ones; BERT, ViT and MLP build seeded models from scratch.
package graph
