package graph

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"

	"google.golang.org/protobuf/proto"

	"inferplan/engine"
	"inferplan/engine/graph/onnxpb"
)

// Value is a probe's report about a tensor. Data holds the values of small tensors (up to 4 KiB), and is nil for
// others.
type Value struct {
	Type  engine.DType
	Shape []int64
	Data  []byte
}

// ProbeRun is a run of a probe: a batch size, and the outputs to report.
type ProbeRun struct {
	Batch int
	Names []string
}

// Probe loads a stand-alone model, runs it on zeros and returns what every run reported. If a
// run fails, it returns those before it and the error. engine/ort supplies one.
type Probe func(ctx context.Context, onnx []byte, inputs []engine.Spec, runs ...ProbeRun) ([]map[string]Value, error)

// The batch sizes of the two probes. A dimension follows the batch if it does so in both probes: at batch 1 alone
// it may be 1 because of broadcasting. The second probe uses the cheapest other size.
const probeA, probeB = 2, 1

// symbolicReshapes frees the batch of Reshape nodes. An exporter that saw batch size 1 writes a constant target such
// as [1, 768]; this function makes it [0, 768], where 0 copies the first dimension of the data. It is called once,
// when a model is read.
func (n *sortedGraph) symbolicReshapes() {
	for _, i := range n.compute {
		nd := n.nodes[i]
		if nd.GetOpType() != "Reshape" || len(nd.Input) < 2 || n.isConst[nd.Input[0]] || attrInt(nd, "allowzero") != 0 {
			continue
		}
		target, ok := n.constInts(nd.Input[1])
		if !ok || len(target) < 2 || target[0] != 1 {
			continue
		}
		n.setTarget(i, append([]int64{0}, target[1:]...))
	}
}

// setTarget replaces the second input of node i, the target shape of a Reshape, by a new constant with these
// integers. It changes a copy of the node, because other graphs may share the original.
func (n *sortedGraph) setTarget(i int, target []int64) {
	nd := proto.Clone(n.nodes[i]).(*onnxpb.Node)
	name := nd.Output[0] + "/target"
	for n.isConst[name] || n.hasTensor(name) {
		name += "_"
	}
	nd.Input[1] = name
	n.inits[name] = int64Tensor(name, target, []int64{int64(len(target))})
	n.isConst[name] = true
	n.nodes[i] = nd
}

// hasTensor reports whether a node of the graph produces a tensor of this name.
func (n *sortedGraph) hasTensor(name string) bool {
	_, ok := n.producer[name]
	return ok
}

// shapeDerived returns the tensors that depend on inputs only through Shape and Size: their values follow from the
// inputs' dimensions. The graph's compute nodes are those that depend on an input.
func (n *sortedGraph) shapeDerived() map[string]bool {
	derived := map[string]bool{}
	for _, i := range n.compute {
		nd := n.nodes[i]
		isDerived := nd.GetOpType() == "Shape" || nd.GetOpType() == "Size"
		if !isDerived && !isRandom(nd) {
			isDerived = true
			for _, in := range readTensors(nd) {
				isDerived = isDerived && (in == "" || n.isConst[in] || derived[in])
			}
		}
		if isDerived {
			for _, o := range nd.Output {
				derived[o] = true
			}
		}
	}
	return derived
}

// foldShapes runs the model at two batch sizes, and replaces values that it computes from shapes by constants if they
// are the same at both. Reshape targets that differ are made to follow the batch by themselves. It is called before a
// model is cut, because a cut could separate such a value from the shape. The two batch sizes are probeA and probeB.
// A probe is a run of the model on zeros that returns the shapes of tensors, and the values of small ones.
func (m *Model) foldShapes(ctx context.Context, probe Probe) error {
	f := shapeFolding{n: m.net.clone(), shapeDerived: m.net.shapeDerived()}
	names := f.tensorsToProbe()
	if len(names) == 0 {
		return nil
	}
	var err error
	if f.atA, f.atB, err = m.probePair(ctx, probe, names, names); err != nil {
		return err
	}
	for _, s := range m.Inputs { // their shapes are known without a probe
		f.atA[s.Name], f.atB[s.Name] = Value{Shape: s.ShapeAt(probeA)}, Value{Shape: s.ShapeAt(probeB)}
	}
	f.followBatch()
	f.makeConstant(names)
	if err := f.n.findComputeNodes(); err != nil {
		return err
	}
	m.net = f.n
	return nil
}

