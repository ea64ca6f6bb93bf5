package oip

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"inferplan/executor/httplimit"
	"inferplan/executor/jsonscan"
)

// maxRank bounds the dimensions of a tensor.
const maxRank = jsonscan.MaxRank

// TensorInfo describes an input or output of a model.
type TensorInfo struct {
	Name     string
	Datatype Datatype
	// Shape has -1 for dimensions of any size. If the model batches, the first dimension is the batch.
	Shape []int64
	// Optional inputs may be left out of a request.
	Optional bool
	// Text says that a row of bytes is a text, padded with zeros.
	Text bool
}

// ModelInfo describes a model, for clients and for validation.
type ModelInfo struct {
	Name string
	// Versions are the versions that are served, at least one. A request without a version gets the last.
	Versions []string
	Platform string
	Inputs   []TensorInfo
	Outputs  []TensorInfo
	// Classes are the SLO classes that a request may name, the default first. If the default has no name, it is the
	// empty string. Classes is nil if the model has none.
	Classes []string
	// MaxBatch is the largest batch. If it is positive, the first dimension of every input is the batch, from 1 to
	// MaxBatch, the same for all inputs. If it is 0, requests have no batch dimension.
	MaxBatch int
}

// Catalog is an immutable set of models.
type Catalog struct {
	models []*ModelInfo
	byName map[string]*ModelInfo
}

// NewCatalog returns the catalog of the models that a server offers, in the given order, or an error if a
// description is faulty.
func NewCatalog(models ...ModelInfo) (*Catalog, error) {
	c := &Catalog{byName: make(map[string]*ModelInfo, len(models))}
	for i := range models {
		m := models[i]
		if m.Name == "" {
			return nil, fmt.Errorf("catalog: model %d has no name", i)
		}
		if c.byName[m.Name] != nil {
			return nil, fmt.Errorf("catalog: model %q stands twice", m.Name)
		}
		if len(m.Versions) == 0 {
			return nil, fmt.Errorf("catalog: model %q has no version", m.Name)
		}
		if err := checkTensors("input", m.Inputs, m.MaxBatch); err != nil {
			return nil, fmt.Errorf("catalog: model %q: %w", m.Name, err)
		}
		if err := checkTensors("output", m.Outputs, 0); err != nil {
			return nil, fmt.Errorf("catalog: model %q: %w", m.Name, err)
		}
		c.models = append(c.models, &m)
		c.byName[m.Name] = &m
	}
	return c, nil
}

// checkTensors returns an error if a description among the inputs or outputs of a model is faulty: names, data types,
// shapes (-1 stands for any size) or sizes. kind ("input" or "output") is for errors. maxBatch above 0 means that the
// first dimension is the batch.
func checkTensors(kind string, tensors []TensorInfo, maxBatch int) error {
	seenNames := map[string]bool{}
	for i, t := range tensors {
		switch {
		case t.Name == "":
			return fmt.Errorf("%s %d has no name", kind, i)
		case seenNames[t.Name]:
			return fmt.Errorf("%s %q stands twice", kind, t.Name)
		case t.Datatype == 0 || int(t.Datatype) >= len(datatypes):
			return fmt.Errorf("%s %q has no datatype", kind, t.Name)
		case len(t.Shape) > maxRank:
			return fmt.Errorf("%s %q has %d dimensions, at most %d are served", kind, t.Name, len(t.Shape), maxRank)
		case maxBatch > 0 && len(t.Shape) == 0:
			return fmt.Errorf("%s %q of a model that batches has no batch dimension", kind, t.Name)
		}
		for _, d := range t.Shape {
			if d < -1 {
				return fmt.Errorf("%s %q has dimension %d in shape %v; -1 stands for any", kind, t.Name, d, t.Shape)
			}
		}
		if n, ok := elementCount(sampleShape(t.Shape)); !ok || n > maxTensorBytes/int64(max(t.Datatype.Size(), 1)) {
			return fmt.Errorf("%s %q has shape %v: its %s would take more than %d bytes", kind, t.Name, t.Shape, t.Datatype, int64(maxTensorBytes))
		}
		seenNames[t.Name] = true
	}
	return nil
}

// maxTensorBytes bounds one sample of a tensor.
const maxTensorBytes = 1 << 31

// sampleShape returns the shape of one sample, with 1 for dimensions of any size.
func sampleShape(shape []int64) []int64 {
	out := slices.Clone(shape)
	for i, d := range out {
		if d < 0 {
			out[i] = 1
		}
	}
	return out
}

