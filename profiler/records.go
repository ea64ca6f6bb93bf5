package profiler

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"inferplan/engine"
	"inferplan/engine/certainty"
	"inferplan/engine/graph"
	"inferplan/formats"
	"inferplan/formats/importer/samples"
	"inferplan/formats/seeded"
)

// RecordOptions describes how a family of classifiers is recorded.
type RecordOptions struct {
	Models  []string // ONNX files, in the order of the family
	Samples *samples.SampleSet
	Source  string  // the source of the samples
	HeldOut float64 // share of the samples that are held out, 0 to below 1
	Score   string  // the formula of certainty; if empty, certainty.Default
	Seed    uint64  // the seed of the shuffle, and of the weights of models without any

	// Dims and Values of inputs, as in Options. Those that are not given are taken from Profile, if that is given.
	Dims    map[string]map[string][]int64
	Values  map[string]map[string]graph.Literal
	Profile *formats.Profile

	FP16     bool // the models compute in float16
	Engine   engine.Engine
	Progress func(model string, done, samples int)
}

// recordBatch is the number of samples in a run.
const recordBatch = 32

// Record runs a family of classifiers over labelled samples, on a CPU. For every answer it records how certain the
// model was and whether the answer was right. Samples are shuffled first, because files are often ordered by label.
// The last part of them is held out. The result is the input of planning cascades, in which small models answer the
// samples that they are certain of.
func Record(ctx context.Context, o RecordOptions) (*formats.Records, error) {
	if len(o.Models) == 0 || o.Engine == nil {
		return nil, inputError("no model given")
	}
	out := &formats.Records{Source: o.Source, Score: o.Score, Seed: o.Seed, Samples: len(o.Samples.Labels)}
	order, score, err := splitSamples(out, o.HeldOut)
	if err != nil {
		return nil, err
	}
	for _, path := range o.Models {
		m, err := o.recordModel(ctx, path, order, score)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out.Models, func(have formats.ModelRecords) bool { return have.Model == m.Model }) {
			return nil, inputError("model %s: given twice", m.Model)
		}
		out.Models = append(out.Models, *m)
	}
	return out, nil
}

// splitSamples sets in the records how many samples are planned on: all but the share heldOut of them. It returns
// the shuffled order of the samples and the function that computes certainties.
func splitSamples(r *formats.Records, heldOut float64) ([]int, certainty.Func, error) {
	if !(heldOut >= 0 && heldOut < 1) {
		return nil, nil, inputError("held out: %v: expected a share from 0 to below 1", heldOut)
	}
	r.Score = cmp.Or(r.Score, certainty.Default)
	score, err := certainty.ByName(r.Score)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	r.PlanningSamples = r.Samples - int(heldOut*float64(r.Samples))
	return SampleOrder(r.Seed, r.Samples), score, nil
}

// CheckSamples checks that labelled samples fit the models that are to be recorded on them, without running any.
func CheckSamples(ctx context.Context, o RecordOptions) error {
	if o.Engine == nil {
		return inputError("no engine given")
	}
	for _, path := range o.Models {
		m, err := openONNX(ctx, path, &Options{Engine: o.Engine, Seed: o.Seed, Dims: o.Dims, Values: o.Values, Profile: o.Profile})
		if err != nil {
			return err
		}
		info := m.info()
		if err := o.checkShapes(&info); err != nil {
			return err
		}
	}
	return nil
}

// SampleOrder returns the order in which Record uses n samples: row i of the records is sample SampleOrder(seed,
// n)[i] of the file.
func SampleOrder(seed uint64, n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	seeded.New(seed, "records/shuffle").Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}

