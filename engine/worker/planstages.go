package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"inferplan/engine/graph"
	"inferplan/formats"
	"inferplan/formats/document"
)

// StageSpecs returns what the stages of a deployed model load, by pipeline and stage. path is the file of the model,
// and seed that of weights which it lacks.
func StageSpecs(m *formats.Deployed, path string, seed uint64) [][]StageSpec {
	// The shapes for which the model is prepared, and the values of inputs.
	var dims map[string][]int64
	if len(m.Inputs) > 0 {
		dims = map[string][]int64{}
		for _, t := range m.Inputs {
			dims[t.Name] = t.Shape
		}
	}
	shared := StageSpec{Model: m.Model, Path: path, SHA256: m.SHA256, Blocks: m.NumBlocks, FixedShapes: m.HasNoBatchAxis(), Seed: seed, Dims: dims, Values: inputValues(m)}
	if m.Bucket != nil {
		shared.File = m.Bucket.BaseModel
	}

	// Each stage has the cut of the stage before as its input.
	specs := make([][]StageSpec, len(m.Pipelines))
	for pi := range m.Pipelines {
		p := &m.Pipelines[pi]
		var inputCut *formats.Cut
		for si := range p.Stages {
			s, spec := &p.Stages[si], shared
			spec.From, spec.To, spec.MaxBatch = s.Blocks[0], s.Blocks[1], p.Batch
			if inputCut != nil {
				spec.CutIn, spec.FP16In = inputCut.Tensors, inputCut.DType == "FP16"
			}
			if s.Cut != nil {
				spec.CutOut, spec.FP16Out = s.Cut.Tensors, s.Cut.DType == "FP16"
			}
			specs[pi] = append(specs[pi], spec)
			inputCut = s.Cut
		}
	}
	return specs
}

// inputValues returns the values that the plan has for a model's inputs, by name: constants, which requests do not
// bring, and values to warm up the other inputs with.
func inputValues(m *formats.Deployed) map[string]graph.Literal {
	out := map[string]graph.Literal{}
	for _, t := range slices.Concat(m.Constants, m.Inputs) {
		if len(t.Value) > 0 {
			out[t.Name] = graph.Literal{Shape: []int64{}, Values: t.Value}
		}
	}
	return out
}

// FindModel returns the path of the file of model m in dir: NAME.onnx, or else the first file with the hash that the
// plan has, so that a renamed model is found. A length bucket is made from the file of its base model. If there is none,
// it returns an error.
func FindModel(dir string, m *formats.Deployed) (string, error) {
	name := m.Model
	if m.Bucket != nil {
		name = m.Bucket.BaseModel
	}
	path := filepath.Join(dir, name+".onnx")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.onnx"))
	if err != nil {
		return "", fmt.Errorf("model %s: %w", m.Model, err)
	}
	slices.Sort(files)
	if m.SHA256 != "" {
		for _, f := range files {
			if sum, err := document.Digest(f); err == nil && sum == m.SHA256 {
				return f, nil
			}
		}
	}
	return "", fmt.Errorf("model %s: neither %s nor a file of its hash among the %d models of %s; name the folder with --models-dir", m.Model, path, len(files), dir)
}
