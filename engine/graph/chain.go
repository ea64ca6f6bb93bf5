package graph

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"inferplan/engine"
)

// ChainOptions say where a model may be cut.
type ChainOptions struct {
	// MaxLive is the largest number of tensors that may cross one cut. Zero
	// starts with 1 and goes up to 3 until there are enoughCuts.
	MaxLive int
	// AllShapes measures every tensor in the first probe, so that CountWork needs
	// no probe of its own. That probe holds all of them in memory at once.
	AllShapes bool
}

// enoughCuts is the number of cuts from which on no more tensors are allowed to cross one.
const enoughCuts = 16

// Cut is a place where a model can be cut, with the tensors that cross there. The first cut of a chain is the
// model's inputs, the last its outputs.
type Cut struct {
	Tensors []engine.Spec
	// Bytes per sample: unchanged, and in half precision (float32 as float16, int64 as int32).
	Bytes, HalfBytes int64

	pos int // number of compute nodes before it
}

// Names returns the names of the tensors that cross.
func (c Cut) Names() []string {
	out := make([]string, len(c.Tensors))
	for i, t := range c.Tensors {
		out[i] = t.Name
	}
	return out
}

// Chain is a model with its cuts. Atom i lies between Cuts[i] and Cuts[i+1].
type Chain struct {
	Model *Model
	Cuts  []Cut

	specs  map[string]engine.Spec // the specs of all tensors that were measured at two batch sizes
	values map[string]Value       // the values of all tensors at batch probeA; nil if only some were measured
}

// Chain finds the cuts of the model, the places where few tensors cross, and measures their shapes with the probe.
// It does not change the model.
func (m *Model) Chain(ctx context.Context, probe Probe, o ChainOptions) (*Chain, error) {
	if o.MaxLive < 0 || o.MaxLive > 64 {
		return nil, fmt.Errorf("%s: MaxLive %d: expected 0 to 64", m.Name, o.MaxLive)
	}
	if m.boundReason != "" {
		return nil, fmt.Errorf("%s: %s", m.Name, m.boundReason)
	}

	// Make a copy of the model whose shapes follow the batch.
	foldedModel := *m
	m = &foldedModel
	if err := m.foldShapes(ctx, probe); err != nil {
		return nil, err
	}

	// Find where few tensors cross, and measure these tensors. Without o.MaxLive, one to three tensors may cross.
	minLive, limit := o.MaxLive, o.MaxLive
	if limit == 0 {
		minLive, limit = 1, 3
	}
	places := m.net.cutCandidates(limit)
	var names []string
	for _, p := range places {
		names = append(names, p.live...)
	}
	c := &Chain{Model: m, specs: map[string]engine.Spec{}}
	if err := c.measureSpecs(ctx, probe, slices.Concat(names, m.Outputs, m.Logits()), o.AllShapes); err != nil {
		return nil, err
	}

	// Allow more tensors to cross, one by one, until there are enough cuts. The first and the last do not count.
	for maxLive := minLive; maxLive <= limit; maxLive++ {
		if c.setCuts(places, maxLive); len(c.Cuts)-2 >= enoughCuts {
			break
		}
	}
	return c, nil
}

// measureSpecs finds the specs (type and shape per sample) of the named tensors for c.specs, with a probe at two
// batch sizes for those that are not inputs. A tensor whose first dimension is not the batch gets none. It returns
// an error if an output has none. With allTensors, it also keeps the values of every tensor.
func (c *Chain) measureSpecs(ctx context.Context, probe Probe, names []string, allTensors bool) error {
	m := c.Model
	for _, s := range m.Inputs {
		c.specs[s.Name] = s
	}

	// List what has to be measured: each tensor once, without the inputs.
	var ask []string
	requested := map[string]bool{}
	for _, t := range names {
		if _, input := c.specs[t]; !input && !requested[t] {
			ask, requested[t] = append(ask, t), true
		}
	}
	a, b, complete, err := m.probeCuts(ctx, probe, ask, allTensors)
	if err != nil {
		return err
	}
	if complete {
		c.values = a
	}

	// Keep the specs of tensors that grow with the batch. The outputs must be among them.
	for _, t := range ask {
		if s, ok := batchSpec(t, a[t], b[t]); ok {
			c.specs[t] = s
		}
	}
	for _, t := range m.Outputs {
		if _, ok := c.specs[t]; !ok {
			return fmt.Errorf("%s: output %q has shape %v at batch %d and %v at batch %d: its first dimension must be the batch and no other may change with it",
				m.Name, t, a[t].Shape, probeA, b[t].Shape, probeB)
		}
	}
	return nil
}

