package graph

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	"inferplan/engine"
	"inferplan/engine/graph/onnxpb"
)

// Blocks is a chain cut into blocks. Block i lies between the cuts Bounds[i]
// and Bounds[i+1].
type Blocks struct {
	Chain  *Chain
	Bounds []int
}

// Len returns the number of blocks.
func (b *Blocks) Len() int { return len(b.Bounds) - 1 }

// Cut returns the cut before block i; Cut(Len()) is the model's outputs.
func (b *Blocks) Cut(i int) Cut { return b.Chain.Cuts[b.Bounds[i]] }

// Partition groups a chain's atoms (the parts between its cuts) into n blocks, or fewer if there are fewer atoms, so
// that the largest cost is smallest and, among these divisions, the fewest bytes cross. costs has one entry per
// atom: measured times, or bytes.
func (c *Chain) Partition(costs []float64, n int) (*Blocks, error) {
	if len(costs) != c.AtomCount() {
		return nil, fmt.Errorf("%s: %d costs for %d atoms", c.Model.Name, len(costs), c.AtomCount())
	}
	if n < 1 {
		return nil, fmt.Errorf("%s: %d blocks: expected at least 1", c.Model.Name, n)
	}
	for i, v := range costs {
		if !(v >= 0) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("%s: cost of atom %d is %v: expected a number that is not negative", c.Model.Name, i, v)
		}
	}
	cross := make([]int64, len(c.Cuts))
	for i := range c.Cuts {
		cross[i] = c.Cuts[i].Bytes
	}
	return &Blocks{c, partitionAtoms(costs, cross, min(n, len(costs)))}, nil
}

// partitionAtoms divides atoms (the parts of a model between its cuts) into n consecutive blocks, by dynamic
// programming. costs has one entry per atom, cross[i] is the bytes that cross before atom i. It finds the smallest
// possible largest cost of a block, and then, at that cost, the fewest crossing bytes. The result holds the first
// atom of each block, and the number of atoms.
func partitionAtoms(costs []float64, cross []int64, n int) []int {
	atoms := len(costs)
	sum := make([]float64, atoms+1) // sum[i] is the cost of the first i atoms
	for i, v := range costs {
		sum[i+1] = sum[i] + v
	}

	// minLargest[k][j] is the smallest possible largest cost of k blocks over the first j atoms. The last of them
	// begins at some atom i.
	minLargest := make([][]float64, n+1)
	for k := range minLargest {
		minLargest[k] = make([]float64, atoms+1)
		for j := range minLargest[k] {
			minLargest[k][j] = math.Inf(1)
		}
	}
	minLargest[0][0] = 0
	for k := 1; k <= n; k++ {
		for j := k; j <= atoms; j++ {
			for i := k - 1; i < j; i++ {
				if v := math.Max(minLargest[k-1][i], sum[j]-sum[i]); v < minLargest[k][j] {
					minLargest[k][j] = v
				}
			}
		}
	}

	// bytes[k][j] is the fewest bytes that cross the cuts of k blocks over the first j atoms, where no block costs more
	// than the limit. lastStart[k][j] is the first atom of the last of these blocks. The limit allows for rounding.
	limit := minLargest[n][atoms] * (1 + 1e-9)
	const unreachable = math.MaxInt64
	bytes := make([][]int64, n+1)
	lastStart := make([][]int, n+1)
	for k := range bytes {
		bytes[k] = make([]int64, atoms+1)
		lastStart[k] = make([]int, atoms+1)
		for j := range bytes[k] {
			bytes[k][j] = unreachable
		}
	}
	bytes[0][0] = 0
	for k := 1; k <= n; k++ {
		for j := k; j <= atoms; j++ {
			for i := k - 1; i < j; i++ {
				if bytes[k-1][i] == unreachable || sum[j]-sum[i] > limit {
					continue
				}
				if v := bytes[k-1][i] + cross[j]; v < bytes[k][j] {
					bytes[k][j], lastStart[k][j] = v, i
				}
			}
		}
	}

	// Read the bounds back from the end.
	bounds := make([]int, n+1)
	for k, j := n, atoms; k > 0; k-- {
		bounds[k] = j
		j = lastStart[k][j]
	}
	return bounds
}

