package formats

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"inferplan/formats/document"
	"inferplan/formats/modelfile"
)

// Bucket says that a model is another one at one size of its inputs: requests for
// that one run in the smallest bucket that takes them.
type Bucket struct {
	BaseModel string `json:"of"` // model that requests of any length ask for
	// Padding says how shorter requests may be padded. If it is nil, requests must have exactly this size.
	Padding *Padding `json:"padding,omitempty"`
}

// Padding says how requests are filled up with zeros. The answers were seen to stay
// the same.
type Padding struct {
	Mask    string  `json:"mask"`     // input whose zeros mark the padding
	MaxDiff float64 `json:"max_diff"` // the largest difference of answers, relative to the larger of 1 and the value
}

// BucketName returns the name of a length bucket, a model measured at one size of its inputs: MODEL@128, or
// MODEL@320x240 if dimensions have several sizes. DynamicAxes are the dimensions in which the buckets of a model
// differ.
func BucketName(model string, inputs []TensorInfo) string {
	if n := BucketLength(inputs); n > 0 {
		return model + "@" + strconv.FormatInt(n, 10)
	}
	for _, t := range inputs {
		sizes := document.Map(t.DynamicAxes, func(axis *int) string { return strconv.FormatInt(t.Shape[*axis], 10) })
		if len(sizes) > 0 {
			return model + "@" + strings.Join(sizes, "x")
		}
	}
	return model
}

// BucketLength returns the size of the free dimensions of a bucket's inputs, or 0 if they have several sizes.
func BucketLength(tensors []TensorInfo) int64 {
	length := int64(0)
	for _, t := range tensors {
		for _, axis := range t.DynamicAxes {
			if size := t.Shape[axis]; length == 0 {
				length = size
			} else if size != length {
				return 0
			}
		}
	}
	return length
}

// BucketsOf returns the length buckets of a base model in a profile, each the model at one size of its inputs, the
// smallest first.
func (p *Profile) BucketsOf(baseModel string) []*ProfileModel {
	var out []*ProfileModel
	for i := range p.Models {
		if m := &p.Models[i]; m.Bucket != nil && m.Bucket.BaseModel == baseModel {
			out = append(out, m)
		}
	}
	slices.SortStableFunc(out, func(a, b *ProfileModel) int { return CompareSizes(a.Inputs, b.Inputs) })
	return out
}

// RequestedModels returns the names that requests ask for: the models and, in place of buckets, their common base
// model.
func (p *Profile) RequestedModels() []string {
	var out []string
	for i := range p.Models {
		if name := p.Models[i].RequestedName(); !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// RequestedName returns the name that requests ask for: that of the model or, of a bucket, of its base model.
func (m *ProfileModel) RequestedName() string {
	if m.Bucket != nil {
		return m.Bucket.BaseModel
	}
	return m.Model
}

// CompareSizes compares two length buckets by the number of elements of their inputs, for sorting.
func CompareSizes(a, b []TensorInfo) int {
	elements := func(list []TensorInfo) (sum float64) {
		for _, t := range list {
			n := 1.0
			for _, d := range t.Shape {
				n *= float64(max(d, 1))
			}
			sum += n
		}
		return sum
	}
	return cmp.Compare(elements(a), elements(b))
}

// checkBucket reports to c what is wrong with the description of a length bucket. model is the bucket's own name.
// b is nil for a model that is none.
func checkBucket(c *document.Checker, b *Bucket, model, path string) {
	if b == nil {
		return
	}
	switch {
	case b.BaseModel == "":
		c.Fail(path+".bucket.of", "an empty name", "a name", "")
	case b.BaseModel == model:
		c.Fail(path+".bucket.of", document.Quote(b.BaseModel), "another name than the model's", "")
	}
	if p := b.Padding; p != nil && (p.Mask == "" || p.MaxDiff < 0) {
		c.Fail(path+".bucket.padding", "a padding without a mask, or a negative difference", "the input that says what is filled up, and a difference of 0 or more", "")
	}
}

// CutBytes is the number of bytes per sample that cross a cut. The zero value means that the profile does not say
// it (the field is absent). A known zero is NoBytes.
type CutBytes int64

// NoBytes is a cut that is known to carry nothing.
const NoBytes CutBytes = math.MinInt64

// KnownCut returns a known number of bytes that cross a cut (a place between blocks where a model is divided) per
// sample, in the form of the profile. There 0 stands for unknown, so a known 0 becomes the mark NoBytes.
func KnownCut(bytes int64) CutBytes {
	if bytes == 0 {
		return NoBytes
	}
	return CutBytes(bytes)
}

// IsKnown reports whether the profile says the size.
func (c CutBytes) IsKnown() bool { return c != 0 }

// Bytes returns the bytes of a cut, or 0 if they are not known.
func (c CutBytes) Bytes() int64 {
	if c == NoBytes {
		return 0
	}
	return int64(c)
}

// MarshalJSON writes the size.
func (c CutBytes) MarshalJSON() ([]byte, error) { return strconv.AppendInt(nil, c.Bytes(), 10), nil }

// SetWholeValue sets the size that a document has. Validation refuses negative sizes.
func (c *CutBytes) SetWholeValue(n int64) { *c = KnownCut(max(n, -math.MaxInt64)) }

// WholeValue is the size as a document has it.
func (c CutBytes) WholeValue() int64 { return c.Bytes() }

// checkOperators reports to c libraries of custom operators without a file.
func checkOperators(c *document.Checker, list []modelfile.OperatorLibrary, path string) {
	for i := range list {
		fieldPath := fmt.Sprintf("%s[%d]", path, i)
		c.FailIf(list[i].Path == "", fieldPath+".path", "nothing", "the file of the library")
	}
}

// NewDeployment returns a deployment of the model that has no pipelines yet.
func (m *ProfileModel) NewDeployment() Deployed {
	d := Deployed{
		Model: m.Model, Bucket: m.Bucket, Inputs: m.Inputs, Outputs: m.Outputs, Constants: m.Constants, Operators: m.Operators,
		NumBlocks: len(m.Blocks), Pipelines: []Pipeline{}, RequestUS: m.RequestUS, RequestCPUUS: m.RequestCPUUS,
	}
	if m.Source != nil {
		d.SHA256 = m.Source.SHA256
	}
	return d
}

// HasNoBatchAxis returns whether a model's inputs all have fixed shapes, without a dimension for the batch. Such a
// model runs one request at a time, with exactly the declared shapes.
func (d *Deployed) HasNoBatchAxis() bool {
	for _, t := range d.Inputs {
		if len(t.Shape) == 0 || t.Shape[0] < 1 {
			return false
		}
	}
	for i := range d.Pipelines {
		if p := &d.Pipelines[i]; p.Batch > 1 || len(p.Stages) > 1 {
			return false
		}
	}
	return len(d.Inputs) > 0
}
