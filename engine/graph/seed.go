package graph

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/proto"

	"inferplan/engine"
	"inferplan/engine/graph/onnxpb"
	"inferplan/formats/seeded"
)

// generatorVersion is the version of the random weights. It is part of a seeded model's identity, and grows
// whenever the same seed gives other weights.
const generatorVersion = 1

// seededWeight is an initialiser with random values. They are generated when it is written, so that a model of
// half a gigabyte is not in memory between slices.
type seededWeight struct {
	name      string
	dims      []int64
	mean      float64
	deviation float64 // standard deviation
	seed      uint64
	fanIn     int64 // number of consecutive values that one output sums, if a part of their mean is subtracted; else 0
}

// fillUniform fills raw with float32 values, little endian, that are uniform with the given mean and standard
// deviation dev. They come from the random stream of the seed and the name, so that the same ones give the same
// values.
func fillUniform(seed uint64, name string, mean, dev float64, raw []byte) {
	rng := seeded.New(seed, "weights/"+name)
	width := dev * math.Sqrt(12) // a uniform distribution of width 1 has the variance 1/12
	lo, step := float32(mean-width/2), float32(width/(1<<24))
	// Each random number of 64 bits gives two values: from its upper and its lower 24 bits, as many as a float32 holds.
	for i := 0; i+4 <= len(raw); i += 8 {
		r := rng.Uint64()
		binary.LittleEndian.PutUint32(raw[i:], math.Float32bits(lo+step*float32(r>>40)))
		if i+8 <= len(raw) {
			binary.LittleEndian.PutUint32(raw[i+4:], math.Float32bits(lo+step*float32(r&(1<<24-1))))
		}
	}
}

// bytes returns the size of the values as float32.
func (w *seededWeight) bytes() int64 { return 4 * elementCount(w.dims) }

// tensor generates the weight's values, when a slice with this weight is written: float32 values of four bytes,
// little endian. If fanIn is set, each output sums fanIn consecutive weights, and a part of their mean is subtracted
// from them.
func (w *seededWeight) tensor() *onnxpb.Tensor {
	raw := make([]byte, w.bytes())
	fillUniform(w.seed, w.name, w.mean, w.deviation, raw)
	if w.fanIn > 1 {
		for offset := int64(0); offset < int64(len(raw)); offset += 4 * w.fanIn {
			subtractMean(raw[offset : offset+4*w.fanIn])
		}
	}
	return &onnxpb.Tensor{Name: proto.String(w.name), DataType: proto.Int32(int32(engine.F32)), Dims: w.dims, RawData: raw}
}

// subtractedShare is the part of the mean that is subtracted from the weights of one output. Without subtraction, the
// common positive mean that rectifiers leave grows from layer to layer, until all inputs give nearly the same
// output. With full subtraction, a deep network is chaotic and amplifies rounding errors as much as inputs.
const subtractedShare = 0.5

// subtractMean subtracts subtractedShare of their mean from float32 values, the weights of one output.
func subtractMean(raw []byte) {
	sum := 0.0
	for i := 0; i < len(raw); i += 4 {
		sum += float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[i:])))
	}
	subtracted := float32(subtractedShare * sum / float64(len(raw)/4))
	for i := 0; i < len(raw); i += 4 {
		binary.LittleEndian.PutUint32(raw[i:], math.Float32bits(math.Float32frombits(binary.LittleEndian.Uint32(raw[i:]))-subtracted))
	}
}

// moments are the expected mean and variance of a tensor.
type moments struct{ mean, variance float64 }

func (m moments) secondMoment() float64 { return m.variance + m.mean*m.mean }

// seedParameters replaces every float parameter of a model that was shipped without weights by random values that
// follow from the seed, before the model is used.
//
// Weights follow He's rule with the actual second moment of the input. It is estimated by propagating mean and
// variance through the graph. So every convolution and matrix product gives values with a variance of about one,
// whatever the depth; residual sums grow linearly and not exponentially; and logits neither vanish nor saturate.
// Normalisation parameters are near the values that keep this.
func (n *sortedGraph) seedParameters(seed uint64) error {
	s := &seeder{n: n, seed: seed, est: map[string]moments{}}
	for _, i := range n.compute {
		nd := n.nodes[i]
		y := s.seedNode(nd)
		for _, o := range nd.Output {
			s.est[o] = y
		}
	}
	if s.err != nil {
		return s.err
	}
	// The seeded parameters replace the nodes that made them.
	var remainingNodes []*onnxpb.Node
	for _, nd := range n.nodes {
		if len(nd.Output) != 1 || n.weights[nd.Output[0]] == nil {
			remainingNodes = append(remainingNodes, nd)
		}
	}
	n.nodes = remainingNodes
	for name := range n.weights {
		delete(n.inits, name)
	}
	return n.findComputeNodes()
}

