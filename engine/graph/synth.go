package graph

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	"inferplan/engine"
	"inferplan/engine/graph/onnxpb"
)

// builder makes graphs of our own. Their weights are seeded, and generated when a slice is written.
type builder struct {
	g       *onnxpb.Graph
	weights map[string]*seededWeight
	seed    uint64
	consts  int // constants added so far, which numbers their names
}

// newBuilder returns an empty graph whose weights will come from the seed. Seed 0 means 1.
func newBuilder(seed uint64) *builder {
	seed = cmp.Or(seed, 1)
	return &builder{g: &onnxpb.Graph{}, weights: map[string]*seededWeight{}, seed: seed}
}

// finishModel returns the model of the finished graph. There is no file to hash, so its identity is the hash of its
// name, of description, which must say all sizes, and of the seed.
func (b *builder) finishModel(name, description string) (*Model, error) {
	b.g.Name = proto.String(name)
	pm := &onnxpb.Model{IrVersion: proto.Int64(8), Graph: b.g,
		OpsetImport: []*onnxpb.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(17)}}}
	h := sha256.Sum256(fmt.Appendf(nil, "%s %s seed %d generator %d", name, description, b.seed, generatorVersion))
	m, err := newModel(pm, b.weights, hex.EncodeToString(h[:]), Options{Name: name})
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", name, err)
	}
	return m, nil
}

// input declares an input of shape [batch, dims...], and returns its name.
func (b *builder) input(name string, t engine.DType, dims ...int64) string {
	b.g.Input = append(b.g.Input, ValueInfo(engine.Spec{Name: name, Type: t, Shape: append([]int64{engine.BatchDim}, dims...)}))
	return name
}

// output declares a float32 tensor of shape [batch, dims...] as an output.
func (b *builder) output(name string, dims ...int64) {
	b.g.Output = append(b.g.Output, ValueInfo(engine.Spec{Name: name, Type: engine.F32, Shape: append([]int64{engine.BatchDim}, dims...)}))
}

// addWeight adds a seeded weight with the given mean and standard deviation dev, and returns its name.
func (b *builder) addWeight(name string, mean, dev float64, dims ...int64) string {
	b.weights[name] = &seededWeight{name: name, dims: dims, mean: mean, deviation: dev, seed: b.seed}
	return name
}

// ints adds a constant vector of integers, and returns its name.
func (b *builder) ints(v ...int64) string {
	b.consts++
	name := fmt.Sprintf("ints_%d", b.consts)
	b.g.Initializer = append(b.g.Initializer, int64Tensor(name, v, []int64{int64(len(v))}))
	return name
}

// scalarInt adds a constant integer without dimensions, and returns its name.
func (b *builder) scalarInt(v int64) string {
	b.consts++
	name := fmt.Sprintf("index_%d", b.consts)
	b.g.Initializer = append(b.g.Initializer, int64Tensor(name, []int64{v}, nil))
	return name
}

// scalar adds a constant float32 without dimensions, and returns its name.
func (b *builder) scalar(v float32) string {
	b.consts++
	name := fmt.Sprintf("scalar_%d", b.consts)
	b.g.Initializer = append(b.g.Initializer, &onnxpb.Tensor{Name: proto.String(name), DataType: proto.Int32(int32(engine.F32)), FloatData: []float32{v}})
	return name
}

// addNode adds a node of an operator (kind) with one output. The output has the node's name, which is returned, so
// that calls can be nested: the name is an input of the next node.
func (b *builder) addNode(kind, name string, in []string, attrs ...*onnxpb.Attribute) string {
	b.g.Node = append(b.g.Node, &onnxpb.Node{OpType: proto.String(kind), Name: proto.String(name), Input: in, Output: []string{name}, Attribute: attrs})
	return name
}

// IntAttr returns the attribute of a node that is an integer.
func IntAttr(name string, v int64) *onnxpb.Attribute {
	return &onnxpb.Attribute{Name: proto.String(name), Type: onnxpb.Attribute_INT.Enum(), I: proto.Int64(v)}
}

