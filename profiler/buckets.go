package profiler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/formats"
)

// modelVariant is a model at one size of its inputs.
type modelVariant struct {
	m    model
	info modelInfo
}

// openVariants opens a model file once at its only input size, or once for each size that is requested or that the
// profile has. Several sizes become the model's buckets: variants with fixed input sizes, in ascending order, that
// nameBuckets names. path is the file.
func openVariants(ctx context.Context, r *runner, path string) ([]modelVariant, error) {
	name := ModelName(path)

	// Open the model at each size, and drop equal neighbours.
	sizes := r.options.optionsBySize(name)
	var out []modelVariant
	for _, o := range sizes {
		m, err := r.options.open(ctx, path, o)
		if err != nil {
			if o == r.options && len(sizes) > 1 && errors.Is(err, graph.ErrModel) {
				continue // the requested sizes are for other models
			}
			return nil, err
		}
		info := m.info()
		info.baseModel = info.name
		out = append(out, modelVariant{m, info})
	}
	out = slices.CompactFunc(out, func(a, b modelVariant) bool { return sameInputs(a.info.inputs, b.info.inputs) })
	// Sizes that are given for all models may all be the same for this one. It then has no buckets, unless they were
	// asked for by its name or are in the profile.
	if len(sizes) == 1 || len(out) == 1 && len(r.options.Buckets[name]) == 0 && len(r.options.profileBuckets(name)) == 0 {
		return out[:1], nil
	}

	// Order the sizes, drop equal ones that were not neighbours before, and name the rest as buckets.
	slices.SortStableFunc(out, func(a, b modelVariant) int {
		return formats.CompareSizes(tensorInfos(a.info.inputs), tensorInfos(b.info.inputs))
	})
	out = slices.CompactFunc(out, func(a, b modelVariant) bool { return sameInputs(a.info.inputs, b.info.inputs) })
	if len(out) == 1 {
		return nil, inputError("%s: its shapes are all alike, %v: --shape INPUT=1x32:1x128 has one for each length bucket", path, out[0].info.inputs)
	}
	if r.options.Profile != nil && r.options.Profile.FindModel(name) != nil {
		return nil, inputError("%s: the profile has it at one size, and several are asked for: write another profile (-o)", name)
	}
	return out, nameBuckets(out, path)
}

// sameInputs reports whether two lists of inputs have the same shapes.
func sameInputs(a, b []engine.Spec) bool {
	return slices.EqualFunc(a, b, func(x, y engine.Spec) bool { return slices.Equal(x.Shape, y.Shape) })
}

// nameBuckets turns the variants of a model, which differ in the sizes of their inputs, into its buckets: it names
// each by its sizes, and records in which dimensions they differ. path is the model's file, for errors.
func nameBuckets(list []modelVariant, path string) error {
	// axes returns, for each tensor, the dimensions that differ between the sizes.
	axes := func(tensorsOf func(*modelInfo) []engine.Spec) [][]int {
		out := make([][]int, len(tensorsOf(&list[0].info)))
		for i, first := range tensorsOf(&list[0].info) {
			for k := range first.Shape {
				if slices.ContainsFunc(list, func(v modelVariant) bool { return tensorsOf(&v.info)[i].Shape[k] != first.Shape[k] }) {
					out[i] = append(out[i], k)
				}
			}
		}
		return out
	}

	// All sizes must have the same tensors.
	// A batch of 0 stands for a free batch dimension.
	for i := range list {
		a, b := &list[0].info, &list[i].info
		if len(a.inputs) != len(b.inputs) || len(a.outputs) != len(b.outputs) || a.batch != b.batch {
			return inputError("%s: at some sizes its batch is free, at others not: profile them one by one, each into a profile of its own", path)
		}
		for _, pair := range [][2][]engine.Spec{{a.inputs, b.inputs}, {a.outputs, b.outputs}} {
			for k := range pair[0] {
				if len(pair[0][k].Shape) != len(pair[1][k].Shape) {
					return inputError("%s: %s and %s have different numbers of dimensions", path, pair[0][k], pair[1][k])
				}
			}
		}
	}

	// Name each size after its dimensions.
	inputAxes, outputAxes := axes(func(m *modelInfo) []engine.Spec { return m.inputs }), axes(func(m *modelInfo) []engine.Spec { return m.outputs })
	names := map[string]bool{}
	for i := range list {
		m := &list[i].info
		m.inputAxes, m.outputAxes, m.bucket = inputAxes, outputAxes, &formats.Bucket{BaseModel: m.baseModel}
		m.name = formats.BucketName(m.baseModel, inputInfos(m))
		if names[m.name] {
			return inputError("%s: two of its sizes would be called %s", path, m.name)
		}
		names[m.name] = true
	}
	return nil
}