// seeder goes through a network and estimates the moments of its tensors.
type seeder struct {
	n     *sortedGraph
	seed  uint64
	est   map[string]moments
	total int64 // bytes of the seeded parameters
	err   error
}

// momentsOf returns the estimated mean and variance (the moments) of a tensor. For an unknown tensor they are 0 and
// 1.
func (s *seeder) momentsOf(name string) moments {
	if m, ok := s.est[name]; ok {
		return m
	}
	return moments{0, 1}
}

// setParameter marks the constant that is input k of a node to be replaced by seeded random values with the given
// mean and standard deviation dev, and returns it. It returns nil if that input is not a float constant, or if it
// was replaced before, for another node.
func (s *seeder) setParameter(nd *onnxpb.Node, k int, mean, dev float64) *seededWeight {
	if k >= len(nd.Input) || !s.n.isConst[nd.Input[k]] {
		return nil
	}
	base, dims, ok := s.n.floatParameter(nd.Input[k])
	if !ok || s.n.weights[base] != nil {
		return nil
	}
	w := &seededWeight{name: base, dims: dims, mean: mean, deviation: dev, seed: s.seed}
	if s.total += w.bytes(); s.total > maxFile {
		s.err = modelErrorf("weights of more than 2 GiB: ONNX files cannot hold them")
		return nil
	}
	s.n.weights[base] = w
	return w
}

// seedNode seeds the parameters of a node, and returns the estimated mean and variance of its output. Parameters get
// a standard deviation of a tenth around the values that leave their input as it is. The moments of pooled and
// squashed values are rough estimates. x are the moments (mean and variance) of its first input.
func (s *seeder) seedNode(nd *onnxpb.Node) moments {
	x := moments{0, 1}
	if len(nd.Input) > 0 {
		x = s.momentsOf(nd.Input[0])
	}
	switch nd.GetOpType() {
	case "Conv", "ConvTranspose", "Gemm", "MatMul":
		return s.seedProduct(nd, x)
	case "BatchNormalization":
		// The inputs are scale, bias, mean and variance: the last two are those of x, so that it is normalised.
		s.setParameter(nd, 1, 1, 0.1)
		s.setParameter(nd, 2, 0, 0.1)
		s.setParameter(nd, 3, x.mean, 0.1*math.Sqrt(x.variance))
		s.setParameter(nd, 4, math.Max(x.variance, 1e-6), 0.1*math.Max(x.variance, 1e-6))
		return moments{0, 1}
	case "Mul":
		return s.seedScaled(nd)
	case "Add", "Sum", "Sub":
		return s.seedAdded(nd)
	case "Relu":
		return rectifiedMoments(x)
	case "Sigmoid", "HardSigmoid":
		return moments{0.5, 0.05}
	case "MaxPool":
		return moments{x.mean + math.Sqrt(x.variance), 0.5 * x.variance}
	case "AveragePool", "GlobalAveragePool", "ReduceMean":
		return moments{x.mean, 0.3 * x.variance}
	case "Concat":
		y := moments{}
		for _, in := range nd.Input {
			m := s.momentsOf(in)
			y.mean += m.mean / float64(len(nd.Input))
			y.variance += m.variance / float64(len(nd.Input))
		}
		return y
	case "PRelu":
		s.setParameter(nd, 1, 0.25, 0.05)
	}
	return x
}

// seedProduct seeds the weights (input 1) and the bias (input 2) of a convolution or matrix product so that its
// outputs have the mean 0 and the variance 1, and returns these moments. x are the moments of its input. An output
// is a sum of fanIn products of a weight and an input value, so its variance is fanIn · Var(weight) · E(x²). If the
// weights are no constant, nothing is seeded, and x is returned.
func (s *seeder) seedProduct(nd *onnxpb.Node, x moments) moments {
	fanIn := 0.0
	if len(nd.Input) > 1 {
		if _, _, ok := s.n.floatParameter(nd.Input[1]); ok {
			fanIn = s.n.fanIn(nd)
		}
	}
	y := x
	if fanIn > 0 {
		secondMoment := x.secondMoment()

		// In these layouts the weights of one output are consecutive, and a part of their mean can be subtracted. Then
		// only the rest of the input's mean reaches the output.
		isConsecutive := nd.GetOpType() == "Conv" || nd.GetOpType() == "Gemm" && attrInt(nd, "transB") == 1
		if isConsecutive = isConsecutive && fanIn > 1; isConsecutive {
			secondMoment = x.variance + (1-subtractedShare)*(1-subtractedShare)*x.mean*x.mean
		}
		dev := math.Sqrt(1 / (fanIn * math.Max(secondMoment, 1e-6)))
		if w := s.setParameter(nd, 1, 0, dev); w != nil && isConsecutive && elementCount(w.dims)%int64(fanIn) == 0 {
			w.fanIn = int64(fanIn)
		}
		y = moments{0, 1}
	}
	s.setParameter(nd, 2, 0, 0.1)
	return y
}