// IntsAttr returns the attribute of a node that is a list of integers.
func IntsAttr(name string, v ...int64) *onnxpb.Attribute {
	return &onnxpb.Attribute{Name: proto.String(name), Type: onnxpb.Attribute_INTS.Enum(), Ints: v}
}

// linear adds a matrix product with bias over the last dimension of x, which changes its size from inputs to
// outputs. The values that come out have gain times the standard deviation of those that go in.
func (b *builder) linear(name, x string, inputs, outputs int64, gain float64) string {
	w := b.addWeight(name+".weight", 0, gain/math.Sqrt(float64(inputs)), inputs, outputs)
	return b.addNode("Add", name, []string{b.addNode("MatMul", name+".product", []string{x, w}), b.addWeight(name+".bias", 0, 0.02, outputs)})
}

// gemm adds a matrix product with bias for x of shape [batch, inputs], as the operator Gemm. It returns the output,
// which has the shape [batch, outputs].
func (b *builder) gemm(name, x string, inputs, outputs int64) string {
	w := b.addWeight(name+".weight", 0, 1/math.Sqrt(float64(inputs)), outputs, inputs)
	return b.addNode("Gemm", name, []string{x, w, b.addWeight(name+".bias", 0, 0.02, outputs)}, IntAttr("transB", 1))
}

// norm adds a layer normalisation over the last dimension of x, of size width: (x - mean) / deviation · scale + bias.
// It is one operator or, if isDecomposed is set, elementary ones, as exporters with an old operator set write it.
func (b *builder) norm(name, x string, width int64, isDecomposed bool) string {
	scale, bias := b.addWeight(name+".scale", 1, 0.1, width), b.addWeight(name+".bias", 0, 0.1, width)
	if !isDecomposed {
		return b.addNode("LayerNormalization", name, []string{x, scale, bias}, IntAttr("axis", -1))
	}
	mean := b.addNode("ReduceMean", name+".mean", []string{x}, IntsAttr("axes", -1), IntAttr("keepdims", 1))
	centred := b.addNode("Sub", name+".centred", []string{x, mean})
	square := b.addNode("Pow", name+".square", []string{centred, b.scalar(2)})
	variance := b.addNode("ReduceMean", name+".variance", []string{square}, IntsAttr("axes", -1), IntAttr("keepdims", 1))
	deviation := b.addNode("Sqrt", name+".deviation", []string{b.addNode("Add", name+".safe", []string{variance, b.scalar(1e-5)})})
	normal := b.addNode("Div", name+".normal", []string{centred, deviation})
	return b.addNode("Add", name, []string{b.addNode("Mul", name+".scaled", []string{normal, scale}), bias})
}

// gelu adds the activation x·(1+erf(x/√2))/2, by the error function as exporters write it.
func (b *builder) gelu(name, x string) string {
	e := b.addNode("Erf", name+".erf", []string{b.addNode("Div", name+".div", []string{x, b.scalar(math.Sqrt2)})})
	y := b.addNode("Mul", name+".mul", []string{x, b.addNode("Add", name+".add", []string{e, b.scalar(1)})})
	return b.addNode("Mul", name, []string{y, b.scalar(0.5)})
}

// batchOf returns the batch of x as a vector of one element, computed from its shape as exporters do.
func (b *builder) batchOf(name, x string) string {
	n := b.addNode("Gather", name+".n", []string{b.addNode("Shape", name+".shape", []string{x}), b.scalarInt(0)}, IntAttr("axis", 0))
	return b.addNode("Unsqueeze", name+".batch", []string{n, b.ints(0)})
}

// reshape gives x the shape [batch, dims...].
func (b *builder) reshape(name, x string, dims ...int64) string {
	target := b.addNode("Concat", name+".target", []string{b.batchOf(name, x), b.ints(dims...)}, IntAttr("axis", 0))
	return b.addNode("Reshape", name, []string{x, target})
}

