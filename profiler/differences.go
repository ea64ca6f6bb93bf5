package profiler

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"inferplan/engine"
	"inferplan/engine/graph"
)

// maxRelativeDiff returns the largest difference between the values of two tensors of type t, relative to the larger
// of 1 and the expected value (want). If the type is no float and the bytes differ, it returns infinity. NaN equals
// only NaN.
func maxRelativeDiff(t engine.DType, got, want []byte) float64 {
	if bytes.Equal(got, want) {
		return 0
	}
	var valueOf func(b []byte) float64
	switch t {
	case engine.F32:
		valueOf = func(b []byte) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))) }
	case engine.F64:
		valueOf = func(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) }
	case engine.F16:
		valueOf = func(b []byte) float64 { return float64(engine.FromFP16(binary.LittleEndian.Uint16(b))) }
	case engine.BF16: // the upper half of a float32
		valueOf = func(b []byte) float64 {
			return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16))
		}
	default:
		return math.Inf(1)
	}
	maxDiff, size := 0.0, t.Size()
	for i := 0; i+size <= len(want); i += size {
		a, b := valueOf(got[i:]), valueOf(want[i:])
		if a == b || a != a && b != b {
			continue
		}
		d := math.Abs(a-b) / max(1, math.Abs(b))
		if math.IsNaN(d) {
			d = math.Inf(1)
		}
		maxDiff = max(maxDiff, d)
	}
	return maxDiff
}

// Limits of the difference between a sample's answers alone and in a batch. Above the first limit the first
// dimension is not taken for a batch, unless the model quantises whole batches. Above the second it never is.
const (
	maxBatchDiff     = 1e-3
	maxQuantisedDiff = 0.5
)

// batchDiff runs two samples one by one and as a batch of two, on the CPU, and returns the largest relative
// difference of the answers. v are the values of inputs. It returns 0 if that cannot be compared: the model does not
// run on drawn values, or gives different answers to the same sample. It returns +Inf if the batch of two cannot run.
func batchDiff(ctx context.Context, eng engine.Engine, c *graph.Chain, v inputValues) (float64, error) {
	cpu, err := selectDevice(eng, "cpu")
	if err != nil {
		return 0, err
	}

	// Load the model on the CPU, and bind it at batches 1 and 2.
	uncut := c.WholeModel()
	blk, err := (loadTarget{eng: eng, dev: cpu}).loadSlice(ctx, uncut, 0, uncut.Len(), graph.SliceOptions{})
	if err != nil {
		return 0, ctx.Err() // the measurement will report why
	}
	defer blk.Close()
	single, err := blk.Bind(engine.BindOptions{Batch: 1})
	if err != nil {
		return 0, ctx.Err()
	}
	defer single.Close()
	pair, err := blk.Bind(engine.BindOptions{Batch: 2})
	if err != nil {
		return 0, ctx.Err()
	}
	defer pair.Close()

	// Run two samples one by one, and the second of them twice.
	singleAnswers := make([][]byte, len(single.Outputs())) // the answers of both samples
	pairInputs := make([][]byte, len(single.Inputs()))
	var secondAnswer []byte
	for k, sample := range []int{0, 1, 1} {
		if err := v.fillAll(single.Inputs(), sample); err != nil {
			return 0, nil // a value that does not fit; the measurement will report it
		}
		if err := single.Run(ctx); err != nil {
			return 0, ctx.Err()
		}
		for i, t := range single.Inputs() {
			data := make([]byte, t.Spec().BytesAt(1))
			if err := t.Read(data); err != nil {
				return 0, err
			}
			if k < 2 {
				pairInputs[i] = append(pairInputs[i], data...)
			}
		}
		for i, t := range single.Outputs() {
			data := make([]byte, t.Spec().BytesAt(1))
			if err := t.Read(data); err != nil {
				return 0, err
			}
			if k < 2 {
				singleAnswers[i] = append(singleAnswers[i], data...)
				continue
			}
			if secondAnswer = singleAnswers[i][len(data):]; maxRelativeDiff(t.Spec().Type, data, secondAnswer) > 0 {
				return 0, nil // the model draws random numbers
			}
		}
	}

	// Run both samples as one batch, and compare.
	for i, t := range pair.Inputs() {
		if err := t.Write(pairInputs[i]); err != nil {
			return 0, err
		}
	}
	if err := pair.Run(ctx); err != nil {
		return math.Inf(1), ctx.Err()
	}
	maxDiff := 0.0
	for i, t := range pair.Outputs() {
		data := make([]byte, t.Spec().BytesAt(2))
		if err := t.Read(data); err != nil {
			return 0, err
		}
		maxDiff = max(maxDiff, maxRelativeDiff(t.Spec().Type, data, singleAnswers[i]))
	}
	return maxDiff, nil
}

// errNoBatch is returned when the dimension that looks like a free batch is not one.
var errNoBatch = errors.New("samples change each other's answers")

// checkFreeBatch returns an error if the samples of a batch change each other's answers: the first dimension is then
// no batch but, for example, a time, or something is computed over it. If they change them only a little, as in
// models that quantise a batch as a whole, it returns a note. It is called when a model is opened, before the batch
// is taken for free.
func checkFreeBatch(ctx context.Context, eng engine.Engine, c *graph.Chain, v inputValues) (note string, err error) {
	// maxBatchDiff allows for rounding, and the larger maxQuantisedDiff for models that quantise by the range of a
	// batch.
	d, err := batchDiff(ctx, eng, c, v)
	switch {
	case err != nil:
		return "", err
	case d > maxQuantisedDiff, d > maxBatchDiff && !c.Model.QuantisesAsItComes():
		return "", fmt.Errorf("%w: in a batch of two they lie up to %.2g apart from those alone, so the first dimension of its inputs is no batch", errNoBatch, d)
	case d > maxBatchDiff:
		return fmt.Sprintf("it quantises a batch as a whole: in a batch of two, answers lie up to %.2g apart from those alone (--batches 1 keeps them the same)", d), nil
	}
	return "", nil
}
