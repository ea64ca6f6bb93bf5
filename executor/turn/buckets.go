package turn

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"inferplan/engine"
	"inferplan/executor/oip"
	"inferplan/formats"
)

// bucketSet holds the length buckets of a model. Each is a model of the plan, and a request runs in the smallest that
// takes it.
type sizes struct {
	name    string
	buckets []sized // the smallest first
}

// lengthBucket is one of them.
type sized struct {
	model           string
	inputs, outputs []formats.TensorInfo // with the dimensions in which the buckets differ
	length          int64                // of those dimensions; 0 if they have different ones
	padded          bool                 // shorter requests may be padded
}

// bucketsOf finds the buckets among the models of a plan. A name that the plan itself serves has none.
func bucketsOf(plan *formats.Plan, named *formats.Classes) map[string]*sizes {
	out := map[string]*sizes{}
	for i := range plan.Deployment {
		d := &plan.Deployment[i]
		if d.Bucket == nil || named.Of(d.Model) == nil || named.Of(d.Bucket.Of) != nil {
			continue
		}
		of := out[d.Bucket.Of]
		if of == nil {
			of = &sizes{name: d.Bucket.Of}
			out[d.Bucket.Of] = of
		}
		if !of.has(d.Model) { // otherwise it is another class of it
			of.buckets = append(of.buckets, sized{d.Model, d.Inputs, d.Outputs, formats.BucketLength(d.Inputs), d.Bucket.Padding != nil})
		}
	}
	for _, of := range out {
		slices.SortStableFunc(of.buckets, func(a, b sized) int { return formats.CompareSizes(a.inputs, b.inputs) })
	}
	return out
}

// hasModel returns true if a model is one of the buckets.
func (s *sizes) has(model string) bool {
	return slices.ContainsFunc(s.buckets, func(b sized) bool { return b.model == model })
}

// clientInfo returns what clients see: a model whose dimensions are free where the buckets differ. It starts from the
// smallest bucket.
func (s *sizes) describe(like oip.ModelInfo, o *offer) (oip.ModelInfo, error) {
	like.Name = s.name
	free := func(list []oip.TensorInfo, axes []formats.TensorInfo) []oip.TensorInfo {
		list = slices.Clone(list)
		for i := range list {
			list[i].Shape = slices.Clone(list[i].Shape)
			for _, t := range axes {
				if t.Name != list[i].Name {
					continue
				}
				for _, axis := range t.DynamicAxes {
					if axis < len(list[i].Shape) {
						list[i].Shape[axis] = -1
					}
				}
			}
		}
		return list
	}

	// Free the dimensions in which the buckets differ, and check that the rest is equal.
	like.Inputs, like.Outputs = free(like.Inputs, s.buckets[0].inputs), free(like.Outputs, s.buckets[0].outputs)
	for i := range s.buckets {
		b := &s.buckets[i]
		if !slices.Equal(o.Named.Of(b.model), o.Named.Of(s.buckets[0].model)) {
			return like, fmt.Errorf("%s and %s, buckets of %s, have different classes", s.buckets[0].model, b.model, s.name)
		}
		if len(b.inputs) != len(s.buckets[0].inputs) {
			return like, fmt.Errorf("%s and %s, buckets of %s, have different inputs", s.buckets[0].model, b.model, s.name)
		}
	}
	return like, nil
}

// fittedRequest remembers how a request was fitted into its bucket. A zero value changes nothing.
type fitted struct {
	bucket *sized
	length int64 // of the request; 0 if it is as long as the bucket
}

// FitBucket finds the smallest bucket that takes a request, and pads the request if it is shorter. Requests for other
// models are returned as they are.
func (s *offer) Fit(req *oip.Request) (*oip.Request, fitted, error) {
	of := s.sizes[req.Model]
	if of == nil {
		return req, fitted{}, nil
	}
	for i := range of.buckets {
		b := &of.buckets[i]
		length, ok := b.takes(req)
		if !ok {
			continue
		}
		in := *req
		in.Model = b.model
		if length > 0 {
			in.Inputs = b.fill(req.Inputs)
		}
		return &in, fitted{b, length}, nil
	}
	return nil, fitted{}, of.refuse(req)
}