// attention adds multi-head self-attention over x of shape [batch, seq, width]. Each of the heads works on
// width/heads of the values. mask, if not empty, is added to the scores, and hides tokens. The result has the shape
// of x. All names of nodes begin with name.
func (b *builder) attention(name, x, mask string, seq, width, heads int64) string {
	headWidth := width / heads

	// Project x, and split the result into heads. perm orders the dimensions [batch, seq, heads, headWidth].
	project := func(part string, perm ...int64) string {
		y := b.reshape(name+"."+part+".heads", b.linear(name+"."+part, x, width, width, 1), seq, heads, headWidth)
		return b.addNode("Transpose", name+"."+part+".turned", []string{y}, IntsAttr("perm", perm...))
	}
	query, key := project("query", 0, 2, 1, 3), project("key", 0, 2, 3, 1)

	// Score every pair of tokens, and take the mean of the values by the softmax of the scores.
	scores := b.addNode("Mul", name+".scores", []string{b.addNode("MatMul", name+".dots", []string{query, key}), b.scalar(float32(1 / math.Sqrt(float64(headWidth))))})
	if mask != "" {
		scores = b.addNode("Add", name+".masked", []string{scores, mask})
	}
	shares := b.addNode("Softmax", name+".weights", []string{scores}, IntAttr("axis", -1))
	y := b.addNode("MatMul", name+".context", []string{shares, project("value", 0, 2, 1, 3)})

	// Put the heads together again.
	y = b.addNode("Transpose", name+".turned", []string{y}, IntsAttr("perm", 0, 2, 1, 3))
	return b.linear(name+".out", b.reshape(name+".joined", y, seq, width), width, width, 1)
}

// feedForward adds the second half of a transformer layer: a product that widens each token from width to inner values,
// the activation, and a product back to width.
func (b *builder) feedForward(name, x string, width, inner int64) string {
	// A smaller gain: otherwise the positive mean of the activation would add the same vector to all inputs, layer
	// after layer, until they are nearly equal.
	const gain = 0.3
	return b.linear(name+".down", b.gelu(name+".gelu", b.linear(name+".up", x, width, inner, 1)), inner, width, gain)
}

// TransformerConfig gives the sizes of BERT and ViT; a zero means the size of
// the base model.
type TransformerConfig struct {
	Layers, Hidden, Heads, Inner int
	Seq, Vocab                   int // for BERT
	Image, Patch                 int // for ViT
	Classes                      int
	Seed                         uint64
}

// complete replaces the sizes that are 0 by those of defaults, and returns an error if one is impossible.
func (c *TransformerConfig) complete(defaults TransformerConfig) error {
	for _, f := range []struct {
		name  string
		v     *int
		def   int
		limit int
	}{
		{"layers", &c.Layers, defaults.Layers, 1000}, {"hidden", &c.Hidden, defaults.Hidden, 1 << 16}, {"heads", &c.Heads, defaults.Heads, 1 << 10},
		{"inner", &c.Inner, defaults.Inner, 1 << 18}, {"seq", &c.Seq, defaults.Seq, 1 << 16}, {"vocab", &c.Vocab, defaults.Vocab, 1 << 20},
		{"image", &c.Image, defaults.Image, 1 << 13}, {"patch", &c.Patch, defaults.Patch, 1 << 10}, {"classes", &c.Classes, defaults.Classes, 1 << 20},
	} {
		if *f.v == 0 {
			*f.v = f.def
		}
		if *f.v < 0 || *f.v > f.limit {
			return fmt.Errorf("%s %d: expected 1 to %d", f.name, *f.v, f.limit)
		}
	}
	if c.Hidden%c.Heads != 0 {
		return fmt.Errorf("hidden %d is no multiple of %d heads", c.Hidden, c.Heads)
	}
	return nil
}

