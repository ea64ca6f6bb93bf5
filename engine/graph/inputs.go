package graph

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"inferplan/engine"
	"inferplan/engine/graph/onnxpb"
)

// tensorsOnly returns the graph with tensors as outputs only, or an error if an input or output is something else,
// such as a list or a map. It is called when a file is read. Classifiers of scikit-learn end in ZipMap, which makes a
// list of maps of the probabilities: the probabilities become the output in its place, and a note in m.Notes says so.
func (m *Model) tensorsOnly(g *onnxpb.Graph) (*onnxpb.Graph, error) {
	producers := map[string]*onnxpb.Node{}
	for _, nd := range g.Node {
		for _, o := range nd.Output {
			producers[o] = nd
		}
	}
	outputs := slices.Clone(g.Output)

	// Replace the output of ZipMap by its input.
	for i, v := range outputs {
		kind := notTensor(v)
		if kind == "" {
			continue
		}
		nd := producers[v.GetName()]
		if nd.GetOpType() != "ZipMap" || len(nd.GetInput()) == 0 {
			return nil, modelErrorf("output %q is %s, which no answer can carry: export the model with tensors as outputs only (sklearn: options={'zipmap': False})", v.GetName(), kind)
		}
		m.Notes = append(m.Notes, fmt.Sprintf("output %q is a list of maps in the file: in its place stands the tensor %q that ZipMap makes it of", v.GetName(), nd.Input[0]))
		outputs[i] = &onnxpb.ValueInfo{Name: proto.String(nd.Input[0])}
	}
	for _, v := range g.Input {
		if kind := notTensor(v); kind != "" {
			return nil, modelErrorf("input %q is %s, which no request can bring: export the model with tensors as inputs only", v.GetName(), kind)
		}
	}
	if len(m.Notes) == 0 { // no output was replaced
		return g, nil
	}
	return withParts(g, g.Initializer, outputs), nil
}

// withParts returns a copy of the graph with other initialisers and outputs.
func withParts(g *onnxpb.Graph, inits []*onnxpb.Tensor, outputs []*onnxpb.ValueInfo) *onnxpb.Graph {
	return &onnxpb.Graph{Node: g.Node, Name: g.Name, Initializer: inits, Input: g.Input, Output: outputs, ValueInfo: g.ValueInfo}
}

// notTensor returns, for an error message, what a declared input or output is if it is not a tensor ("a map"). It
// returns "" for a tensor.
func notTensor(v *onnxpb.ValueInfo) string {
	if v.GetType() == nil || v.Type.GetTensorType() != nil {
		return ""
	}
	// The format's other types are in fields that are not decoded: the field's number is in the first byte.
	field := 0
	if raw := v.Type.ProtoReflect().GetUnknown(); len(raw) > 0 {
		field = int(raw[0] >> 3)
	}
	switch field {
	case 4:
		return "a sequence"
	case 5:
		return "a map"
	case 8:
		return "a sparse tensor"
	case 9:
		return "an optional value"
	}
	return "not a tensor"
}

// makeConstants turns the inputs without dimensions whose values the user gives into constants, records them in
// m.Constants, and returns the changed graph.
func (m *Model) makeConstants(g *onnxpb.Graph, values map[string]Literal) (*onnxpb.Graph, error) {
	inits := g.Initializer
	for _, v := range g.Input {
		value, ok := values[v.GetName()]
		tt := v.GetType().GetTensorType()
		if !ok || tt == nil || tt.Shape != nil && len(tt.Shape.Dim) > 0 || tt.Shape == nil && len(value.Shape) > 0 {
			continue
		}
		c := Constant{engine.Spec{Name: v.GetName(), Type: engine.DType(tt.GetElemType()), Shape: []int64{}}, Literal{[]int64{}, value.Values}}
		if len(value.Values) != 1 {
			return nil, modelErrorf("input %q is a single %s, %d values were given", c.Name, c.Type, len(value.Values))
		}
		data, err := value.Bytes(c.Type)
		if err != nil {
			return nil, modelErrorf("input %q: %v", c.Name, err)
		}
		inits = append(inits[:len(inits):len(inits)], &onnxpb.Tensor{Name: proto.String(c.Name), DataType: proto.Int32(int32(c.Type)), RawData: data})
		m.Constants = append(m.Constants, c)
	}
	if len(m.Constants) == 0 {
		return g, nil
	}
	return withParts(g, inits, g.Output), nil
}

// declaredInput is an input as the file declares it, with the dimensions that it leaves free.
type declaredInput struct {
	name     string
	typ      engine.DType
	dims     []*onnxpb.Shape_Dim
	hasShape bool // the file declares dimensions
	info     *onnxpb.ValueInfo
}