// recordModel runs one classifier over all samples, and returns how certain each answer was and whether it was right.
// Row i of the result is sample sampleOrder[i]. score computes the certainty from the classes' probabilities.
func (o *RecordOptions) recordModel(ctx context.Context, path string, sampleOrder []int, score certainty.Func) (*formats.ModelRecords, error) {
	// Load the model and check that it fits the samples.
	m, err := openONNX(ctx, path, &Options{Engine: o.Engine, Seed: o.Seed, Dims: o.Dims, Values: o.Values, Profile: o.Profile})
	if err != nil {
		return nil, err
	}
	in := m.info()
	if err := o.checkShapes(&in); err != nil {
		return nil, err
	}
	device, err := selectDevice(o.Engine, "cpu")
	if err != nil {
		return nil, err
	}
	uncut := m.wholeModel()
	blk, err := loadTarget{eng: o.Engine, dev: device, fp16: o.FP16}.loadSlice(ctx, uncut, 0, uncut.Len(), graph.SliceOptions{})
	if err != nil {
		return nil, err
	}
	defer blk.Close()

	// Bind it at the batch size of records.
	rec := &formats.ModelRecords{Model: in.name, Certainty: make([]float64, len(sampleOrder))}
	correct := make([]byte, len(sampleOrder))
	size := recordBatch
	if in.batch > 0 {
		size = in.batch
	}
	classes := int(in.outputs[0].BytesAt(size)) / in.outputs[0].Type.Size() / size
	scores := make([]float64, classes)
	bound, err := blk.Bind(engine.BindOptions{Batch: size})
	if err != nil {
		return nil, fmt.Errorf("bind %s at batch %d: %w", in.name, size, err)
	}
	defer bound.Close()

	// Run the samples batch by batch.
	for first := 0; first < len(sampleOrder); first += size {
		part := sampleOrder[first:min(first+size, len(sampleOrder))]
		dst := bound.Inputs()[0].Bytes()
		clear(dst)
		for k, s := range part {
			for i, v := range o.Samples.Sample(s) {
				binary.LittleEndian.PutUint32(dst[4*(k*o.Samples.Width+i):], math.Float32bits(v))
			}
		}
		if err := bound.Run(ctx); err != nil {
			return nil, fmt.Errorf("run %s: %w", in.name, err)
		}

		// Record the certainty of each answer, and whether it is right.
		src := bound.Outputs()[0].Bytes()
		for k, s := range part {
			for i := range scores {
				scores[i] = scoreAt(src, k*classes+i, in.outputs[0].Type)
			}
			class := certainty.Normalise(scores)
			rec.Certainty[first+k] = score(scores)
			correct[first+k] = '0'
			if class == o.Samples.Labels[s] {
				correct[first+k] = '1'
			}
		}
		if o.Progress != nil {
			o.Progress(in.name, first+len(part), len(sampleOrder))
		}
	}
	rec.Correct = string(correct)
	return rec, nil
}

// scoreAt returns element i of a tensor's bytes, which are float64 or float32.
func scoreAt(b []byte, i int, t engine.DType) float64 {
	if t == engine.F64 {
		return math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
}

// checkShapes returns an error if the samples do not fit a model: it needs one float32 input with as many values as
// a sample has, and an output with a score for every class that occurs as a label.
func (o *RecordOptions) checkShapes(model *modelInfo) error {
	if len(model.inputs) != 1 || model.inputs[0].Type != engine.F32 {
		return inputError("model %s: its inputs are %v: expected one of float32, for samples of %d values", model.name, model.inputs, o.Samples.Width)
	}
	// The batch of a model is 0 if its batch dimension is free. A sample then has the bytes by which a batch of two is
	// larger than a batch of one. A float32 has 4 bytes.
	input := model.inputs[0]
	inputBytes, expectedBytes := input.BytesAt(2)-input.BytesAt(1), int64(4*o.Samples.Width)
	if model.batch > 0 {
		inputBytes, expectedBytes = input.BytesAt(1), int64(4*o.Samples.Width*model.batch)
	}
	if inputBytes != expectedBytes {
		return inputError("model %s: its input %s does not hold samples of %d values: a column per value is expected, behind the label", model.name, model.inputs[0], o.Samples.Width)
	}
	out := model.outputs[0]
	maxLabel := slices.Max(o.Samples.Labels)
	if out.Type != engine.F32 && out.Type != engine.F64 {
		return inputError("model %s: its first output is %s: expected scores of classes in float32 or float64", model.name, out)
	}
	size := max(model.batch, 1)
	if classes := int(out.BytesAt(size)) / out.Type.Size() / size; classes < 2 || maxLabel >= classes {
		return inputError("model %s: its first output has %d classes, the samples have labels up to %d", model.name, classes, maxLabel)
	}
	return nil
}

// PutRecords puts records into a profile. If it has records of the same models already, they are
// replaced, and it returns true.
func PutRecords(p *formats.Profile, rec *formats.Records) (replaced bool) {
	index := slices.IndexFunc(p.Records, func(r formats.Records) bool {
		return slices.EqualFunc(r.Models, rec.Models, func(a, b formats.ModelRecords) bool { return a.Model == b.Model })
	})
	if index >= 0 {
		p.Records[index] = *rec
		return true
	}
	p.Records = append(p.Records, *rec)
	return false
}
