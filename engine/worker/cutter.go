package worker

import (
	"context"
	"fmt"

	"inferplan/engine"
	"inferplan/engine/graph"
)

// modelKey identifies a model that is cut in one way.
type modelKey struct {
	path, model    string // one file may have several models, each with fixed sizes
	maxLiveTensors int
}

// openModel is a model that was read: a chain that can be cut into stages or, if its batch dimension cannot be made
// free, the whole file as one submodel (fixedModel).
type openModel struct {
	chain      *graph.Chain
	fixedModel *engine.Submodel
}

// Cutter cuts the stages of plans out of the files of models.
type Cutter struct {
	probe graph.Probe
	fp16  bool // stages compute in float16
	// models holds the models read so far, because the stages of one model follow each other. They hold weights.
	models map[modelKey]*openModel
}

// NewCutter returns a cutter that measures the shapes of tensors with probe. If fp16 is true, its stages compute in
// float16.
func NewCutter(probe graph.Probe, fp16 bool) *Cutter {
	return &Cutter{probe: probe, fp16: fp16, models: map[modelKey]*openModel{}}
}

// Forget drops the models that were read, with their weights.
func (c *Cutter) Forget() { c.models = map[modelKey]*openModel{} }

// Cut cuts the stage out of its model's file: the blocks between the cuts whose tensors the plan names, or the whole
// model. Nothing is loaded yet.
func (c *Cutter) Cut(ctx context.Context, s *StageSpec) (*engine.Submodel, error) {
	m, err := c.open(ctx, s)
	if err != nil {
		return nil, err
	}
	if m.fixedModel != nil {
		if c.fp16 {
			return nil, fmt.Errorf("%w: %s: a model whose batch cannot be made free runs as its file is, not in float16", engine.ErrModel, s.Path)
		}
		sub := *m.fixedModel
		return &sub, nil
	}
	chain := m.chain
	// The plan names the tensors at its cuts. They define where the range of blocks begins and ends, whatever the
	// number of blocks that the model is cut into today.
	var cuts [][]string
	firstBlock, endBlock := 0, 1
	if s.From > 0 {
		if len(s.CutIn) == 0 {
			return nil, fmt.Errorf("%w: the plan names no tensors at the cut before block %d", engine.ErrModel, s.From)
		}
		cuts = append(cuts, s.CutIn)
		firstBlock, endBlock = 1, 2
	}
	if s.To < s.Blocks {
		if len(s.CutOut) == 0 {
			return nil, fmt.Errorf("%w: the plan names no tensors at the cut after block %d", engine.ErrModel, s.To-1)
		}
		cuts = append(cuts, s.CutOut)
	}
	blocks, err := chain.CutAt(cuts)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", engine.ErrModel, err)
	}
	return blocks.Slice(firstBlock, endBlock, graph.SliceOptions{FP16In: s.FP16In, FP16Out: s.FP16Out, FP16: c.fp16})
}

// open reads a model as the profiler does: with a free batch dimension or, if the plan says that the model runs at
// fixed shapes, as its file is. A model that was read before is returned from c.models. A file with another hash than
// the plan's is an error.
func (c *Cutter) open(ctx context.Context, s *StageSpec) (*openModel, error) {
	// A chain finds the cuts that at most maxLiveTensors tensors cross. It must find those at both ends of the stage.
	key := modelKey{s.Path, s.Model, max(1, len(s.CutIn), len(s.CutOut))}
	if m := c.models[key]; m != nil {
		return m, nil
	}
	m, err := graph.Open(s.Path, graph.Options{Name: s.Model, Seed: s.Seed, Dims: s.Dims, Values: s.Values})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", engine.ErrModel, err)
	}
	if s.SHA256 != "" && s.SHA256 != m.SHA256 {
		return nil, fmt.Errorf("%w: %s has SHA-256 %s, the plan was made for %s; profile and solve again, or serve the file of the plan", ErrHash, s.Path, m.SHA256, s.SHA256)
	}
	model := new(openModel)
	if s.FixedShapes {
		model.fixedModel, _, err = m.Fixed(ctx, c.probe)
	} else {
		model.chain, err = m.Chain(ctx, c.probe, graph.ChainOptions{MaxLive: key.maxLiveTensors})
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", engine.ErrModel, err)
	}
	c.models[key] = model
	return model, nil
}