// declareInputs reads the declared inputs, sets their dimensions, and makes the first dimension the batch. It fills
// m.Inputs, m.firstDims (the first dimensions in the file) and, if the batch cannot be made free, m.boundReason.
// Inputs with sizes that are still open are listed in one error.
func (m *Model) declareInputs(g *onnxpb.Graph, o Options) error {
	var list []declaredInput
	for _, v := range g.Input {
		if m.net.isConst[v.GetName()] {
			continue // an initialiser that old files list as an input too, or a constant
		}
		tt := v.GetType().GetTensorType()
		if tt == nil {
			return modelErrorf("input %q declares no type: export the model again, or run onnx.shape_inference over it", v.GetName())
		}
		list = append(list, declaredInput{v.GetName(), engine.DType(tt.GetElemType()), tt.GetShape().GetDim(), tt.Shape != nil, v})
	}
	if len(list) == 0 {
		return modelErrorf("the model has no input that requests could bring")
	}

	// Find the sizes of dimensions: given ones, and those of the same name.
	givenDims, err := givenDims(list, o)
	if err != nil {
		return err
	}
	namedSizes, err := namedSizes(list, givenDims)
	if err != nil {
		return err
	}

	// Declare each input, and collect what the user still has to give.
	var open, flags []string
	for _, d := range list {
		spec, firstDim, err := d.spec(givenDims[d.name], namedSizes)
		if err != nil {
			return err
		}
		if spec.Shape == nil {
			missing, flag := d.missingDims(namedSizes)
			open, flags = append(open, missing), append(flags, flag)
			continue
		}
		if value, ok := o.Values[d.name]; ok {
			elementsPerSample := spec.BytesAt(1) / int64(spec.Type.Size())
			if _, err := value.Fill(spec.Type, elementsPerSample, elementsPerSample); err != nil {
				return modelErrorf("input %q: %v", d.name, err)
			}
		}
		m.Inputs, m.firstDims, m.inFile = append(m.Inputs, spec), append(m.firstDims, firstDim), append(m.inFile, d.info)
	}
	m.boundReason = boundBatch(list)
	if len(open) > 0 {
		return modelErrorf("%s: say what to plan for, sizes with the batch in front: %s", strings.Join(open, "; "), strings.Join(flags, " "))
	}
	return nil
}

// givenDims returns the dimensions in the options by the names of inputs. Dimensions without a name are those of the
// only input. Dimensions for an input that the model does not have are an error, unless o.OtherInputs is set.
func givenDims(list []declaredInput, o Options) (map[string][]int64, error) {
	var names []string
	for _, d := range list {
		names = append(names, d.name)
	}
	out := maps.Clone(o.Dims)
	if dims, ok := out[""]; ok {
		delete(out, "")
		if len(list) > 1 {
			return nil, fmt.Errorf("dimensions without an input's name, but the model has %d inputs (%s)", len(list), strings.Join(names, ", "))
		}
		out[names[0]] = dims
	}
	if o.OtherInputs {
		return out, nil
	}
	for _, name := range slices.Sorted(maps.Keys(out)) {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("dimensions for %q, but the model has no such input (it has %s)", name, strings.Join(names, ", "))
		}
	}
	return out, nil
}

// namedSizes returns the sizes of dimensions by their names in the file ("seq": 128). They come from the dimensions
// that the user gives for inputs, because dimensions of the same name have the same size. A name that stands in
// front in one input, as its batch, counts as 1 in others, unless its size is given.
func namedSizes(list []declaredInput, givenDims map[string][]int64) (map[string]int64, error) {
	batch, sizes := map[string]bool{}, map[string]int64{}

	// The first dimension of an input is its batch.
	for _, d := range list {
		if len(d.dims) > 0 && d.dims[0].GetDimParam() != "" {
			batch[d.dims[0].GetDimParam()], sizes[d.dims[0].GetDimParam()] = true, 1
		}
	}

	// Take the given size of each named dimension, and check that inputs agree.
	for _, d := range list {
		dims := givenDims[d.name]
		if dims == nil || !d.hasShape {
			continue
		}
		if len(d.dims) != len(dims) {
			return nil, modelErrorf("input %q has %d dimensions, %d were given (%v)", d.name, len(d.dims), len(dims), dims)
		}
		for i, size := range dims {
			p := d.dims[i].GetDimParam()
			if p == "" || size <= 0 {
				continue
			}
			if known, ok := sizes[p]; ok && known != size && !batch[p] {
				return nil, modelErrorf("input %q: dimension %d (%q) is given as %d, and as %d for another input", d.name, i, p, size, known)
			}
			sizes[p] = size
		}
	}
	return sizes, nil
}