// CutAt makes blocks at given inner cuts, in the model's order. Each cut is the list of the names of the tensors that
// cross, as plans and profiles store it. A cut that the chain (the model with its possible cuts) does not have is an
// error.
func (c *Chain) CutAt(cuts [][]string) (*Blocks, error) {
	b := &Blocks{Chain: c, Bounds: []int{0}}
	for k, names := range cuts {
		i, err := c.FindCut(names)
		if err != nil {
			return nil, fmt.Errorf("cut %d: %w", k+1, err)
		}
		if i <= b.Bounds[len(b.Bounds)-1] || i == c.AtomCount() {
			return nil, fmt.Errorf("cut %d: %s: cuts must lie inside the model and follow its order", k+1, c.Model.Name)
		}
		b.Bounds = append(b.Bounds, i)
	}
	b.Bounds = append(b.Bounds, c.AtomCount())
	return b, nil
}

// EachAtom makes every atom a block, so that atoms can be timed.
func (c *Chain) EachAtom() *Blocks {
	b := &Blocks{Chain: c}
	for i := range c.Cuts {
		b.Bounds = append(b.Bounds, i)
	}
	return b
}

// WholeModel makes one block of the whole model.
func (c *Chain) WholeModel() *Blocks { return &Blocks{c, []int{0, c.AtomCount()}} }

// WeightBytes returns the size of the weights of the blocks [i,j).
func (b *Blocks) WeightBytes(i, j int) int64 {
	return b.Chain.Model.net.weightBytes(b.nodesOf(i, j), false)
}

// Nodes returns the number of operators of the blocks [i,j).
func (b *Blocks) Nodes(i, j int) int { return len(b.nodesOf(i, j)) }

func (b *Blocks) nodesOf(i, j int) []int {
	c := b.Chain
	return c.Model.net.compute[c.Cuts[b.Bounds[i]].pos:c.Cuts[b.Bounds[j]].pos]
}

// SliceOptions describe the boundary of a slice, and its precision.
type SliceOptions struct {
	// FP16In and FP16Out let inner cuts cross in half precision: float32 as
	// float16, int64 as int32. The producer's end and the consumer's start
	// convert. The model's own inputs and outputs stay as they are.
	FP16In, FP16Out bool
	// FP16 lets the slice compute in float16: its weights, and all that was float32 inside. Casts keep its
	// boundary as it is.
	FP16 bool
	// Extra names inner tensors that become additional outputs. Logits and tensors that cross a cut have a
	// declared shape. Other tensors have none, and can only be used by runs that ask for outputs by name.
	Extra []string
}

