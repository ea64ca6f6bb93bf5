package graph

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"inferplan/engine"
)

// ChainOptions say where a model may be cut.
type ChainOptions struct {
	// MaxLive is the largest number of tensors that may cross one cut. Zero
	// starts with 1 and goes up to 3 until there are MinCuts cuts.
	MaxLive int
	// MinCuts is what MaxLive 0 is content with; zero means 16.
	MinCuts int
	// AllShapes measures every tensor in the first probe, so that Count needs
	// no probe of its own. That probe holds all of them in memory at once.
	AllShapes bool
}

// Cut is a place where a model can be cut, with what crosses there. The first
// cut of a chain is the model's inputs, the last its outputs.
type Cut struct {
	Tensors []engine.Spec
	// Bytes per sample: as it is, and in half precision (float32 as float16,
	// int64 as int32).
	Bytes, HalfBytes int64

	pos int // compute nodes before it
}

// Names lists the tensors that cross.
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

	specs  map[string]engine.Spec // of every tensor that was measured at two batches
	values map[string]Value       // of every tensor at batch probeA; nil if only some were measured
}

// Chain finds the cuts and measures their shapes with the probe. The model
// itself is not changed.
func (m *Model) Chain(ctx context.Context, probe Probe, o ChainOptions) (*Chain, error) {
	if o.MaxLive < 0 || o.MaxLive > 64 {
		return nil, fmt.Errorf("%s: MaxLive %d: expected 0 to 64", m.Name, o.MaxLive)
	}
	if m.bound != "" {
		return nil, fmt.Errorf("%s: %s", m.Name, m.bound)
	}
	folded := *m
	m = &folded
	if err := m.fold(ctx, probe); err != nil {
		return nil, err
	}
	first, limit := o.MaxLive, o.MaxLive
	if limit == 0 {
		first, limit = 1, 3
	}
	places := m.net.places(limit)
	var names []string
	for _, p := range places {
		names = append(names, p.live...)
	}
	c := &Chain{Model: m, specs: map[string]engine.Spec{}}
	if err := c.measure(ctx, probe, slices.Concat(names, m.Outputs, m.Logits()), o.AllShapes); err != nil {
		return nil, err
	}
	for most := first; most <= limit; most++ {
		if c.cut(places, most); len(c.Cuts)-2 >= cmp.Or(o.MinCuts, 16) {
			break
		}
	}
	return c, nil
}

