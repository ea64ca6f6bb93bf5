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
	limit, first := o.MaxLive, o.MaxLive
	if limit == 0 {
		first, limit = 1, 3
	}
	minCuts := o.MinCuts
	if minCuts == 0 {
		minCuts = 16
	}
	places := m.net.places(limit)
	want := map[string]bool{}
	var names []string
	add := func(t string) {
		if !want[t] {
			want[t] = true
			names = append(names, t)
		}
	}
	for _, p := range places {
		for _, t := range p.live {
			add(t)
		}
	}
	for _, t := range m.Outputs {
		add(t)
	}
	for _, t := range m.Logits() {
		add(t)
	}
	given := map[string]engine.Spec{}
	for _, s := range m.Inputs {
		given[s.Name] = s
	}
	ask := names[:0:0]
	for _, t := range names {
		if _, ok := given[t]; !ok {
			ask = append(ask, t)
		}
	}
	a, b, complete, err := m.probeCuts(ctx, probe, ask, o.AllShapes)
	if err != nil {
		return nil, err
	}
	specs := map[string]engine.Spec{}
	for _, t := range names {
		if s, ok := given[t]; ok {
			specs[t] = s
		} else if s, ok := batchSpec(t, a[t], b[t]); ok {
			specs[t] = s
		}
	}
	outs := make([]engine.Spec, len(m.Outputs))
	for i, t := range m.Outputs {
		s, ok := specs[t]
		if !ok {
			return nil, fmt.Errorf("%s: output %q has shape %v at batch %d and %v at batch %d: its first dimension must be the batch and no other may change with it",
				m.Name, t, a[t].Shape, probeA, b[t].Shape, probeB)
		}
		outs[i] = s
	}
	c := &Chain{Model: m, specs: specs}
	if complete {
		c.values = a
	}
	for k := first; k <= limit; k++ {
		c.Cuts = []Cut{newCut(m.Inputs, 0)}
		last := strings.Join(c.Cuts[0].Names(), "\x00")
		for _, p := range places {
			if len(p.live) > k {
				continue
			}
			cut := make([]engine.Spec, 0, len(p.live))
			for _, t := range p.live {
				if s, ok := specs[t]; ok {
					cut = append(cut, s)
				}
			}
			if key := strings.Join(p.live, "\x00"); len(cut) == len(p.live) && key != last {
				c.Cuts = append(c.Cuts, newCut(cut, p.pos))
				last = key
			}
		}
		c.Cuts = append(c.Cuts, newCut(outs, len(m.net.compute)))
		if len(c.Cuts)-2 >= minCuts {
			break
		}
	}
	return c, nil
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
	a, b, err = m.probeTwice(ctx, probe, names)
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

// places lists the positions where at most maxLive tensors cross and no pair
// of operators is torn apart.
func (n *net) places(maxLive int) []place {
	users := n.consumers()
	order := map[int]int{} // node -> position among the compute nodes
	for p, i := range n.compute {
		order[i] = p
	}
	type tensor struct {
		name   string
		made   int  // position after which it exists
		used   int  // last position that reads it
		reader int  // the only reader, -1 for several or the end
		sub    bool // read from inside a subgraph
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
	// Sweep: live tensors change by little from one position to the next.
	begins := make([][]int, len(n.compute)+2)
	ends := make([][]int, len(n.compute)+2)
	for k, t := range all {
		begins[t.made] = append(begins[t.made], k)
		ends[min(t.used+1, len(n.compute)+1)] = append(ends[min(t.used+1, len(n.compute)+1)], k)
	}
	var out []place
	live := []int{}
	for p := 0; p < len(n.compute); p++ {
		live = append(live, begins[p]...)
		for _, gone := range ends[p] {
			for x, k := range live {
				if k == gone {
					live = append(live[:x], live[x+1:]...)
					break
				}
			}
		}
		if p == 0 || len(live) == 0 || len(live) > maxLive {
			continue
		}
		pl := place{pos: p}
		for _, k := range live {
			t := all[k]
			if t.sub || n.torn(t.name, t.reader) {
				pl.live = nil
				break
			}
			pl.live = append(pl.live, t.name)
		}
		if pl.live != nil {
			out = append(out, pl)
		}
	}
	return out
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
		if sameNames(cut.Names(), names) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%s: no cut with the tensors %s", c.Model.Name, strings.Join(names, ", "))
}

func sameNames(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	have := map[string]bool{}
	for _, s := range a {
		have[s] = true
	}
	for _, s := range b {
		if !have[s] {
			return false
		}
	}
	return true
}
