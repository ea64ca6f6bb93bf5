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

// symbolicReshapes makes constant Reshape targets of compute nodes that start with 1 copy the first dimension.
func (n *sortedGraph) symbolicReshapes() {
	for _, i := range n.compute {
		nd := n.nodes[i]
		if nd.GetOpType() != "Reshape" || len(nd.Input) < 2 || n.isConst[nd.Input[0]] || attrInt(nd, "allowzero", 0) != 0 {
			continue
		}
		v, ok := n.constInts(nd.Input[1])
		if !ok || len(v) < 2 || v[0] != 1 {
			continue
		}
		n.setTarget(i, append([]int64{0}, v[1:]...))
	}
}

// setTarget replaces a node's second input by a new constant of integers.
func (n *sortedGraph) setTarget(i int, v []int64) {
	nd := proto.Clone(n.nodes[i]).(*onnxpb.Node)
	name := nd.Output[0] + "/target"
	for n.isConst[name] || n.hasTensor(name) {
		name += "_"
	}
	nd.Input[1] = name
	n.inits[name] = int64Tensor(name, v, []int64{int64(len(v))})
	n.isConst[name] = true
	n.nodes[i] = nd
}

func (n *sortedGraph) hasTensor(name string) bool {
	_, ok := n.producer[name]
	return ok
}

// shapeDerived returns the tensors that depend on inputs only through Shape and Size: their values follow from the
// inputs' dimensions.
func (n *sortedGraph) shapeDerived() map[string]bool {
	derived := map[string]bool{}
	for _, i := range n.compute {
		nd := n.nodes[i]
		yes := nd.GetOpType() == "Shape" || nd.GetOpType() == "Size"
		if !yes && !isRandom(nd) {
			yes = true
			for _, in := range readTensors(nd) {
				yes = yes && (in == "" || n.isConst[in] || derived[in])
			}
		}
		if yes {
			for _, o := range nd.Output {
				derived[o] = true
			}
		}
	}
	return derived
}

// foldShapes replaces values that are computed from shapes by constants if they do not depend on the batch, and
// makes Reshape targets follow the batch by themselves.
func (m *Model) foldShapes(ctx context.Context, probe Probe) error {
	f := shapeFolding{n: m.net.clone(), shapeDerived: m.net.shapeDerived()}
	names := f.tensorsToProbe()
	if len(names) == 0 {
		return nil
	}
	var err error
	if f.a, f.b, err = m.probePair(ctx, probe, names, names); err != nil {
		return err
	}
	for _, s := range m.Inputs { // their shapes are known without a probe
		f.a[s.Name], f.b[s.Name] = Value{Shape: s.ShapeAt(probeA)}, Value{Shape: s.ShapeAt(probeB)}
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
	shapeDerived map[string]bool // tensors that depend only on shapes
	a, b         map[string]Value
}

// tensorsToProbe returns, sorted, the shape-derived tensors that other operators read, and the data that these
// operators reshape with them.
func (f *shapeFolding) tensorsToProbe() []string {
	n, derived, leaving := f.n, f.shapeDerived, map[string]bool{}
	for _, i := range n.compute {
		nd := n.nodes[i]
		if derived[nd.Output[0]] {
			continue
		}
		for _, in := range readTensors(nd) {
			if derived[in] {
				leaving[in] = true
				if nd.GetOpType() == "Reshape" {
					leaving[nd.Input[0]] = true
				}
			}
		}
	}
	for _, in := range n.inputs {
		delete(leaving, in)
	}
	return slices.Sorted(maps.Keys(leaving))
}

// followBatch gives Reshapes with a shape-derived target a constant target that follows the batch, if the values
// at the two batch sizes allow one.
func (f *shapeFolding) followBatch() {
	n, derived, a, b := f.n, f.shapeDerived, f.a, f.b
	for _, i := range n.compute {
		nd := n.nodes[i]
		if derived[nd.Output[0]] || nd.GetOpType() != "Reshape" || len(nd.Input) < 2 || !derived[nd.Input[1]] || attrInt(nd, "allowzero", 0) != 0 {
			continue
		}
		data, to := nd.Input[0], nd.Input[1]
		va, oka := valueInts(a[to])
		vb, okb := valueInts(b[to])
		if !oka || !okb || len(va) != len(vb) {
			continue
		}
		if target, ok := reshapeTarget(va, vb, a[data].Shape, b[data].Shape); ok {
			n.setTarget(i, target)
		}
	}
}

// makeConstant turns the shape-derived tensors that are the same at both batch sizes into constants. It removes
// nodes whose outputs are all constant.
func (f *shapeFolding) makeConstant(names []string) {
	n, constants := f.n, map[string]Value{}
	for _, t := range names {
		v, w := f.a[t], f.b[t]
		if f.shapeDerived[t] && v.Data != nil && slices.Equal(v.Shape, w.Shape) && bytes.Equal(v.Data, w.Data) {
			constants[t] = v
			n.inits[t] = &onnxpb.Tensor{Name: proto.String(t), DataType: proto.Int32(int32(v.Type)), Dims: v.Shape, RawData: v.Data}
		}
	}
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

// reshapeTarget makes, from the targets seen at two batch sizes, one that needs no arithmetic. It is the same at
// both sizes, or has the batch in only one place. If there is none, it returns false.
func reshapeTarget(va, vb, da, db []int64) ([]int64, bool) {
	target := append([]int64(nil), va...)
	differs := -1
	for k := range va {
		if va[k] != vb[k] {
			if differs >= 0 {
				return nil, false
			}
			differs = k
		}
	}
	switch {
	case differs < 0:
		return target, true
	case differs == 0 && len(da) > 0 && va[0] == probeA && vb[0] == probeB && da[0] == probeA && db[0] == probeB:
		target[0] = 0
		return target, true
	}
	for k, v := range va {
		if v == -1 || (v == 0 && k != differs) {
			return nil, false
		}
	}
	target[differs] = -1
	return target, true
}

func valueInts(v Value) ([]int64, bool) {
	if v.Data == nil {
		return nil, false
	}
	return integersOf(&onnxpb.Tensor{DataType: proto.Int32(int32(v.Type)), Dims: v.Shape, RawData: v.Data})
}

// probePair measures the tensors atA at batch probeA, and the tensors atB at batch probeB.
func (m *Model) probePair(ctx context.Context, probe Probe, atA, atB []string) (a, b map[string]Value, err error) {
	values, err := m.probeShapes(ctx, probe, ProbeRun{probeA, atA}, ProbeRun{probeB, atB})
	if err != nil {
		return nil, nil, err
	}
	return values[0], values[1], nil
}

// probeShapes runs the model with the tensors of the first run as outputs. If the probe
// reports nothing about one of them, it returns an error.
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

// computedTensors returns the names of all tensors that compute nodes produce, sorted.
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

func bareSpecs(names []string) []engine.Spec {
	out := make([]engine.Spec, len(names))
	for i, s := range names {
		out[i].Name = s
	}
	return out
}

// QuantisesAsItComes reports whether the model computes the scales of its quantised values while it runs: over a
// whole batch, so that the samples of a batch change each other's scales a little.
func (m *Model) QuantisesAsItComes() bool {
	return slices.ContainsFunc(m.net.nodes, func(nd *onnxpb.Node) bool {
		return nd.GetOpType() == "DynamicQuantizeLinear" || nd.GetOpType() == "DynamicQuantizeMatMul" || nd.GetOpType() == "DynamicQuantizeLSTM"
	})
}