// setCuts sets c.Cuts: the inputs, the candidates (places) at which at most maxLive tensors cross, all with a spec,
// and the outputs. A candidate at which the same tensors cross as at the cut before is left out. places are positions
// between compute nodes, each with the tensors that are live there.
func (c *Chain) setCuts(places []cutCandidate, maxLive int) {
	c.Cuts = []Cut{newCut(c.Model.Inputs, 0)}
	lastNames := c.Cuts[0].Names()
	for _, p := range places {
		if specs, ok := c.specsOf(p.live); ok && len(p.live) <= maxLive && !slices.Equal(p.live, lastNames) {
			c.Cuts = append(c.Cuts, newCut(specs, p.pos))
			lastNames = p.live
		}
	}
	outputs, _ := c.specsOf(c.Model.Outputs)
	c.Cuts = append(c.Cuts, newCut(outputs, len(c.Model.net.compute)))
}

// specsOf returns the specs (type and shape per sample) of tensors, or false if one has none.
func (c *Chain) specsOf(names []string) ([]engine.Spec, bool) {
	out := make([]engine.Spec, len(names))
	for i, t := range names {
		var ok bool
		if out[i], ok = c.specs[t]; !ok {
			return nil, false
		}
	}
	return out, true
}

// probeCuts measures the named tensors at both probe batch sizes. If allTensors is set, it also measures every
// tensor that the model computes, at batch probeA, and then returns complete as true. If the probe cannot report
// all tensors (some are sequences, or they need too much memory), it measures only the named ones.
func (m *Model) probeCuts(ctx context.Context, probe Probe, names []string, allTensors bool) (a, b map[string]Value, complete bool, err error) {
	if allTensors {
		allNames := append(m.net.computedTensors(), names...)
		slices.Sort(allNames)
		a, b, err = m.probePair(ctx, probe, slices.Compact(allNames), names)
		if err == nil || ctx.Err() != nil {
			return a, b, true, err
		}
	}
	a, b, err = m.probePair(ctx, probe, names, names)
	return a, b, false, err
}

// newCut makes a cut, a place where a model can be divided, behind its first pos compute nodes. tensors are those
// that cross there. It counts their bytes for one sample, as they are and in half precision.
func newCut(tensors []engine.Spec, pos int) Cut {
	c := Cut{Tensors: tensors, pos: pos}
	for _, s := range tensors {
		c.Bytes += s.BytesAt(1)
		s.Type = crossType(s.Type)
		c.HalfBytes += s.BytesAt(1)
	}
	return c
}

// batchSpec makes the spec of a tensor from what was measured at the batch sizes probeA (a) and probeB (b). It
// returns false if the first dimension is not the batch, if another one changes with it, or if the type cannot cross
// a cut.
func batchSpec(name string, a, b Value) (engine.Spec, bool) {
	s := engine.Spec{Name: name, Type: a.Type, Shape: append([]int64(nil), a.Shape...)}
	if len(a.Shape) == 0 || len(a.Shape) != len(b.Shape) || a.Shape[0] != probeA || b.Shape[0] != probeB || a.Type.Size() == 0 {
		return s, false
	}
	for i := 1; i < len(a.Shape); i++ {
		if a.Shape[i] != b.Shape[i] || a.Shape[i] <= 0 {
			return s, false
		}
	}
	s.Shape[0] = engine.BatchDim
	return s, true
}

// cutCandidate is a position between nodes with its live tensors, in the order in which they are produced.
type cutCandidate struct {
	pos  int
	live []string
}

// liveRange says where a tensor that something reads is live, by positions among the compute nodes.
type liveRange struct {
	name     string
	from     int  // first position at which it exists
	lastRead int  // last position that reads it
	reader   int  // the only node that reads it; -1 if there are several, or if it is an output
	sub      bool // a subgraph reads it
}