// profileBuckets returns the buckets of a model (its entries at fixed input sizes) in the profile.
func (o *Options) profileBuckets(name string) []*formats.ProfileModel {
	if o.Profile == nil {
		return nil
	}
	return o.Profile.BucketsOf(name)
}

// optionsBySize returns options to open a model with, one for each size (bucket): for the sizes that the caller asks
// for, and for those that the profile has. For a model without either, these are the options themselves.
func (o *Options) optionsBySize(name string) []*Options {
	// The sizes for this model, or those for all models, which have the empty name.
	requested := o.Buckets[name]
	if requested == nil {
		requested = o.Buckets[""]
	}
	known := o.profileBuckets(name)
	var out []*Options

	// Sizes that are asked for.
	for _, dims := range requested {
		sized := *o
		sized.Dims = maps.Clone(o.Dims)
		if sized.Dims == nil {
			sized.Dims = map[string]map[string][]int64{}
		}
		merged := maps.Clone(dims)
		for input, shape := range o.Dims[name] {
			merged[input] = shape
		}
		sized.Dims[name] = merged
		out = append(out, &sized)
	}

	// The options as they are, if they name no sizes and the profile has none, or if they give dimensions.
	if len(requested) == 0 && (len(known) == 0 || len(o.Dims[name])+len(o.Dims[""]) > 0) {
		out = append(out, o)
	}

	// Sizes that the profile has. readModel takes them from the entry basedOn.
	for _, m := range known {
		sized := *o
		sized.basedOn, sized.Dims = m, nil
		out = append(out, &sized)
	}
	return out
}

// maxPaddingDiff is the largest allowed difference between the answers to a padded request and to the request
// itself, relative to the larger of 1 and the value.
const maxPaddingDiff = 1e-3

// checkPadding finds out for each model with buckets (fixed input sizes) whether a shorter request may be padded
// with zeros to the next larger bucket: whether the answers stay the same. It is called after the models are opened.
func checkPadding(ctx context.Context, r *runner) error {
	var families []*bucketFamily
	for _, j := range r.jobs {
		switch n := len(families); {
		case j.info.bucket == nil:
		case n > 0 && families[n-1].name == j.info.baseModel: // the buckets of a model follow each other
			families[n-1].buckets = append(families[n-1].buckets, j)
		default:
			families = append(families, &bucketFamily{r, j.info.baseModel, []*modelJob{j}})
		}
	}
	for _, f := range families {
		if err := f.setPadding(ctx); err != nil {
			return err
		}
	}
	return nil
}

// bucketFamily is all buckets of a model, the smallest first.
type bucketFamily struct {
	r       *runner
	name    string
	buckets []*modelJob
}

