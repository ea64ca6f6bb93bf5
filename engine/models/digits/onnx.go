package digits

import (
	"encoding/binary"
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/engine/graph/onnxpb"
)

// Model returns the trained classifier as an ONNX graph from images [N,784] to the scores of ten classes: logits for
// the networks with one hidden layer, probabilities for the convolutional one.
func (c *Classifier) Model() (*graph.Model, error) {
	b := &builder{g: &onnxpb.Graph{Name: proto.String(c.Name)}}
	b.g.Input = []*onnxpb.ValueInfo{graph.ValueInfo(engine.Spec{Name: "image", Type: engine.F32, Shape: []int64{engine.BatchDim, Pixels}})}
	b.g.Output = []*onnxpb.ValueInfo{graph.ValueInfo(engine.Spec{Name: "scores", Type: engine.F32, Shape: []int64{engine.BatchDim, classes}})}
	switch n := c.net.(type) {
	case *mlp:
		b.mlp(n)
	case *conv:
		b.conv(n)
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(&onnxpb.Model{IrVersion: proto.Int64(8), ProducerName: proto.String("inferplan"), Graph: b.g,
		OpsetImport: []*onnxpb.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(17)}}})
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", c.Name, err)
	}
	m, err := graph.Read(c.Name, data, graph.Options{Name: c.Name})
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", c.Name, err)
	}
	return m, nil
}

// builder makes the graph of a trained classifier.
type builder struct{ g *onnxpb.Graph }

// op adds a node of an operator (kind) whose name and only output are out, and returns that name.
func (b *builder) op(kind, out string, in []string, attrs ...*onnxpb.Attribute) string {
	b.g.Node = append(b.g.Node, &onnxpb.Node{OpType: proto.String(kind), Name: proto.String(out), Input: in, Output: []string{out}, Attribute: attrs})
	return out
}

