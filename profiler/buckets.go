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

// variant is a model at one size of its inputs.
type variant struct {
	m  model
	in modelInfo
}

// openVariants opens a model once, or once for each of its buckets: those that are requested, and those that the
// profile has.
func variants(ctx context.Context, r *runner, path string) ([]variant, error) {
	name := ModelName(path)

	// Open the model at each size, and drop equal ones.
	sizes := r.o.sizes(name)
	var out []variant
	for _, o := range sizes {
		m, err := r.o.open(ctx, path, o)
		if err != nil {
			if o == r.o && len(sizes) > 1 && errors.Is(err, graph.ErrModel) {
				continue // the requested sizes are for other models
			}
			return nil, err
		}
		in := m.info()
		in.base = in.name
		out = append(out, variant{m, in})
	}
	out = slices.CompactFunc(out, func(a, b variant) bool { return sameInputs(a.in.inputs, b.in.inputs) })
	if len(sizes) == 1 || len(out) == 1 && len(r.o.Buckets[name]) == 0 && len(r.o.profileBuckets(name)) == 0 {
		return out[:1], nil
	}

	// Order the sizes, and name them as buckets.
	slices.SortStableFunc(out, func(a, b variant) int {
		return formats.CompareSizes(tensorInfos(a.in.inputs), tensorInfos(b.in.inputs))
	})
	out = slices.CompactFunc(out, func(a, b variant) bool { return sameInputs(a.in.inputs, b.in.inputs) })
	if len(out) == 1 {
		return nil, inputError("%s: its shapes are all alike, %v: --shape INPUT=1x32:1x128 has one for each length bucket", path, out[0].in.inputs)
	}
	if r.o.Profile != nil && r.o.Profile.Find(name) != nil {
		return nil, inputError("%s: the profile has it at one size, and several are asked for: write another profile (-o)", name)
	}
	return out, asBuckets(out, path)
}

func sameInputs(a, b []engine.Spec) bool {
	return slices.EqualFunc(a, b, func(x, y engine.Spec) bool { return slices.Equal(x.Shape, y.Shape) })
}