// BERT returns an encoder with the layer shapes of BERT-base (12 layers of width 768, 12 heads, 128 tokens),
// seeded weights and a classifier on the first token. It has the patterns of exported models: layer normalisation
// is written in elementary operators, reshapes are computed from shapes, and the attention mask is passed beside
// the tokens through all layers.
func BERT(c TransformerConfig) (*Model, error) {
	if err := c.complete(TransformerConfig{Layers: 12, Hidden: 768, Heads: 12, Inner: 3072, Seq: 128, Vocab: 30522, Classes: 2}); err != nil {
		return nil, fmt.Errorf("build bert: %w", err)
	}
	b := newBuilder(c.Seed)
	width, seq, heads := int64(c.Hidden), int64(c.Seq), int64(c.Heads)

	// The inputs: the tokens, and a mask with 1 for each that counts. The mask becomes 0 or -10000, to add to scores.
	ids := b.input("input_ids", engine.I64, seq)
	mask := b.input("attention_mask", engine.I64, seq)
	addedMask := b.addNode("Unsqueeze", "mask.wide", []string{b.addNode("Cast", "mask.float", []string{mask}, IntAttr("to", int64(engine.F32))), b.ints(1, 2)})
	addedMask = b.addNode("Mul", "mask.added", []string{b.addNode("Sub", "mask.inverse", []string{b.scalar(1), addedMask}), b.scalar(-10000)})

	// The embedding: the vector of each token and that of its position.
	words := b.addNode("Gather", "words", []string{b.addWeight("words.table", 0, 1, int64(c.Vocab), width), ids})
	x := b.addNode("Add", "embedded", []string{words, b.addWeight("positions", 0, 0.5, 1, seq, width)})
	x = b.norm("embedded.norm", x, width, true)

	// The layers, each with an attention and a feed-forward part. Each part's input is added to its output.
	for i := range c.Layers {
		l := fmt.Sprintf("layer%d", i)
		y := b.attention(l+".attention", x, addedMask, seq, width, heads)
		x = b.norm(l+".norm1", b.addNode("Add", l+".sum1", []string{y, x}), width, true)
		y = b.feedForward(l+".mlp", x, width, int64(c.Inner))
		x = b.norm(l+".norm2", b.addNode("Add", l+".sum2", []string{y, x}), width, true)
	}

	// The classifier, on the first token.
	firstToken := b.addNode("Gather", "first", []string{x, b.scalarInt(0)}, IntAttr("axis", 1))
	pooledToken := b.addNode("Tanh", "pooled", []string{b.gemm("pooler", firstToken, width, width)})
	b.output(b.gemm("logits", pooledToken, width, int64(c.Classes)), int64(c.Classes))
	return b.finishModel("bert", fmt.Sprintf("%+v", c))
}

// ViT returns a vision transformer with the layer shapes of ViT-B/16 at 224x224 (12 layers of width 768, 12 heads,
// 197 tokens) and seeded weights. The class token is expanded to the batch by shape arithmetic.
func ViT(c TransformerConfig) (*Model, error) {
	if err := c.complete(TransformerConfig{Layers: 12, Hidden: 768, Heads: 12, Inner: 3072, Image: 224, Patch: 16, Classes: 1000}); err != nil {
		return nil, fmt.Errorf("build vit: %w", err)
	}
	if c.Image%c.Patch != 0 {
		return nil, fmt.Errorf("build vit: image %d is no multiple of patch %d", c.Image, c.Patch)
	}
	b := newBuilder(c.Seed)
	width, heads, patch := int64(c.Hidden), int64(c.Heads), int64(c.Patch)
	patches := int64(c.Image/c.Patch) * int64(c.Image/c.Patch)
	seq := patches + 1 // the patches and the class token

	// The tokens: a convolution whose stride is its width turns every patch into a vector.
	image := b.input("image", engine.F32, 3, int64(c.Image), int64(c.Image))
	w := b.addWeight("patches.weight", 0, 1/math.Sqrt(float64(3*patch*patch)), width, 3, patch, patch)
	x := b.addNode("Conv", "patches", []string{image, w, b.addWeight("patches.bias", 0, 0.02, width)},
		IntsAttr("kernel_shape", patch, patch), IntsAttr("strides", patch, patch))
	x = b.addNode("Transpose", "tokens", []string{b.reshape("patches.flat", x, width, patches)}, IntsAttr("perm", 0, 2, 1))

	// The class token, once per sample, comes before the patches.
	n := b.batchOf("class", x)
	class := b.addNode("Expand", "class.batch_tokens", []string{b.addWeight("class.token", 0, 1, 1, 1, width),
		b.addNode("Concat", "class.target", []string{n, b.ints(1, width)}, IntAttr("axis", 0))})
	x = b.addNode("Concat", "sequence", []string{class, x}, IntAttr("axis", 1))
	x = b.addNode("Add", "embedded", []string{x, b.addWeight("positions", 0, 0.5, 1, seq, width)})

	// The layers, each with an attention and a feed-forward part. Each part's input is added to its output.
	for i := range c.Layers {
		l := fmt.Sprintf("layer%d", i)
		y := b.attention(l+".attention", b.norm(l+".norm1", x, width, false), "", seq, width, heads)
		x = b.addNode("Add", l+".sum1", []string{x, y})
		y = b.feedForward(l+".mlp", b.norm(l+".norm2", x, width, false), width, int64(c.Inner))
		x = b.addNode("Add", l+".sum2", []string{x, y})
	}

	// The classifier, on the class token.
	x = b.norm("final", x, width, false)
	x = b.addNode("Gather", "first", []string{x, b.scalarInt(0)}, IntAttr("axis", 1))
	b.output(b.gemm("logits", x, width, int64(c.Classes)), int64(c.Classes))
	return b.finishModel("vit", fmt.Sprintf("%+v", c))
}