// floats adds a constant of float32 values, and returns its name.
func (b *builder) floats(name string, v []float32, dims ...int64) string {
	raw := make([]byte, 0, 4*len(v))
	for _, x := range v {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	b.g.Initializer = append(b.g.Initializer, &onnxpb.Tensor{Name: proto.String(name), DataType: proto.Int32(int32(engine.F32)), Dims: dims, RawData: raw})
	return name
}

// ints adds a constant vector of integers, and returns its name.
func (b *builder) ints(name string, v ...int64) string {
	b.g.Initializer = append(b.g.Initializer, &onnxpb.Tensor{Name: proto.String(name), DataType: proto.Int32(int32(engine.I64)), Dims: []int64{int64(len(v))}, Int64Data: v})
	return name
}

// mlp adds the nodes of a network with one hidden layer: image, product, rectifier, product, scores.
func (b *builder) mlp(m *mlp) {
	hidden := int64(m.hidden)
	x := b.op("Gemm", "layer1", []string{"image", b.floats("layer1.weight", m.w[0], Pixels, hidden), b.floats("layer1.bias", m.w[1], hidden)})
	x = b.op("Relu", "hidden", []string{x})
	b.op("Gemm", "scores", []string{x, b.floats("layer2.weight", m.w[2], hidden, classes), b.floats("layer2.bias", m.w[3], classes)})
}

// The convolutional network looks at an image from many views with the same filters: rotated by each of the angles
// in turns, and shifted by up to reach pixels.
const reach = 2

var turns = []float64{-14, -7, 0, 7, 14}

// viewCount is the number of views.
var viewCount = len(turns) * (2*reach + 1) * (2*reach + 1)

// conv adds the nodes of the convolutional network: the image is turned and shifted into many views, the network
// computes the probabilities of each, and the scores are their mean.
func (b *builder) conv(c *conv) {
	// The weights, in the order of dimensions that ONNX asks for, and the constants that nodes share.
	b.floats("conv1.weight", permute(c.w[0], []int{kernel, kernel, firstFilters}, 2, 0, 1), firstFilters, 1, kernel, kernel)
	b.floats("conv1.bias", c.w[1], firstFilters)
	b.floats("conv2.weight", permute(c.w[2], []int{secondFilters, kernel, kernel, firstFilters}, 0, 3, 1, 2), secondFilters, firstFilters, kernel, kernel)
	b.floats("conv2.bias", c.w[3], secondFilters)
	b.floats("linear.weight", permute(c.w[4], []int{pool2, pool2, secondFilters, classes}, 2, 0, 1, 3), flatSize, classes)
	b.floats("linear.bias", c.w[5], classes)
	b.ints("picture.shape", 0, 1, Side, Side)
	b.ints("border", 0, 0, reach, reach, 0, 0, reach, reach)
	b.ints("axes", 2, 3)

	// A turn is a product with a matrix. Then a border is added, from which viewProbabilities cuts the shifted views.
	var looks []string // names of the probabilities, one per view
	for i, degrees := range turns {
		name := fmt.Sprintf("turn%d", i)
		x := "image"
		if degrees != 0 {
			x = b.op("MatMul", name, []string{x, b.floats(name+".weight", rotationMatrix(degrees), Pixels, Pixels)})
		}
		x = b.op("Reshape", name+".picture", []string{x, "picture.shape"})
		looks = append(looks, b.viewProbabilities(name, b.op("Pad", name+".wide", []string{x, "border"}))...)
	}

	// The mean is a sum and a product, because GPUs have no kernel for the operator Mean.
	b.op("Mul", "scores", []string{b.op("Sum", "votes", looks), b.floats("share", []float32{1 / float32(len(looks))}, 1)})
}

// viewProbabilities adds the nodes that cut every shifted view out of a padded image (wide), and compute its
// probabilities. It returns their names. name begins the names of the nodes.
func (b *builder) viewProbabilities(name, wide string) (looks []string) {
	for dy := range int64(2*reach + 1) {
		for dx := range int64(2*reach + 1) {
			v := fmt.Sprintf("%s.view%d%d", name, dy, dx)
			x := b.op("Slice", v, []string{wide, b.ints(v+".from", dy, dx), b.ints(v+".to", dy+Side, dx+Side), "axes"})
			for _, layer := range []string{"conv1", "conv2"} {
				x = b.op("Conv", v+"."+layer, []string{x, layer + ".weight", layer + ".bias"}, graph.IntsAttr("kernel_shape", kernel, kernel))
				x = b.op("Relu", v+"."+layer+".relu", []string{x})
				x = b.op("MaxPool", v+"."+layer+".pool", []string{x}, graph.IntsAttr("kernel_shape", 2, 2), graph.IntsAttr("strides", 2, 2))
			}
			x = b.op("Gemm", v+".logits", []string{b.op("Flatten", v+".flat", []string{x}, graph.IntAttr("axis", 1)), "linear.weight", "linear.bias"})
			looks = append(looks, b.op("Softmax", v+".probabilities", []string{x}, graph.IntAttr("axis", 1)))
		}
	}
	return looks
}

// rotationMatrix returns the matrix [from][to] that rotates an image about its middle: the product of an image's
// pixels and the matrix is the rotated image. Every pixel is interpolated from the four around the place that it
// comes from.
func rotationMatrix(degrees float64) []float32 {
	w := make([]float32, Pixels*Pixels)
	sin, cos := math.Sincos(degrees * math.Pi / 180)
	const middle = (Side - 1) / 2.0
	for y := range Side {
		for x := range Side {
			dx, dy := float64(x)-middle, float64(y)-middle
			fromX, fromY := middle+cos*dx+sin*dy, middle-sin*dx+cos*dy
			x0, y0 := math.Floor(fromX), math.Floor(fromY)
			for _, at := range [4][2]float64{{x0, y0}, {x0 + 1, y0}, {x0, y0 + 1}, {x0 + 1, y0 + 1}} {
				part := (1 - math.Abs(fromX-at[0])) * (1 - math.Abs(fromY-at[1]))
				if at[0] >= 0 && at[0] < Side && at[1] >= 0 && at[1] < Side && part > 0 {
					w[(int(at[1])*Side+int(at[0]))*Pixels+y*Side+x] += float32(part)
				}
			}
		}
	}
	return w
}

// permute returns the values of a tensor, given in the order of dims, with its dimensions in another order:
// dimension i of the result is dimension order[i] of v.
func permute(v []float32, dims []int, order ...int) []float32 {
	strides := make([]int, len(dims))
	for i, s := len(dims)-1, 1; i >= 0; i-- {
		strides[i] = s
		s *= dims[i]
	}

	// Go through the result in the order of memory. index is the place in it, by dimension.
	out := make([]float32, 0, len(v))
	index := make([]int, len(order))
	for range v {
		from := 0
		for i, o := range order {
			from += index[i] * strides[o]
		}
		out = append(out, v[from])
		for i := len(order) - 1; i >= 0; i-- {
			if index[i]++; index[i] < dims[order[i]] {
				break
			}
			index[i] = 0
		}
	}
	return out
}