// nameBuckets names the variants of a model by their sizes, and records in which dimensions they differ.
func asBuckets(list []variant, path string) error {
	// axes returns, for each tensor, the dimensions that differ between the sizes.
	axes := func(of func(*modelInfo) []engine.Spec) [][]int {
		out := make([][]int, len(of(&list[0].in)))
		for i, first := range of(&list[0].in) {
			for k := range first.Shape {
				if slices.ContainsFunc(list, func(v variant) bool { return of(&v.in)[i].Shape[k] != first.Shape[k] }) {
					out[i] = append(out[i], k)
				}
			}
		}
		return out
	}

	// All sizes must have the same tensors.
	for i := range list {
		a, b := &list[0].in, &list[i].in
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
	in, out := axes(func(m *modelInfo) []engine.Spec { return m.inputs }), axes(func(m *modelInfo) []engine.Spec { return m.outputs })
	names := map[string]bool{}
	for i := range list {
		m := &list[i].in
		m.inputAxes, m.outputAxes, m.bucket = in, out, &formats.Bucket{Of: m.base}
		m.name = formats.BucketName(m.base, inputInfos(m))
		if names[m.name] {
			return inputError("%s: two of its sizes would be called %s", path, m.name)
		}
		names[m.name] = true
	}
	return nil
}

// profileBuckets returns the buckets of a model in the profile.
func (o *Options) profileBuckets(name string) []*formats.ProfileModel {
	if o.Profile == nil {
		return nil
	}
	return o.Profile.Buckets(name)
}

// optionsBySize returns options to open a model with, one for each size.
func (o *Options) sizes(name string) []*Options {
	given := o.Buckets[name]
	if given == nil {
		given = o.Buckets[""]
	}
	have := o.profileBuckets(name)
	var out []*Options
	for _, dims := range given {
		with := *o
		with.Dims = maps.Clone(o.Dims)
		if with.Dims == nil {
			with.Dims = map[string]map[string][]int64{}
		}
		merged := maps.Clone(dims)
		for input, shape := range o.Dims[name] {
			merged[input] = shape
		}
		with.Dims[name] = merged
		out = append(out, &with)
	}
	if len(given) == 0 && (len(have) == 0 || len(o.Dims[name])+len(o.Dims[""]) > 0) {
		out = append(out, o)
	}
	for _, m := range have {
		with := *o
		with.like, with.Dims = m, nil
		out = append(out, &with)
	}
	return out
}

// maxPaddingDiff is the largest allowed difference between the answers to a padded request and to the request
// itself, relative to the larger of 1 and the value.
const maxPaddingDiff = 1e-3

// checkPadding finds out for each model with buckets whether shorter requests may be padded: whether the answers
// of each bucket stay the same in the next larger one.
func padding(ctx context.Context, r *runner) error {
	var all []*family
	for _, j := range r.jobs {
		switch n := len(all); {
		case j.in.bucket == nil:
		case n > 0 && all[n-1].name == j.in.base: // the buckets of a model follow each other
			all[n-1].list = append(all[n-1].list, j)
		default:
			all = append(all, &family{r, j.in.base, []*job{j}})
		}
	}
	for _, f := range all {
		if err := f.pad(ctx); err != nil {
			return err
		}
	}
	return nil
}

// bucketFamily is all buckets of a model, the smallest first.
type family struct {
	r    *runner
	name string
	list []*job
}

// setPadding records in the buckets how requests are padded, or warns that they must not be.
func (f *family) pad(ctx context.Context) error {
	list := f.list
	exact := func(why string) {
		f.r.warn(f.name, fmt.Sprintf("%s: requests must have exactly the size of a bucket (%s)", f.name, why))
	}

	// Find the mask: an input with such a name whose size changes with the bucket.
	mask := -1
	for i, t := range list[0].in.inputs {
		if strings.Contains(strings.ToLower(t.Name), "mask") && len(list[0].in.inputAxes[i]) > 0 {
			mask = i
			break
		}
	}
	for _, j := range list {
		in := inputInfos(&j.in)
		if formats.BucketLength(append(in, outputInfos(&j.in)...)) == 0 || formats.BucketLength(in) == 0 {
			exact("they differ in more than a length")
			return nil
		}
	}
	if mask < 0 {
		exact("no input with mask in its name says what is filled up")
		return nil
	}

	// Compare the answers of each size with those of the next larger one, padded.
	p := &formats.Padding{Mask: list[0].in.inputs[mask].Name}
	for k := range len(list) - 1 {
		d, err := f.padded(ctx, list[k], list[k+1], mask)
		if err != nil {
			return err
		}
		if d > maxPaddingDiff {
			exact(fmt.Sprintf("filled up from %s to %s with zeros of %s, its answers change by %.2g", list[k].in.name, list[k+1].in.name, p.Mask, d))
			return nil
		}
		p.MaxDiff = max(p.MaxDiff, d)
	}
	for _, j := range list {
		j.in.bucket.Padding = p // the profile's entry points to the same bucket
	}
	return nil
}

// paddingDiff returns the largest difference between the answers of a bucket and those of a larger one for the
// same request, padded with zeros.
func (f *family) padded(ctx context.Context, short, long *job, mask int) (worst float64, err error) {
	// Load both buckets.
	var bound [2]engine.Binding
	for k, j := range []*job{short, long} {
		whole := j.m.whole()
		blk, err := f.r.here().loadSlice(ctx, whole, 0, whole.Len(), graph.SliceOptions{})
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, blk.Close()) }()
		if bound[k], err = blk.Bind(engine.BindOptions{Batch: j.quickBatch()}); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, bound[k].Close()) }()
	}
	if err := short.in.values.fillAll(bound[0].Inputs(), 0); err != nil {
		return 0, err
	}

	// Copy the request into the larger bucket, padded with zeros. The mask has ones for the request.
	for i, t := range bound[0].Inputs() {
		spec, to := t.Spec(), bound[1].Inputs()[i]
		data := make([]byte, spec.BytesAt(t.Batch()))
		if i == mask {
			ones := graph.Literal{Values: []float64{1}}
			if data, err = ones.Fill(spec.Type, int64(len(data)/spec.Type.Size()), int64(len(data)/spec.Type.Size())); err != nil {
				return 0, err
			}
			if err := t.Write(data); err != nil {
				return 0, err
			}
		} else if err := t.Read(data); err != nil {
			return 0, err
		}
		filled := make([]byte, to.Spec().BytesAt(to.Batch()))
		engine.CopyCorner(filled, to.Spec().ShapeAt(to.Batch()), data, spec.ShapeAt(t.Batch()), spec.Type.Size())
		if err := to.Write(filled); err != nil {
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
		spec, from := t.Spec(), bound[1].Outputs()[i]
		want, got := make([]byte, spec.BytesAt(t.Batch())), make([]byte, from.Spec().BytesAt(from.Batch()))
		if err := errors.Join(t.Read(want), from.Read(got)); err != nil {
			return 0, err
		}
		engine.CopyCorner(got, spec.ShapeAt(t.Batch()), got, from.Spec().ShapeAt(from.Batch()), spec.Type.Size())
		worst = max(worst, relativeDiff(spec.Type, got[:len(want)], want))
	}
	return worst, nil
}