// Models returns the models. The slice and the models must not be changed.
func (c *Catalog) Models() []*ModelInfo { return c.models }

// Find returns the model with a name. It returns an error if there is none, or if it does not have the version. An
// empty version stands for any.
func (c *Catalog) Find(name, version string) (*ModelInfo, *Error) {
	m := c.byName[name]
	if m == nil {
		return nil, httplimit.NotFound("model %q is not served here%s", httplimit.Clip(name), c.hint())
	}
	if version != "" && !slices.Contains(m.Versions, version) {
		return nil, httplimit.NotFound("model %q has no version %q; it has %s", name, httplimit.Clip(version), strings.Join(m.Versions, ", "))
	}
	return m, nil
}

// hint returns the names of the served models for an error message, unless they are too many.
func (c *Catalog) hint() string {
	if len(c.models) == 0 || len(c.models) > 16 {
		return ""
	}
	names := make([]string, len(c.models))
	for i, m := range c.models {
		names[i] = m.Name
	}
	return "; models: " + strings.Join(names, ", ")
}

// findTensor returns the description with a name, or nil.
func findTensor(ts []TensorInfo, name string) *TensorInfo {
	for i := range ts {
		if ts[i].Name == name {
			return &ts[i]
		}
	}
	return nil
}

// intern returns the model's own string for the name of one of its tensors, so that names in requests need no
// allocation. Other names are copied. m may be nil.
func (m *ModelInfo) intern(name []byte) string {
	if m != nil {
		for i := range m.Inputs {
			if m.Inputs[i].Name == string(name) {
				return m.Inputs[i].Name
			}
		}
		for i := range m.Outputs {
			if m.Outputs[i].Name == string(name) {
				return m.Outputs[i].Name
			}
		}
	}
	return string(name)
}

// tensorNames returns the names for a message.
func tensorNames(ts []TensorInfo) string {
	names := make([]string, len(ts))
	for i := range ts {
		names[i] = ts[i].Name
	}
	return strings.Join(names, ", ")
}

// validate returns an error if a request does not fit the model: its SLO class, inputs or wanted outputs. It sets r.Info
// to the model and r.Batch to the number of samples (1 for a model without batches).
func (m *ModelInfo) validate(r *Request) *Error {
	r.Info, r.Batch = m, 1
	if r.Class != "" && !slices.Contains(m.Classes, r.Class) {
		return m.unknownClass(r.Class)
	}

	// Check the inputs that there are.
	for i := range r.Inputs {
		t := &r.Inputs[i]
		field := func(part string) string { return fmt.Sprintf("inputs[%d] %q%s", i, httplimit.Clip(t.Name), part) }
		info := findTensor(m.Inputs, t.Name)
		if info == nil {
			return httplimit.Invalid(field(""), "model %q has no such input; its inputs: %s", m.Name, tensorNames(m.Inputs))
		}
		for j := range r.Inputs[:i] {
			if r.Inputs[j].Name == t.Name {
				return httplimit.Invalid(field(""), "given twice")
			}
		}
		if t.Datatype != info.Datatype {
			return httplimit.Invalid(field(" datatype"), "got %s, the model takes %s", t.Datatype, info.Datatype)
		}
		if len(t.Shape) != len(info.Shape) {
			return httplimit.Invalid(field(" shape"), "got %v, the model takes %s", t.Shape, m.shapeText(info))
		}

		// The shape must agree except for the batch.
		for k, expected := range info.Shape {
			found := t.Shape[k]
			batch := k == 0 && m.MaxBatch > 0
			if found < 0 || !batch && expected >= 0 && found != expected {
				return httplimit.Invalid(field(" shape"), "got %v, the model takes %s", t.Shape, m.shapeText(info))
			}
			if batch && (found < 1 || found > int64(m.MaxBatch)) {
				return httplimit.Invalid(field(" shape"), "got batch %d, the model takes 1 to %d", found, m.MaxBatch)
			}
		}
		if m.MaxBatch > 0 {
			if b := int(t.Shape[0]); i == 0 {
				r.Batch = b
			} else if b != r.Batch {
				return httplimit.Invalid(field(" shape"), "got batch %d, input %q has %d", b, r.Inputs[0].Name, r.Batch)
			}
		}
		if err := checkData(t); err != nil {
			err.Field = field(err.Field)
			return err
		}
	}

	// Check that no input is missing.
	for i := range m.Inputs {
		if !m.Inputs[i].Optional {
			if _, ok := r.Input(m.Inputs[i].Name); !ok {
				return httplimit.Invalid("inputs", "input %q is missing (%s %s)", m.Inputs[i].Name, m.Inputs[i].Datatype, m.shapeText(&m.Inputs[i]))
			}
		}
	}

	// Check the requested outputs.
	for i := range r.Outputs {
		name := r.Outputs[i].Name
		if findTensor(m.Outputs, name) == nil {
			return httplimit.Invalid(fmt.Sprintf("outputs[%d] %q", i, httplimit.Clip(name)), "model %q has no such output; its outputs: %s", m.Name, tensorNames(m.Outputs))
		}
		for j := range r.Outputs[:i] {
			if r.Outputs[j].Name == name {
				return httplimit.Invalid(fmt.Sprintf("outputs[%d] %q", i, name), "asked for twice")
			}
		}
	}
	return nil
}

