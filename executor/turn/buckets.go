package turn

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"inferplan/engine"
	"inferplan/executor/httplimit"
	"inferplan/executor/oip"
	"inferplan/formats"
	"inferplan/formats/document"
)

// bucketSet holds the length buckets of a model. Each is a model of the plan, and a request runs in the smallest that
// takes it.
type bucketSet struct {
	name    string
	buckets []lengthBucket // the smallest first
}

// lengthBucket is one of them.
type lengthBucket struct {
	model           string
	inputs, outputs []formats.TensorInfo // with the dimensions in which the buckets differ
	length          int64                // of those dimensions; 0 if they have different ones
	allowsPadding   bool                 // shorter requests may be padded
}

// bucketsOf returns the length buckets of a plan by the name that clients use, the smallest first: one model was
// compiled for several input sizes, and clients see a single name for all. classes has the models of the plan. A name
// that the plan itself serves has no buckets.
func bucketsOf(plan *formats.Plan, classes *formats.Classes) map[string]*bucketSet {
	out := map[string]*bucketSet{}
	for i := range plan.Deployment {
		d := &plan.Deployment[i]
		if d.Bucket == nil || classes.ClassesOf(d.Model) == nil || classes.ClassesOf(d.Bucket.BaseModel) != nil {
			continue
		}
		set := out[d.Bucket.BaseModel]
		if set == nil {
			set = &bucketSet{name: d.Bucket.BaseModel}
			out[d.Bucket.BaseModel] = set
		}
		if !set.hasModel(d.Model) { // otherwise it is another class of it
			set.buckets = append(set.buckets, lengthBucket{d.Model, d.Inputs, d.Outputs, formats.BucketLength(d.Inputs), d.Bucket.Padding != nil})
		}
	}
	for _, set := range out {
		slices.SortStableFunc(set.buckets, func(a, b lengthBucket) int { return formats.CompareSizes(a.inputs, b.inputs) })
	}
	return out
}

// hasModel returns true if a model is one of the buckets.
func (s *bucketSet) hasModel(model string) bool {
	return slices.ContainsFunc(s.buckets, func(b lengthBucket) bool { return b.model == model })
}