// measure finds the specs of tensors, by a probe of those that are no inputs. Outputs must have one.
func (c *Chain) measure(ctx context.Context, probe Probe, names []string, all bool) error {
	m := c.Model
	for _, s := range m.Inputs {
		c.specs[s.Name] = s
	}
	var ask []string
	asked := map[string]bool{}
	for _, t := range names {
		if _, input := c.specs[t]; !input && !asked[t] {
			ask, asked[t] = append(ask, t), true
		}
	}
	a, b, complete, err := m.probeCuts(ctx, probe, ask, all)
	if err != nil {
		return err
	}
	if complete {
		c.values = a
	}
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

// cut sets the cuts: the places where at most so many tensors cross, each with a spec, and others than at the cut
// before.
func (c *Chain) cut(places []place, most int) {
	c.Cuts = []Cut{newCut(c.Model.Inputs, 0)}
	last := c.Cuts[0].Names()
	for _, p := range places {
		if specs, ok := c.specsOf(p.live); ok && len(p.live) <= most && !slices.Equal(p.live, last) {
			c.Cuts = append(c.Cuts, newCut(specs, p.pos))
			last = p.live
		}
	}
	outputs, _ := c.specsOf(c.Model.Outputs)
	c.Cuts = append(c.Cuts, newCut(outputs, len(c.Model.net.compute)))
}

// specsOf returns the specs of tensors; false if one has none.
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

// probeCuts measures the named tensors at both probe batches. If all is true, it also measures
// every tensor that the model computes, at batch probeA, and complete is true. If the probe cannot
// report all of them (a sequence is no tensor, or they need too much memory), it measures only the
// named ones.
func (m *Model) probeCuts(ctx context.Context, probe Probe, names []string, all bool) (a, b map[string]Value, complete bool, err error) {
	if all {
		more := append(m.net.computed(), names...)
		slices.Sort(more)
		a, b, err = m.probePair(ctx, probe, slices.Compact(more), names)
		if err == nil || ctx.Err() != nil {
			return a, b, true, err
		}
	}
	a, b, err = m.probePair(ctx, probe, names, names)
	return a, b, false, err
}

func newCut(t []engine.Spec, pos int) Cut {
	c := Cut{Tensors: t, pos: pos}
	for _, s := range t {
		c.Bytes += s.BytesAt(1)
		s.Type = crossType(s.Type)
		c.HalfBytes += s.BytesAt(1)
	}
	return c
}

// batchSpec makes a spec of what two probes saw. It is false where the first
// dimension is not the batch, another one changes with it, or the type cannot
// cross.
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

// place is a position with its live tensors, in the order they were made.
type place struct {
	pos  int
	live []string
}

// tensor is a tensor that something reads, by positions among the compute nodes.
type tensor struct {
	name   string
	made   int  // position after which it exists
	used   int  // last position that reads it
	reader int  // the only reader, -1 for several or the end
	sub    bool // read from inside a subgraph
}

// places lists the positions where at most maxLive tensors cross and no pair
// of operators is torn apart.
func (n *net) places(maxLive int) []place {
	all := n.tensors()
	// Sweep: live tensors change by little from one position to the next.
	begins, ends := make([][]int, len(n.compute)+2), make([][]int, len(n.compute)+2)
	for k, t := range all {
		begins[t.made] = append(begins[t.made], k)
		end := min(t.used+1, len(n.compute)+1)
		ends[end] = append(ends[end], k)
	}
	var out []place
	var live []int
	for p := range n.compute {
		live = append(live, begins[p]...)
		live = slices.DeleteFunc(live, func(k int) bool { return slices.Contains(ends[p], k) })
		if p == 0 || len(live) == 0 || len(live) > maxLive ||
			slices.ContainsFunc(live, func(k int) bool { return all[k].sub || n.torn(all[k].name, all[k].reader) }) {
			continue
		}
		names := make([]string, len(live))
		for i, k := range live {
			names[i] = all[k].name
		}
		out = append(out, place{p, names})
	}
	return out
}

// tensors lists the inputs and what compute nodes make, as far as something reads it.
func (n *net) tensors() []tensor {
	users := n.consumers()
	order := map[int]int{} // node -> position among the compute nodes
	for p, i := range n.compute {
		order[i] = p
	}
	var all []tensor
	add := func(name string, made int) {
		t := tensor{name: name, made: made, used: -1, reader: -1}
		for _, u := range users[name] {
			if u < 0 {
				t.used = len(n.compute)
				continue
			}
			t.used = max(t.used, order[u])
			t.sub = t.sub || !slices.Contains(n.nodes[u].Input, name)
		}
		if len(users[name]) == 1 {
			t.reader = users[name][0]
		}
		if t.used >= 0 {
			all = append(all, t)
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
	return all
}

// Operators that runtimes fuse with what comes next or before.
var (
	fuseFirst = set("Conv ConvTranspose Gemm MatMul BatchNormalization Mul Add Sum Div Clip Sigmoid HardSigmoid Tanh")
	fuseNext  = set("BatchNormalization Relu LeakyRelu PRelu Mul Add Sum Clip Sigmoid HardSigmoid Tanh")
	// Inside a decomposed normalisation or activation no cut is worth anything.
	innerFrom = set("Sub Pow ReduceMean Sqrt Reciprocal Erf")
	innerTo   = set("Div Erf Sqrt Pow Reciprocal Dropout")
)

func set(s string) map[string]bool {
	out := map[string]bool{}
	for _, f := range strings.Fields(s) {
		out[f] = true
	}
	return out
}

// torn tells whether crossing with this tensor would part operators that
// belong together. A runtime fuses a producer with its reader only where it is
// the only one.
func (n *net) torn(tensor string, reader int) bool {
	from := ""
	if i, ok := n.producer[tensor]; ok {
		from = n.nodes[i].GetOpType()
	}
	if innerFrom[from] {
		return true
	}
	if reader < 0 {
		return false
	}
	to := n.nodes[reader].GetOpType()
	return innerTo[to] || fuseFirst[from] && fuseNext[to]
}

// Atoms counts the chain's atoms.
func (c *Chain) Atoms() int { return len(c.Cuts) - 1 }

// Find returns the index of the cut with exactly these tensors, in any order.
func (c *Chain) Find(names []string) (int, error) {
	for i, cut := range c.Cuts {
		if slices.Equal(slices.Sorted(slices.Values(cut.Names())), slices.Sorted(slices.Values(names))) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%s: no cut with the tensors %s", c.Model.Name, strings.Join(names, ", "))
}