// shapeFolding rewrites a graph by the values that were measured at two batch sizes.
type shapeFolding struct {
	n            *sortedGraph
	shapeDerived map[string]bool  // tensors that depend only on shapes
	atA, atB     map[string]Value // tensors as measured at batch probeA and at batch probeB
}

// tensorsToProbe returns what foldShapes has to measure, sorted: the tensors that follow from shapes and that other
// operators read, and the data that these operators reshape with them. Inputs are not among them, because their
// shapes are known.
func (f *shapeFolding) tensorsToProbe() []string {
	n, derived, wanted := f.n, f.shapeDerived, map[string]bool{}
	for _, i := range n.compute {
		nd := n.nodes[i]
		if derived[nd.Output[0]] {
			continue
		}
		for _, in := range readTensors(nd) {
			if derived[in] {
				wanted[in] = true
				if nd.GetOpType() == "Reshape" {
					wanted[nd.Input[0]] = true
				}
			}
		}
	}
	for _, in := range n.inputs {
		delete(wanted, in)
	}
	return slices.Sorted(maps.Keys(wanted))
}

// followBatch gives Reshapes whose target is computed from shapes a constant target that follows the batch by
// itself, if the values measured at the two batch sizes allow one.
func (f *shapeFolding) followBatch() {
	n, derived, a, b := f.n, f.shapeDerived, f.atA, f.atB
	for _, i := range n.compute {
		nd := n.nodes[i]
		if derived[nd.Output[0]] || nd.GetOpType() != "Reshape" || len(nd.Input) < 2 || !derived[nd.Input[1]] || attrInt(nd, "allowzero") != 0 {
			continue
		}
		data, to := nd.Input[0], nd.Input[1]
		targetA, okA := valueInts(a[to])
		targetB, okB := valueInts(b[to])
		if !okA || !okB || len(targetA) != len(targetB) {
			continue
		}
		if target, ok := reshapeTarget(targetA, targetB, a[data].Shape, b[data].Shape); ok {
			n.setTarget(i, target)
		}
	}
}

// makeConstant turns those of the named tensors that follow from shapes and are the same at both batch sizes into
// constants. It removes nodes whose outputs are all constant now. f.atA and f.atB have what was measured at the two
// batch sizes.
func (f *shapeFolding) makeConstant(names []string) {
	n, constants := f.n, map[string]Value{}
	for _, t := range names {
		atA, atB := f.atA[t], f.atB[t]
		if f.shapeDerived[t] && atA.Data != nil && slices.Equal(atA.Shape, atB.Shape) && bytes.Equal(atA.Data, atB.Data) {
			constants[t] = atA
			n.inits[t] = &onnxpb.Tensor{Name: proto.String(t), DataType: proto.Int32(int32(atA.Type)), Dims: atA.Shape, RawData: atA.Data}
		}
	}

	// Keep the nodes that still produce something else.
	isOther := func(t string) bool { return constants[t].Data == nil }
	var rest []*onnxpb.Node
	for _, nd := range n.nodes {
		if len(nd.Output) > 0 && !slices.ContainsFunc(nd.Output, isOther) {
			continue
		}
		for k, o := range nd.Output {
			if !isOther(o) { // one of several outputs: keep the node, and hide this output
				nd = proto.Clone(nd).(*onnxpb.Node)
				nd.Output[k] = o + "/unused"
			}
		}
		rest = append(rest, nd)
	}
	n.nodes = rest
}