// setPadding records in the buckets how requests are padded. They are not padded, and the user is warned, if no
// input is a mask that hides the padding, if the buckets differ in more than one length, or if the answers change.
func (f *bucketFamily) setPadding(ctx context.Context) error {
	list := f.buckets
	warnExact := func(reason string) {
		f.r.progress.warn(f.name, fmt.Sprintf("%s: requests must have exactly the size of a bucket (%s)", f.name, reason))
	}

	// Find the mask: an input with such a name whose size changes with the bucket.
	mask := -1
	for i, t := range list[0].info.inputs {
		if strings.Contains(strings.ToLower(t.Name), "mask") && len(list[0].info.inputAxes[i]) > 0 {
			mask = i
			break
		}
	}
	for _, j := range list {
		// A length of 0 means that no single length tells the buckets apart.
		inputs := inputInfos(&j.info)
		if formats.BucketLength(append(inputs, outputInfos(&j.info)...)) == 0 || formats.BucketLength(inputs) == 0 {
			warnExact("they differ in more than a length")
			return nil
		}
	}
	if mask < 0 {
		warnExact("no input with mask in its name says what is filled up")
		return nil
	}

	// Compare the answers of each size with those of the next larger one, padded.
	p := &formats.Padding{Mask: list[0].info.inputs[mask].Name}
	for k := range len(list) - 1 {
		d, err := f.paddingDiff(ctx, list[k], list[k+1], mask)
		if err != nil {
			return err
		}
		if d > maxPaddingDiff {
			warnExact(fmt.Sprintf("filled up from %s to %s with zeros of %s, its answers change by %.2g", list[k].info.name, list[k+1].info.name, p.Mask, d))
			return nil
		}
		p.MaxDiff = max(p.MaxDiff, d)
	}
	for _, j := range list {
		j.info.bucket.Padding = p // the profile's entry points to the same bucket
	}
	return nil
}

// paddingDiff returns the largest relative difference between the answers of a bucket and those of a larger one for
// the same request, padded with zeros. mask is the index of the input that is 1 for the request and 0 for the
// padding. Inputs are drawn values; the batch is 1 or, for a model without a free batch, its own.
func (f *bucketFamily) paddingDiff(ctx context.Context, smaller, larger *modelJob, mask int) (maxDiff float64, err error) {
	// Load both buckets.
	var bound [2]engine.Binding
	for k, j := range []*modelJob{smaller, larger} {
		uncut := j.m.wholeModel()
		blk, err := f.r.target().loadSlice(ctx, uncut, 0, uncut.Len(), graph.SliceOptions{})
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, blk.Close()) }()
		if bound[k], err = blk.Bind(engine.BindOptions{Batch: j.quickBatch()}); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, bound[k].Close()) }()
	}
	if err := smaller.info.values.fillAll(bound[0].Inputs(), 0); err != nil {
		return 0, err
	}

	// Copy the request into the larger bucket, padded with zeros. The mask has ones for the request.
	for i, t := range bound[0].Inputs() {
		spec, target := t.Spec(), bound[1].Inputs()[i]
		data := make([]byte, spec.BytesAt(t.Batch()))
		if i == mask {
			one := graph.Literal{Values: []float64{1}} // a single value fills the whole tensor
			elements := int64(len(data) / spec.Type.Size())
			if data, err = one.Fill(spec.Type, elements, elements); err != nil {
				return 0, err
			}
			if err := t.Write(data); err != nil {
				return 0, err
			}
		} else if err := t.Read(data); err != nil {
			return 0, err
		}
		padded := make([]byte, target.Spec().BytesAt(target.Batch()))
		engine.CopyCorner(padded, target.Spec().ShapeAt(target.Batch()), data, spec.ShapeAt(t.Batch()), spec.Type.Size())
		if err := target.Write(padded); err != nil {
			return 0, err
		}
	}

	// Run both, and compare the part of the answers that they share.
	for _, b := range bound {
		if err := b.Run(ctx); err != nil {
			return 0, err
		}
	}
	for i, t := range bound[0].Outputs() {
		spec, answer := t.Spec(), bound[1].Outputs()[i]
		want, got := make([]byte, spec.BytesAt(t.Batch())), make([]byte, answer.Spec().BytesAt(answer.Batch()))
		if err := errors.Join(t.Read(want), answer.Read(got)); err != nil {
			return 0, err
		}
		// Move the part of the larger answer that has the smaller one's shape to the front, in place.
		engine.CopyCorner(got, spec.ShapeAt(t.Batch()), got, answer.Spec().ShapeAt(answer.Batch()), spec.Type.Size())
		maxDiff = max(maxDiff, maxRelativeDiff(spec.Type, got[:len(want)], want))
	}
	return maxDiff, nil
}