// MLP returns a tiny 784-hidden-10 classifier, for measuring the cost of a request besides the model.
func MLP(hidden int, seed uint64) (*Model, error) {
	if hidden < 1 || hidden > 1<<16 {
		return nil, fmt.Errorf("build mlp: hidden %d: expected 1 to %d", hidden, 1<<16)
	}
	b := newBuilder(seed)
	x := b.input("x", engine.F32, 784)
	x = b.addNode("Relu", "hidden", []string{b.gemm("layer1", x, 784, int64(hidden))})
	b.output(b.gemm("logits", x, int64(hidden), 10), 10)
	return b.finishModel(fmt.Sprintf("mlp-%d", hidden), fmt.Sprintf("784-%d-10", hidden))
}

// Projection returns a model that multiplies a vector of inputs numbers by a random matrix, which gives a vector of
// fewer (outputs) numbers. Angles between vectors stay nearly the same (Johnson and Lindenstrauss 1984). So it makes
// an embedding of a text from its counts of words.
func Projection(inputs, outputs int, seed uint64) (*Model, error) {
	if inputs < 1 || outputs < 1 || inputs > 1<<16 || outputs > 1<<12 {
		return nil, fmt.Errorf("build projection: from %d to %d numbers: expected 1 to %d and 1 to %d", inputs, outputs, 1<<16, 1<<12)
	}
	b := newBuilder(seed)
	x := b.input("words", engine.F32, int64(inputs))
	b.output(b.addNode("MatMul", "vector", []string{x, b.addWeight("matrix", 0, 1/math.Sqrt(float64(outputs)), int64(inputs), int64(outputs))}), int64(outputs))
	return b.finishModel("embedder", fmt.Sprintf("%d-%d", inputs, outputs))
}

// MatMul returns a model that multiplies a batch of rows by a square matrix of the given size. The profiler runs it
// to find the highest rate of arithmetic that a device reaches.
func MatMul(size int, seed uint64) (*Model, error) {
	if size < 1 || size > 1<<14 {
		return nil, fmt.Errorf("build matmul: size %d: expected 1 to %d", size, 1<<14)
	}
	b := newBuilder(seed)
	x := b.input("x", engine.F32, int64(size))
	n := int64(size)
	b.output(b.addNode("MatMul", "product", []string{x, b.addWeight("matrix", 0, 1/math.Sqrt(float64(size)), n, n)}), n)
	return b.finishModel(fmt.Sprintf("matmul-%d", size), fmt.Sprintf("%d", size))
}