// boundBatch returns why the first dimensions of inputs cannot all be one batch, or "" if they can. They cannot if
// the file fixes one to another size than the rest, or if the name of one stands at another place in another input.
// A runtime that gets such inputs at other sizes may read beyond their ends.
func boundBatch(list []declaredInput) string {
	for _, d := range list {
		if len(d.dims) == 0 {
			continue
		}
		size := d.dims[0].GetDimValue()
		for _, otherInput := range list {
			if len(otherInput.dims) == 0 {
				continue
			}
			if size > 1 && otherInput.dims[0].GetDimValue() != size {
				return fmt.Sprintf("the first dimension of input %q is always %d, and that of %q is not", d.name, size, otherInput.name)
			}
			for _, dim := range otherInput.dims[1:] {
				if p := dim.GetDimParam(); p != "" && p == d.dims[0].GetDimParam() {
					return fmt.Sprintf("input %q has the batch %q in front, and input %q has not", d.name, p, otherInput.name)
				}
			}
		}
	}
	return ""
}

// dimSize returns the size of dimension i: that in the file, the given one (dims), or that of its name. It is 0 if
// the dimension is free. namedSizes has the sizes of dimensions that the file only names.
func (d *declaredInput) dimSize(i int, dims []int64, namedSizes map[string]int64) int64 {
	size := d.dims[i].GetDimValue()
	if size > 0 {
		return size
	}
	if dims != nil && dims[i] > 0 {
		return dims[i]
	}
	return max(0, namedSizes[d.dims[i].GetDimParam()])
}

// spec returns the input as blocks declare it, and its first dimension, which is 0 if it is free. If other
// dimensions are free, the shape is nil.
func (d *declaredInput) spec(dims []int64, namedSizes map[string]int64) (s engine.Spec, firstDim int64, err error) {
	s = engine.Spec{Name: d.name, Type: d.typ}
	switch {
	case s.Type == engine.String:
		return s, 0, modelErrorf("input %q holds texts (strings), which no batch can hold: cut the encoder of texts off and feed the model numbers", d.name)
	case s.Type.Size() == 0:
		return s, 0, modelErrorf("input %q has elements of type %s, which cannot be fed: convert them inside the model (Cast)", d.name, s.Type)
	case !d.hasShape && dims == nil, d.hasShape && len(d.dims) == 0:
		return s, 0, nil
	}

	// Find the size of each dimension. The first is the batch.
	if !d.hasShape {
		d = &declaredInput{d.name, d.typ, make([]*onnxpb.Shape_Dim, len(dims)), true, d.info}
	}
	elements := int64(1)
	shape := make([]int64, len(d.dims))
	for i, dim := range d.dims {
		size := d.dimSize(i, dims, namedSizes)
		if v := dim.GetDimValue(); i > 0 && v > 0 && dims != nil && dims[i] != v {
			return s, 0, modelErrorf("input %q: dimension %d is %d in the model, %d was given", d.name, i, v, dims[i])
		}
		switch {
		case i == 0:
			firstDim, size = size, engine.BatchDim
		case size == 0:
			return s, 0, nil
		default:
			if elements *= size; elements > maxElements || size > maxElements {
				return s, 0, modelErrorf("input %q is too large", d.name)
			}
		}
		shape[i] = size
	}
	s.Shape = shape
	return s, firstDim, nil
}

// missingDims is called for an input whose shape is not known. It returns what the user has to give, as text, and
// the flag for that with a guess of the sizes: an image for four dimensions, otherwise 128 tokens.
func (d *declaredInput) missingDims(namedSizes map[string]int64) (missing, flag string) {
	switch {
	case !d.hasShape:
		return fmt.Sprintf("input %q declares no dimensions", d.name), fmt.Sprintf("--shape %s=1x3x224x224 (or --input %s=VALUE where it is a single number)", d.name, d.name)
	case len(d.dims) == 0:
		return fmt.Sprintf("input %q is a single %s without a batch dimension, which requests cannot bring", d.name, d.typ), fmt.Sprintf("--input %s=VALUE", d.name)
	}

	// Name every dimension, and guess the free ones: those of an image, or of tokens.
	guess := []int64{1, 128, 128, 128}
	if len(d.dims) == 4 {
		guess = []int64{1, 3, 224, 224}
	}
	var names, freeDims, sizes []string
	for i, dim := range d.dims {
		size := d.dimSize(i, nil, namedSizes)
		name := cmp.Or(dim.GetDimParam(), "?")
		if v := dim.GetDimValue(); v > 0 {
			name = fmt.Sprint(v)
		}
		names = append(names, name)
		if i > 0 && size == 0 {
			freeDims = append(freeDims, fmt.Sprint(i))
		}
		sizes = append(sizes, fmt.Sprint(cmp.Or(size, guess[min(i, len(guess)-1)])))
	}
	clause := "dimension %s is not fixed"
	if len(freeDims) > 1 {
		clause = "dimensions %s are not fixed"
	}
	return fmt.Sprintf("input %q is %s[%s], whose "+clause, d.name, d.typ, strings.Join(names, ", "), strings.Join(freeDims, " and ")),
		fmt.Sprintf("--shape %s=%s", d.name, strings.Join(sizes, "x"))
}