// seedScaled seeds the constants of a multiplication with values around 1, and returns the moments of its output:
// those of the product of its other inputs, as if they were independent.
func (s *seeder) seedScaled(nd *onnxpb.Node) moments {
	y := moments{1, 0}
	for k, in := range nd.Input {
		if s.n.isConst[in] {
			s.setParameter(nd, k, 1, 0.1)
			continue
		}
		m := s.momentsOf(in)
		y = moments{y.mean * m.mean, y.secondMoment()*m.secondMoment() - y.mean*y.mean*m.mean*m.mean}
	}
	return y
}

// seedAdded seeds the constants of a sum with values around 0, and returns the moments of its output: those of the
// sum of its other inputs, as if they were independent.
func (s *seeder) seedAdded(nd *onnxpb.Node) moments {
	y := moments{}
	for k, in := range nd.Input {
		if s.n.isConst[in] {
			s.setParameter(nd, k, 0, 0.1)
			continue
		}
		m := s.momentsOf(in)
		y = moments{y.mean + m.mean, y.variance + m.variance}
	}
	return y
}

// rectifiedMoments returns the moments of max(0, x), the output of a Relu, for a normal x. cdf is the probability that
// x is above 0. pdf is the standard normal density at z, the number of standard deviations from 0 to the mean.
func rectifiedMoments(x moments) moments {
	sd := math.Sqrt(math.Max(x.variance, 1e-12))
	z := x.mean / sd
	cdf := 0.5 * math.Erfc(-z/math.Sqrt2)
	pdf := math.Exp(-z*z/2) / math.Sqrt(2*math.Pi)
	mean := x.mean*cdf + sd*pdf
	second := x.secondMoment()*cdf + x.mean*sd*pdf
	return moments{mean, second - mean*mean}
}

// floatParameter follows a constant through up to eight Unsqueeze, Squeeze, Reshape and Identity nodes to the
// float32 tensor behind it. It returns the name and the dimensions of that tensor, or false if there is none.
func (n *sortedGraph) floatParameter(name string) (base string, dims []int64, ok bool) {
	for hops := 0; hops < 8; hops++ {
		if t := n.inits[name]; t != nil {
			return name, t.Dims, t.GetDataType() == int32(engine.F32)
		}
		if w := n.weights[name]; w != nil {
			return name, w.dims, true
		}
		i, isMade := n.producer[name]
		if !isMade || !n.isConst[name] {
			return "", nil, false
		}
		nd := n.nodes[i]
		switch nd.GetOpType() {
		case "ConstantOfShape":
			d, ok := n.constInts(nd.Input[0])
			for _, a := range nd.Attribute {
				if a.T != nil && a.T.GetDataType() != int32(engine.F32) {
					ok = false
				}
			}
			return name, d, ok && elementCount(d) >= 0
		case "Constant":
			t := n.constTensor(name)
			if t == nil {
				return "", nil, false
			}
			return name, t.Dims, t.GetDataType() == int32(engine.F32)
		case "Unsqueeze", "Reshape", "Identity", "Squeeze":
			name = nd.Input[0]
		default:
			return "", nil, false
		}
	}
	return "", nil, false
}

// fanIn returns how many products of a weight and an input value each output of a Conv, Gemm or MatMul sums, by the
// dimensions of the weights. It returns 0 if these are not known.
func (n *sortedGraph) fanIn(nd *onnxpb.Node) float64 {
	_, dims, _ := n.floatParameter(nd.Input[1])
	if i, ok := n.producer[nd.Input[1]]; ok && n.nodes[i].GetOpType() == "Reshape" && len(n.nodes[i].Input) > 1 {
		if d, ok := n.constInts(n.nodes[i].Input[1]); ok && elementCount(d) > 0 {
			dims = d
		}
	}
	if len(dims) < 2 {
		return 0
	}
	switch {
	case nd.GetOpType() == "Conv":
		return float64(elementCount(dims[1:]))
	case nd.GetOpType() == "ConvTranspose":
		return float64(dims[0] * elementCount(dims[2:]))
	case nd.GetOpType() == "Gemm" && attrInt(nd, "transB") == 1:
		return float64(dims[len(dims)-1])
	}
	return float64(dims[len(dims)-2])
}