// reshapeTarget makes a constant Reshape target that holds at every batch size. targetA and targetB are the targets
// that were computed at the batch sizes probeA and probeB, dataA and dataB the shapes of the data. The result is the
// same target if both are equal. If they differ in one place, it has there a 0 (copy the dimension of the data) or a
// -1 (all elements that are left). If there is no such target, it returns false.
func reshapeTarget(targetA, targetB, dataA, dataB []int64) ([]int64, bool) {
	// Find the place that changes with the batch.
	target := append([]int64(nil), targetA...)
	differsAt := -1
	for k := range targetA {
		if targetA[k] != targetB[k] {
			if differsAt >= 0 {
				return nil, false
			}
			differsAt = k
		}
	}
	switch {
	case differsAt < 0:
		return target, true
	case differsAt == 0 && len(dataA) > 0 && targetA[0] == probeA && targetB[0] == probeB && dataA[0] == probeA && dataB[0] == probeB:
		target[0] = 0
		return target, true
	}

	// A target that infers or copies another dimension already cannot have the -1, too.
	for k, v := range targetA {
		if v == -1 || (v == 0 && k != differsAt) {
			return nil, false
		}
	}
	target[differsAt] = -1
	return target, true
}

// valueInts returns a measured tensor's values as integers, or false if it is no small tensor of integers.
func valueInts(v Value) ([]int64, bool) {
	if v.Data == nil {
		return nil, false
	}
	return integersOf(&onnxpb.Tensor{DataType: proto.Int32(int32(v.Type)), Dims: v.Shape, RawData: v.Data})
}

// probePair runs the model at the two probe batch sizes and returns what it measured of tensors, by name: of those
// named in atA at batch probeA, and of those in atB at batch probeB.
func (m *Model) probePair(ctx context.Context, probe Probe, atA, atB []string) (a, b map[string]Value, err error) {
	values, err := m.probeShapes(ctx, probe, ProbeRun{probeA, atA}, ProbeRun{probeB, atB})
	if err != nil {
		return nil, nil, err
	}
	return values[0], values[1], nil
}

// probeShapes runs the model, without its weights, once per given run, and returns what the probe reported of the
// run's tensors. The first run must name all tensors of the later ones, because its tensors are the outputs of the
// model that is loaded. If the probe reports nothing about one of them, it returns an error. The result has a map
// from names to shapes, types and small values for each run.
func (m *Model) probeShapes(ctx context.Context, probe Probe, runs ...ProbeRun) ([]map[string]Value, error) {
	whole, err := m.encode(subgraph{nodes: m.net.compute, inputs: m.Inputs, outputs: bareSpecs(runs[0].Names), withoutWeights: true})
	if err != nil {
		return nil, err
	}
	values, err := probe(ctx, whole, m.Inputs, runs...)
	if err != nil {
		return nil, fmt.Errorf("%s: measure shapes at batch %d: %w", m.Name, runs[min(len(values), len(runs)-1)].Batch, err)
	}
	for i, r := range runs {
		for _, t := range r.Names {
			if values[i][t].Type == 0 {
				return nil, fmt.Errorf("%s: the probe reported nothing about tensor %q", m.Name, t)
			}
		}
	}
	return values, nil
}

// computedTensors returns the names of all tensors that compute nodes (those that depend on an input) produce,
// sorted.
func (n *sortedGraph) computedTensors() []string {
	var names []string
	for _, i := range n.compute {
		for _, o := range n.nodes[i].Output {
			if o != "" {
				names = append(names, o)
			}
		}
	}
	sort.Strings(names)
	return names
}

// bareSpecs returns specs with names only, for outputs whose types and shapes the runtime is to infer.
func bareSpecs(names []string) []engine.Spec {
	out := make([]engine.Spec, len(names))
	for i, s := range names {
		out[i].Name = s
	}
	return out
}

// QuantisesAsItComes reports whether the model computes the scales of its quantised values while it runs, from the
// values of the whole batch. Then the samples of a batch change each other's scales, and so each other's results, a
// little.
func (m *Model) QuantisesAsItComes() bool {
	return slices.ContainsFunc(m.net.nodes, func(nd *onnxpb.Node) bool {
		return nd.GetOpType() == "DynamicQuantizeLinear" || nd.GetOpType() == "DynamicQuantizeMatMul" || nd.GetOpType() == "DynamicQuantizeLSTM"
	})
}