// fits returns true if a bucket takes a request. `length` is that of a request that is shorter and has to be padded, and
// otherwise 0.
func (b *sized) takes(req *oip.Request) (length int64, ok bool) {
	same := true
	for i := range b.inputs {
		t := FindTensor(req.Inputs, i, b.inputs[i].Name)
		if t == nil || len(t.Shape) != len(b.inputs[i].Shape) {
			return 0, true // prepareJob reports the error
		}
		for _, axis := range b.inputs[i].DynamicAxes {
			n := t.Shape[axis]
			if same = same && n == b.inputs[i].Shape[axis]; length == 0 {
				length = n
			}
			if n != length || n < 1 || n > b.length {
				length = -1
			}
		}
	}
	if same {
		return 0, true
	}
	return length, b.padded && length > 0
}

// padInputs returns a bucket's inputs made of shorter ones, with zeros behind.
func (b *sized) fill(list []oip.Tensor) []oip.Tensor {
	out := make([]oip.Tensor, len(list))
	for i := range b.inputs {
		t := FindTensor(list, i, b.inputs[i].Name)
		out[i] = *t
		if len(b.inputs[i].DynamicAxes) == 0 {
			continue
		}
		shape := slices.Clone(t.Shape)
		size := int64(t.Datatype.Size())
		for _, axis := range b.inputs[i].DynamicAxes {
			shape[axis] = b.inputs[i].Shape[axis]
		}
		n := size
		for _, d := range shape {
			n *= d
		}
		out[i].Shape, out[i].Data = shape, make([]byte, n)
		engine.CopyCorner(out[i].Data, shape, t.Data, t.Shape, int(size))
	}
	return out
}

// TrimAnswer cuts the padding off an answer, in the answer's own memory.
func (f fitted) Answer(r *oip.Response) *oip.Response {
	if r == nil || f.length == 0 {
		return r
	}
	for i := range r.Outputs {
		t := &r.Outputs[i]
		k := slices.IndexFunc(f.bucket.outputs, func(o formats.TensorInfo) bool { return o.Name == t.Name })
		if k < 0 || len(f.bucket.outputs[k].DynamicAxes) == 0 {
			continue
		}
		shape := slices.Clone(t.Shape)
		n := int64(t.Datatype.Size())
		for _, axis := range f.bucket.outputs[k].DynamicAxes {
			shape[axis] = f.length
		}
		for _, d := range shape {
			n *= d
		}
		engine.CopyCorner(t.Data, shape, t.Data, t.Shape, t.Datatype.Size())
		t.Shape, t.Data = shape, t.Data[:n]
	}
	return r
}

// StatisticsOf returns rows by the models' names. For a name whose requests run in buckets, they are sums over the
// buckets.
func (s *offer) Statistics(model string, of func(model string) []oip.ModelStatistics) (rows []oip.ModelStatistics) {
	if s.sizes[model] == nil {
		rows = of(model)
	}
	for _, name := range slices.Sorted(maps.Keys(s.sizes)) {
		for i := range s.sizes[name].buckets {
			if model != "" && name != model {
				break
			}
			for _, row := range of(s.sizes[name].buckets[i].model) {
				row.Name = name
				rows = AddStatistics(rows, row)
			}
		}
	}
	return rows
}

// sizeError returns an error that says which sizes there are.
func (s *sizes) refuse(req *oip.Request) error {
	var names []string
	filled := true
	for i := range s.buckets {
		_, size, _ := strings.Cut(s.buckets[i].model, "@")
		names, filled = append(names, size), filled && s.buckets[i].padded
	}
	var got []string
	for _, t := range req.Inputs {
		got = append(got, fmt.Sprintf("%s %v", t.Name, t.Shape))
	}
	how := "a request must have exactly one of them"
	if filled {
		how = "shorter ones are filled up, longer ones have to be cut"
	}
	return oip.Invalid("inputs", "model %q is served at the sizes %s, got %s: %s", s.name, strings.Join(names, ", "), strings.Join(got, ", "), how)
}
