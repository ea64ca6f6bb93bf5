package graph

import (
	"context"
	"fmt"
	"os"

	"google.golang.org/protobuf/proto"

	"inferplan/engine"
	"inferplan/engine/graph/onnxpb"
)

// Fixed returns the model as its file has it, in one piece that runs at its own
// batch, which it returns, too: for models whose batch cannot be made free. The
// shapes of the piece's inputs and outputs are those of a whole run. A first
// dimension that the file does not fix is 1.
func (m *Model) Fixed(ctx context.Context, probe Probe) (*engine.Submodel, int, error) {
	data, err := os.ReadFile(m.Path)
	if err != nil {
		return nil, 0, fmt.Errorf("read model: %w", err)
	}
	pm := new(onnxpb.Model)
	if err := proto.Unmarshal(data, pm); err != nil {
		return nil, 0, fmt.Errorf("read model: %w", err)
	}
	declared := map[string][]*onnxpb.Shape_Dim{}
	for _, v := range pm.GetGraph().GetInput() {
		declared[v.GetName()] = v.GetType().GetTensorType().GetShape().GetDim()
	}
	sub := &engine.Submodel{Model: m.Name, Identity: m.SHA256, To: 1, Blocks: 1, WeightBytes: int64(len(data)), Nodes: m.Nodes(), ONNX: data}
	batch := 1
	for i, spec := range m.Inputs {
		spec.Shape = append([]int64(nil), spec.Shape...)
		spec.Shape[0] = 1
		if d := declared[spec.Name]; len(d) > 0 && d[0].GetDimValue() > 0 {
			spec.Shape[0] = d[0].GetDimValue()
		}
		if i == 0 {
			batch = int(spec.Shape[0])
		}
		sub.Inputs = append(sub.Inputs, spec)
	}
	values, err := probe(ctx, data, sub.Inputs, batch, m.Outputs)
	if err != nil {
		return nil, 0, err
	}
	for _, name := range m.Outputs {
		v, ok := values[name]
		if !ok {
			return nil, 0, fmt.Errorf("output %q was not made", name)
		}
		sub.Outputs = append(sub.Outputs, engine.Spec{Name: name, Type: v.Type, Shape: v.Shape})
	}
	return sub, batch, nil
}