// clientInfo returns what clients see of a name that is served in length buckets: the smallest bucket's tensors,
// with free dimensions (-1) where the buckets differ. It returns an error if the buckets differ in their classes or
// inputs.
func (s *bucketSet) clientInfo(info oip.ModelInfo, served *servedModels) (oip.ModelInfo, error) {
	info.Name = s.name
	freeAxes := func(list []oip.TensorInfo, axes []formats.TensorInfo) []oip.TensorInfo {
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
	info.Inputs, info.Outputs = freeAxes(info.Inputs, s.buckets[0].inputs), freeAxes(info.Outputs, s.buckets[0].outputs)
	for i := range s.buckets {
		b := &s.buckets[i]
		if !slices.Equal(served.ClassNames.ClassesOf(b.model), served.ClassNames.ClassesOf(s.buckets[0].model)) {
			return info, fmt.Errorf("%s and %s, buckets of %s, have different classes", s.buckets[0].model, b.model, s.name)
		}
		if len(b.inputs) != len(s.buckets[0].inputs) {
			return info, fmt.Errorf("%s and %s, buckets of %s, have different inputs", s.buckets[0].model, b.model, s.name)
		}
	}
	return info, nil
}

// fittedRequest remembers how a request was fitted into its bucket. A zero value changes nothing.
type fittedRequest struct {
	bucket *lengthBucket
	length int64 // of the request; 0 if it is as long as the bucket
}

// FitBucket returns the request that really runs for a request of a client: if the model's name stands for length
// buckets (models compiled for one input size each), it is for the smallest one that the request fits, padded if it is
// shorter. The fittedRequest is for TrimAnswer, which cuts the padding off the answer. Requests for other models are
// returned as they are. If no bucket fits, it returns an error with the sizes.
func (s *servedModels) FitBucket(req *oip.Request) (*oip.Request, fittedRequest, error) {
	set := s.bucketSets[req.Model]
	if set == nil {
		return req, fittedRequest{}, nil
	}
	for i := range set.buckets {
		b := &set.buckets[i]
		length, ok := b.fits(req)
		if !ok {
			continue
		}
		in := *req
		in.Model = b.model
		if length > 0 {
			in.Inputs = b.padInputs(req.Inputs)
		}
		return &in, fittedRequest{b, length}, nil
	}
	return nil, fittedRequest{}, set.sizeError(req)
}

// fits returns true if a request fits into a bucket: a model that is compiled for one input length. `length` is 0 if the
// request has exactly the bucket's size. If it is shorter and has to be padded, it is the request's length, the same on
// all axes that may vary. A request with wrong tensors fits too, so that prepareJob reports what is wrong.
func (b *lengthBucket) fits(req *oip.Request) (length int64, ok bool) {
	// On the axes that may vary, look for one common length up to the bucket's; -1 stands for lengths that differ or are
	// out of range.
	sameSize := true
	for i := range b.inputs {
		t := FindTensor(req.Inputs, i, b.inputs[i].Name)
		if t == nil || len(t.Shape) != len(b.inputs[i].Shape) {
			return 0, true // prepareJob reports the error
		}
		for _, axis := range b.inputs[i].DynamicAxes {
			n := t.Shape[axis]
			sameSize = sameSize && n == b.inputs[i].Shape[axis]
			if length == 0 { // the first axis that may vary
				length = n
			}
			if n != length || n < 1 || n > b.length {
				length = -1
			}
		}
	}
	if sameSize {
		return 0, true
	}
	return length, b.allowsPadding && length > 0
}

// padInputs returns inputs of a bucket's size, made of a request's shorter ones: their values in the corner, and
// zeros behind. Inputs that have the same size in all buckets are not copied.
func (b *lengthBucket) padInputs(list []oip.Tensor) []oip.Tensor {
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

// TrimAnswer cuts the padding off the answer to a request that was shorter than its bucket (a model compiled for
// one input size), in the answer's own memory. Other answers stay as they are.
func (f fittedRequest) TrimAnswer(r *oip.Response) *oip.Response {
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

// StatisticsOf returns the rows of statistics of a model, or of all models if the name is empty. For the plan's own
// names it returns the rows of statisticsOf. For a name that stands for length buckets (models compiled for different
// input sizes), which the plan itself does not have, it returns a row with the sums over the buckets.
func (s *servedModels) StatisticsOf(model string, statisticsOf func(model string) []oip.ModelStatistics) (rows []oip.ModelStatistics) {
	if s.bucketSets[model] == nil {
		rows = statisticsOf(model)
	}
	for _, name := range slices.Sorted(maps.Keys(s.bucketSets)) {
		for i := range s.bucketSets[name].buckets {
			if model != "" && name != model {
				break
			}
			for _, row := range statisticsOf(s.bucketSets[name].buckets[i].model) {
				row.Name = name
				rows = AddStatistics(rows, row)
			}
		}
	}
	return rows
}

// sizeError returns the error for a request that fits no bucket (a model compiled for one input size). It names the
// sizes that are served and those of the request. Sizes are in the models' names, behind an @.
func (s *bucketSet) sizeError(req *oip.Request) error {
	var names []string
	allPadded := true
	for i := range s.buckets {
		_, size, _ := strings.Cut(s.buckets[i].model, "@")
		names, allPadded = append(names, size), allPadded && s.buckets[i].allowsPadding
	}
	found := document.Map(req.Inputs, func(t *oip.Tensor) string { return fmt.Sprintf("%s %v", t.Name, t.Shape) })
	hint := "a request must have exactly one of them"
	if allPadded {
		hint = "shorter ones are filled up, longer ones have to be cut"
	}
	return httplimit.Invalid("inputs", "model %q is served at the sizes %s, got %s: %s", s.name, strings.Join(names, ", "), strings.Join(found, ", "), hint)
}
