package graph

import (
	"context"
	"fmt"

	"inferplan/engine"
)

// Fixed returns the model with the shapes of its file, as one submodel, and its batch size. It is for models whose
// batch cannot be made free. The shapes of inputs and outputs are those of a run of the whole model. A first
// dimension that neither the file nor Options.Dims sets is 1.
func (m *Model) Fixed(ctx context.Context, probe Probe) (*engine.Submodel, int, error) {
	p := subgraph{nodes: m.unchangedNet.compute, asFile: true}
	batch := 1
	for i, s := range m.Inputs {
		firstDim := max(1, m.firstDims[i])
		if i == 0 {
			batch = int(firstDim)
		}
		s.Shape = append([]int64{firstDim}, s.Shape[1:]...)
		p.inputs = append(p.inputs, s)
	}

	// Run the whole model once to learn the shapes of its outputs.
	p.outputs = bareSpecs(m.Outputs)
	p.withoutWeights = true
	var results []map[string]Value
	for {
		data, err := m.encode(p)
		if err != nil {
			return nil, 0, err
		}
		if results, err = probe(ctx, data, p.inputs, ProbeRun{batch, m.Outputs}); err == nil {
			break
		}
		// With the shapes of inputs, a runtime may find that a branch which is not taken does not fit them.
		if p.declaredInputs || ctx.Err() != nil {
			return nil, 0, fmt.Errorf("%s: run at its own batch %d: %w", m.Name, batch, err)
		}
		p.declaredInputs = true
	}

	// Check that answers can carry the outputs.
	for i, name := range m.Outputs {
		v := results[0][name]
		if v.Type.Size() == 0 {
			return nil, 0, modelErrorf("output %q has elements of type %s, which no answer can carry: let the model end before it", name, v.Type)
		}
		if len(v.Shape) == 0 {
			return nil, 0, modelErrorf("output %q is a single %s without a batch dimension, which no answer can carry: let the model end with a Reshape to 1", name, v.Type)
		}
		if elementCount(v.Shape) == 0 {
			return nil, 0, modelErrorf("output %q is empty (%s%v) at the sizes of its inputs: give others (--shape) or values (--input)", name, v.Type, v.Shape)
		}
		p.outputs[i] = engine.Spec{Name: name, Type: v.Type, Shape: v.Shape}
	}
	p.withoutWeights = false
	sub := &engine.Submodel{
		Model: m.Name, Identity: m.Identity, To: 1, Blocks: 1, Inputs: p.inputs, Outputs: p.outputs,
		WeightBytes: m.unchangedNet.weightBytes(p.nodes, false), Nodes: len(p.nodes), Folder: m.folder, WeightFiles: m.unchangedNet.weightFiles(p.nodes),
	}
	data, err := m.encode(p)
	sub.ONNX = data
	return sub, batch, err
}