// Slice returns the blocks [i,j) as a stand-alone model that an engine can load, with its boundary: the tensors of
// the cuts before block i and before block j as inputs and outputs. Where tensors cross in float16, or the inside
// computes in it, it adds the casts between the types outside and inside. Its tensors keep the names of the model's
// own, except where a tensor inside needs another name.
func (b *Blocks) Slice(i, j int, o SliceOptions) (*engine.Submodel, error) {
	if i < 0 || j > b.Len() || i >= j {
		return nil, fmt.Errorf("%s: blocks [%d,%d) of %d", b.Chain.Model.Name, i, j, b.Len())
	}
	m := b.Chain.Model
	firstCut, lastCut := b.Cut(i), b.Cut(j)
	p := subgraph{name: fmt.Sprintf("%s/%d-%d", m.Name, i, j), nodes: b.nodesOf(i, j), rename: map[string]string{}, fp16: o.FP16}
	outgoing := map[string]bool{}
	for _, s := range lastCut.Tensors {
		outgoing[s.Name] = true
	}
	halfIn, halfOut := o.FP16In && i > 0, o.FP16Out && j < b.Len()

	// Declare the inputs, with a cast where the type outside differs from the type inside.
	for _, s := range firstCut.Tensors {
		outer := s
		if halfIn {
			outer.Type = crossType(s.Type)
		}
		if outgoing[s.Name] { // a tensor that passes through: the output keeps the name
			outer.Name = s.Name + "@in"
			p.rename[s.Name] = outer.Name
		}
		if inner := p.innerType(s.Type); outer.Type != inner {
			inside := s.Name + "@full"
			p.rename[s.Name] = inside
			if b.startsNorm(p.nodes, s.Name) { // see barrierNode
				cast := s.Name + "@cast"
				p.nodesBefore = append(p.nodesBefore, castNode(outer.Name, cast, inner), barrierNode(cast, inside))
				p.inits = append(p.inits, int64Tensor(inside+"/target", make([]int64, len(s.Shape)), []int64{int64(len(s.Shape))}))
			} else {
				p.nodesBefore = append(p.nodesBefore, castNode(outer.Name, inside, inner))
			}
		}
		p.inputs = append(p.inputs, outer)
	}

	// Declare the outputs, with a cast or a copy where needed.
	for _, s := range lastCut.Tensors {
		outer := s
		if halfOut {
			outer.Type = crossType(s.Type)
		}
		inner := s.Name // name of the tensor inside
		to, isRenamed := p.rename[s.Name]
		if isRenamed {
			inner = to
		}
		switch {
		case outer.Type != p.innerType(s.Type):
			if !isRenamed {
				inner = p.innerName(s.Name)
			}
			p.nodesAfter = append(p.nodesAfter, castNode(inner, outer.Name, outer.Type))
		case isRenamed:
			p.nodesAfter = append(p.nodesAfter, &onnxpb.Node{OpType: proto.String("Identity"), Name: proto.String(s.Name + "@copy"),
				Input: []string{inner}, Output: []string{s.Name}})
		}
		p.outputs = append(p.outputs, outer)
	}

	// Describe the slice.
	sub := &engine.Submodel{
		Model: m.Name, Identity: m.Identity, From: i, To: j, Blocks: b.Len(), Inputs: p.inputs, Outputs: p.outputs,
		WeightBytes: m.net.weightBytes(p.nodes, o.FP16), Nodes: len(p.nodes), Folder: m.folder,
	}
	if !o.FP16 { // weights that are converted are part of the slice
		sub.WeightFiles = m.net.weightFiles(p.nodes)
	}

	// Add the extra outputs (o.Extra: tensors inside that a check reads), and write the model.
	inside := map[string]bool{}
	for _, k := range p.nodes {
		for _, t := range m.net.nodes[k].Output {
			inside[t] = true
		}
	}
	for _, t := range o.Extra {
		if outgoing[t] {
			continue
		}
		if !inside[t] {
			return nil, fmt.Errorf("%s: blocks [%d,%d) do not make tensor %q", m.Name, i, j, t)
		}
		spec, ok := b.Chain.specs[t]
		if !ok {
			spec = engine.Spec{Name: t}
		}
		if p.innerType(spec.Type) != spec.Type {
			p.nodesAfter = append(p.nodesAfter, castNode(p.innerName(t), t, spec.Type))
		}
		p.outputs = append(p.outputs, spec)
		outgoing[t] = true
	}
	sub.Outputs = p.outputs
	var err error
	sub.ONNX, err = m.encode(p)
	return sub, err
}

// innerName gives a tensor that leaves the subgraph another name inside it, and returns that: its own name is that
// of the cast tensor outside.
func (p *subgraph) innerName(name string) string {
	p.rename[name] = name + "@full"
	return p.rename[name]
}

// castNode makes a node that converts the tensor input to type t under the name to.
func castNode(input, to string, t engine.DType) *onnxpb.Node {
	return &onnxpb.Node{OpType: proto.String("Cast"), Name: proto.String(to + "@cast"), Input: []string{input}, Output: []string{to},
		Attribute: []*onnxpb.Attribute{{Name: proto.String("to"), Type: onnxpb.Attribute_INT.Enum(), I: proto.Int64(int64(t))}}}
}

// startsNorm reports whether one of the nodes takes the mean of this tensor, as a layer normalisation that is
// written in elementary operators does first.
func (b *Blocks) startsNorm(nodes []int, tensor string) bool {
	for _, i := range nodes {
		nd := b.Chain.Model.net.nodes[i]
		if nd.GetOpType() == "ReduceMean" && len(nd.Input) > 0 && nd.Input[0] == tensor {
			return true
		}
	}
	return false
}

// barrierNode makes a node that passes a tensor on unchanged, by a reshape that moves no bytes. It separates a
// cast from a decomposed layer normalisation: ONNX Runtime 1.29 takes such a cast for a part of the normalisation,
// fuses both into one operator over mixed types, and then refuses that operator.
func barrierNode(input, to string) *onnxpb.Node {
	return &onnxpb.Node{OpType: proto.String("Reshape"), Name: proto.String(to + "@barrier"), Input: []string{input, to + "/target"}, Output: []string{to}}
}
