package graph

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sort"

	"google.golang.org/protobuf/proto"

	"inferplan/engine"
	"inferplan/engine/graph/onnxpb"
)

// Value is what a probe reports about a tensor. Data holds the values of
// small tensors (up to 4 KiB), nil for others.
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

// The batch sizes of the two probes. What counts is that a dimension follows the batch in both:
// at batch 1 alone, it may come from broadcasting. The second is the cheapest other one.
const probeA, probeB = 2, 1

// symbolicReshapes makes constant Reshape targets of compute nodes that start
// with 1 copy the first dimension.
func (n *net) symbolicReshapes() {
	for _, i := range n.compute {
		nd := n.nodes[i]
		if nd.GetOpType() != "Reshape" || len(nd.Input) < 2 || n.isConst[nd.Input[0]] || attrInt(nd, "allowzero", 0) != 0 {
			continue
		}
		v, ok := n.constInts(nd.Input[1])
		if !ok || len(v) < 2 || v[0] != 1 {
			continue
		}
		n.retarget(i, append([]int64{0}, v[1:]...))
	}
}

// retarget gives a node's second input a new constant integer value.
func (n *net) retarget(i int, v []int64) {
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

func (n *net) hasTensor(name string) bool {
	_, ok := n.producer[name]
	return ok
}

// shapeDerived tells the tensors that depend on inputs through Shape and Size
// only: their values follow from the input's dimensions.
func (n *net) shapeDerived() map[string]bool {
	out := map[string]bool{}
	for _, i := range n.compute {
		nd := n.nodes[i]
		yes := nd.GetOpType() == "Shape" || nd.GetOpType() == "Size"
		if !yes && !random(nd) {
			yes = true
			for _, in := range reads(nd) {
				yes = yes && (in == "" || n.isConst[in] || out[in])
			}
		}
		if yes {
			for _, o := range nd.Output {
				out[o] = true
			}
		}
	}
	return out
}

// fold replaces what is computed from shapes by constants where the batch does
// not matter, and makes Reshape targets follow the batch by themselves.
func (m *Model) fold(ctx context.Context, probe Probe) error {
	n := m.net
	derived := n.shapeDerived()
	if len(derived) == 0 {
		return nil
	}
	// Only values that leave the shape arithmetic matter, and the data that
	// they reshape.
	want := map[string]bool{}
	for _, i := range n.compute {
		nd := n.nodes[i]
		if derived[nd.Output[0]] {
			continue
		}
		for _, in := range reads(nd) {
			if derived[in] {
				want[in] = true
				if nd.GetOpType() == "Reshape" {
					want[nd.Input[0]] = true
				}
			}
		}
	}
	for _, in := range n.inputs {
		delete(want, in)
	}
	if len(want) == 0 {
		return nil
	}
	names := make([]string, 0, len(want))
	for s := range want {
		names = append(names, s)
	}
	sort.Strings(names)
	a, b, err := m.probeTwice(ctx, probe, names)
	if err != nil {
		return err
	}
	shapeOf := func(t string) (x, y []int64) {
		for _, s := range m.Inputs {
			if s.Name == t {
				return s.ShapeAt(probeA), s.ShapeAt(probeB)
			}
		}
		return a[t].Shape, b[t].Shape
	}
	r := n.clone()
	r.producer, r.isConst, r.compute = n.producer, cloneSet(n.isConst), n.compute
	for _, i := range n.compute {
		nd := n.nodes[i]
		if derived[nd.Output[0]] || nd.GetOpType() != "Reshape" || len(nd.Input) < 2 || !derived[nd.Input[1]] || attrInt(nd, "allowzero", 0) != 0 {
			continue
		}
		va, oka := valueInts(a[nd.Input[1]])
		vb, okb := valueInts(b[nd.Input[1]])
		da, db := shapeOf(nd.Input[0])
		if !oka || !okb || len(va) != len(vb) {
			continue
		}
		if target, ok := reshapeTarget(va, vb, da, db); ok {
			r.retarget(i, target)
		}
	}
	// Everything else that is the same at both batches becomes a constant.
	gone := map[string]bool{}
	for _, t := range names {
		if derived[t] && a[t].Data != nil && sameShape(a[t].Shape, b[t].Shape) && bytes.Equal(a[t].Data, b[t].Data) {
			r.inits[t] = &onnxpb.Tensor{Name: proto.String(t), DataType: proto.Int32(int32(a[t].Type)), Dims: a[t].Shape, RawData: a[t].Data}
			gone[t] = true
		}
	}
	var kept []*onnxpb.Node
	for _, nd := range r.nodes {
		drop := len(nd.Output) > 0
		for _, o := range nd.Output {
			drop = drop && gone[o]
		}
		if drop {
			continue
		}
		for k, o := range nd.Output {
			if gone[o] { // one of several outputs: keep the node, hide this one
				nd = proto.Clone(nd).(*onnxpb.Node)
				nd.Output[k] = o + "/unused"
			}
		}
		kept = append(kept, nd)
	}
	r.nodes = kept
	if err := r.derive(); err != nil {
		return err
	}
	m.net = r
	return nil
}

// reshapeTarget turns two targets seen at two batches into one that needs no
// arithmetic: the same at both, or with the batch in one place only.
func reshapeTarget(va, vb, da, db []int64) ([]int64, bool) {
	out := append([]int64(nil), va...)
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
		return out, true
	case differs == 0 && len(da) > 0 && va[0] == probeA && vb[0] == probeB && da[0] == probeA && db[0] == probeB:
		out[0] = 0
		return out, true
	}
	for k, v := range va {
		if v == -1 || (v == 0 && k != differs) {
			return nil, false
		}
	}
	out[differs] = -1
	return out, true
}

func cloneSet(m map[string]bool) map[string]bool {
	out := make(map[string]bool, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

func valueInts(v Value) ([]int64, bool) {
	if v.Data == nil {
		return nil, false
	}
	return ints(&onnxpb.Tensor{DataType: proto.Int32(int32(v.Type)), Dims: v.Shape, RawData: v.Data})
}

func sameShape(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// probeTwice measures the named tensors at both probe batches.
func (m *Model) probeTwice(ctx context.Context, probe Probe, names []string) (a, b map[string]Value, err error) {
	return m.probePair(ctx, probe, names, names)
}

// probePair measures tensors at batch probeA, and some of them at batch probeB.
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
	whole, err := m.encode(part{nodes: m.net.compute, inputs: m.Inputs, outputs: bareSpecs(runs[0].Names), light: true})
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

// computed returns the names of all tensors that compute nodes make, sorted.
func (n *net) computed() []string {
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

// QuantisesAsItComes tells whether the model finds the scales of its quantised values
// while it runs: over a whole batch, so that its samples change each other's a little.
func (m *Model) QuantisesAsItComes() bool {
	return slices.ContainsFunc(m.net.nodes, func(nd *onnxpb.Node) bool {
		return nd.GetOpType() == "DynamicQuantizeLinear" || nd.GetOpType() == "DynamicQuantizeMatMul" || nd.GetOpType() == "DynamicQuantizeLSTM"
	})
}