// unknownClass returns the error for an SLO class that the model does not have.
func (m *ModelInfo) unknownClass(class string) *Error {
	var names []string
	for _, c := range m.Classes {
		if c != "" {
			names = append(names, c)
		}
	}
	if len(names) == 0 {
		return httplimit.Invalid("class", "model %q has no SLO classes, got %q", m.Name, httplimit.Clip(class))
	}
	return httplimit.Invalid("class", "model %q has no class %q; its classes: %s", m.Name, httplimit.Clip(class), strings.Join(names, ", "))
}

// shapeText returns the shape that the model takes for errors, such as [1..8, 3, *]: a range for the batch, * for any
// size.
func (m *ModelInfo) shapeText(t *TensorInfo) string {
	var b strings.Builder
	b.WriteByte('[')
	for i, d := range t.Shape {
		if i > 0 {
			b.WriteString(", ")
		}
		switch {
		case i == 0 && m.MaxBatch > 0:
			fmt.Fprintf(&b, "1..%d", m.MaxBatch)
		case d < 0:
			b.WriteByte('*')
		default:
			fmt.Fprintf(&b, "%d", d)
		}
	}
	b.WriteByte(']')
	return b.String()
}

// elementCount returns the number of elements of a shape. It returns false if a dimension is negative or the
// number is too large.
func elementCount(shape []int64) (int64, bool) {
	n := int64(1)
	zero := false
	for _, d := range shape {
		if d < 0 {
			return 0, false
		}
		if d == 0 {
			zero = true
			continue
		}
		if n > math.MaxInt64/16/d {
			return 0, false
		}
		n *= d
	}
	if zero {
		return 0, true
	}
	return n, true
}

// checkData returns an error if the bytes of a tensor do not fit its shape and datatype. Its field is relative to the
// tensor.
func checkData(t *Tensor) *Error {
	n, ok := elementCount(t.Shape)
	if !ok {
		return httplimit.Invalid(" shape", "%v is not a shape that fits in memory", t.Shape)
	}
	if t.Datatype == Bytes {
		found, ok := countBytesElements(t.Data)
		if !ok {
			return httplimit.Invalid(" data", "element %d of BYTES runs past the end of the %d bytes of data", found, len(t.Data))
		}
		if found != n {
			return httplimit.Invalid(" data", "got %d elements, shape %v has %d", found, t.Shape, n)
		}
		return nil
	}
	if expectedBytes := n * int64(t.Datatype.Size()); int64(len(t.Data)) != expectedBytes {
		return httplimit.Invalid(" data", "got %d bytes, shape %v of %s has %d", len(t.Data), t.Shape, t.Datatype, expectedBytes)
	}
	if t.Datatype == Bool {
		for i, v := range t.Data {
			if v > 1 {
				return httplimit.Invalid(" data", "element %d is byte %d; BOOL is 0 or 1", i, v)
			}
		}
	}
	return nil
}

// countBytesElements returns the number of elements in the data of a BYTES tensor, each with its length in four
// bytes in front. It returns false if one is cut short.
func countBytesElements(data []byte) (int64, bool) {
	var n int64
	for len(data) > 0 {
		if len(data) < 4 {
			return n, false
		}
		size := uint64(binary.LittleEndian.Uint32(data))
		if size > uint64(len(data)-4) {
			return n, false
		}
		data = data[4+size:]
		n++
	}
	return n, true
}

// lookup returns the model with a name, or nil.
func (c *Catalog) lookup(name string) *ModelInfo { return c.byName[name] }