// cutCandidates returns the positions between compute nodes at which the model could be cut: at most maxLive tensors
// cross (are produced before and read after), and no pair of operators is separated that runtimes fuse. p counts the
// compute nodes before the position.
func (n *sortedGraph) cutCandidates(maxLive int) []cutCandidate {
	// List, by position, the tensors that become live there and those that are no longer live.
	ranges := n.liveRanges()
	beginsAt, endsAt := make([][]int, len(n.compute)+2), make([][]int, len(n.compute)+2)
	for k, t := range ranges {
		beginsAt[t.from] = append(beginsAt[t.from], k)
		end := min(t.lastRead+1, len(n.compute)+1)
		endsAt[end] = append(endsAt[end], k)
	}

	// Sweep over the positions, since live tensors change little from one to the next. A tensor that the body of an If
	// or Loop reads cannot cross, because bodies read by name.
	var out []cutCandidate
	var live []int
	for p := range n.compute {
		live = append(live, beginsAt[p]...)
		live = slices.DeleteFunc(live, func(k int) bool { return slices.Contains(endsAt[p], k) })
		if p == 0 || len(live) == 0 || len(live) > maxLive ||
			slices.ContainsFunc(live, func(k int) bool { return ranges[k].sub || n.splitsFusedPair(ranges[k].name, ranges[k].reader) }) {
			continue
		}
		names := make([]string, len(live))
		for i, k := range live {
			names[i] = ranges[k].name
		}
		out = append(out, cutCandidate{p, names})
	}
	return out
}

// liveRanges returns, for the inputs and all tensors that compute nodes produce, from which position to which the
// tensor is live: produced, and still to be read. Tensors that nothing reads have none. Positions count the compute
// nodes (those that depend on an input). reader is the index of the only node that reads it, or -1; sub says that the
// body of an If or Loop reads it.
func (n *sortedGraph) liveRanges() []liveRange {
	// Number the compute nodes in their order.
	users := n.consumers()
	positions := map[int]int{} // from node to position among the compute nodes
	for p, i := range n.compute {
		positions[i] = p
	}
	var ranges []liveRange

	// add appends a tensor with the last position that reads it, if anything does.
	add := func(name string, from int) {
		t := liveRange{name: name, from: from, lastRead: -1, reader: -1}
		for _, u := range users[name] {
			if u < 0 {
				t.lastRead = len(n.compute)
				continue
			}
			t.lastRead = max(t.lastRead, positions[u])
			t.sub = t.sub || !slices.Contains(n.nodes[u].Input, name)
		}
		if len(users[name]) == 1 {
			t.reader = users[name][0]
		}
		if t.lastRead >= 0 {
			ranges = append(ranges, t)
		}
	}
	for _, in := range n.inputs {
		add(in, 0)
	}
	for p, i := range n.compute {
		for _, o := range n.nodes[i].Output {
			if o != "" {
				add(o, p+1)
			}
		}
	}
	return ranges
}

// Operators that runtimes fuse with the next, or with the one before.
var (
	fuseFirst = setOf("Conv ConvTranspose Gemm MatMul BatchNormalization Mul Add Sum Div Clip Sigmoid HardSigmoid Tanh")
	fuseNext  = setOf("BatchNormalization Relu LeakyRelu PRelu Mul Add Sum Clip Sigmoid HardSigmoid Tanh")
	// A cut inside a decomposed normalisation or activation is of no use.
	innerFrom = setOf("Sub Pow ReduceMean Sqrt Reciprocal Erf")
	innerTo   = setOf("Div Erf Sqrt Pow Reciprocal Dropout")
)

// setOf returns the words of a text as a set.
func setOf(s string) map[string]bool {
	out := map[string]bool{}
	for _, f := range strings.Fields(s) {
		out[f] = true
	}
	return out
}

// splitsFusedPair reports whether a cut at this tensor would separate operators that runtimes execute as one. reader
// is the only node that reads the tensor, or -1 if there is no single one: then no runtime fuses it with its
// producer. The inside of a decomposed normalisation or activation is never cut.
func (n *sortedGraph) splitsFusedPair(tensor string, reader int) bool {
	producerOp := ""
	if i, ok := n.producer[tensor]; ok {
		producerOp = n.nodes[i].GetOpType()
	}
	if innerFrom[producerOp] {
		return true
	}
	if reader < 0 {
		return false
	}
	to := n.nodes[reader].GetOpType()
	return innerTo[to] || fuseFirst[producerOp] && fuseNext[to]
}

// AtomCount returns the number of atoms.
func (c *Chain) AtomCount() int { return len(c.Cuts) - 1 }

// FindCut returns the index of the cut at which exactly these tensors cross, in any order, or an error if there is
// none. It is an index into c.Cuts.
func (c *Chain) FindCut(names []string) (int, error) {
	for i, cut := range c.Cuts {
		if slices.Equal(slices.Sorted(slices.Values(cut.Names())), slices.Sorted(slices.Values(names))) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%s: no cut with the tensors %s", c.Model.Name, strings.Join(names, ", "))
}
