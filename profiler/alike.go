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

// relativeDiff is the largest difference of two tensors' values, relative to the larger
// of 1 and what is expected; infinite where what is not float differs at all. What is no
// number is like nothing but itself.
func relativeDiff(t engine.DType, got, want []byte) float64 {
	if bytes.Equal(got, want) {
		return 0
	}
	var at func(b []byte) float64
	switch t {
	case engine.F32:
		at = func(b []byte) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))) }
	case engine.F64:
		at = func(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) }
	case engine.F16:
		at = func(b []byte) float64 { return float64(graph.FromHalf(binary.LittleEndian.Uint16(b))) }
	case engine.BF16:
		at = func(b []byte) float64 {
			return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16))
		}
	default:
		return math.Inf(1)
	}
	worst, size := 0.0, t.Size()
	for i := 0; i+size <= len(want); i += size {
		a, b := at(got[i:]), at(want[i:])
		if a == b || a != a && b != b {
			continue
		}
		d := math.Abs(a-b) / max(1, math.Abs(b))
		if math.IsNaN(d) {
			d = math.Inf(1)
		}
		worst = max(worst, d)
	}
	return worst
}

// Differences of a sample's answers alone and in a batch: above the first its batch is
// none, unless the model quantises whole batches as they come. Above the second it is
// none in any case.
const (
	mostBatchDiff     = 1e-3
	mostQuantisedDiff = 0.5
)

// batchDiff runs two samples one by one and as a batch, on the CPU, and returns how far
// the answers lie apart at most. It is 0 where nothing can be said: the model does not
// run on drawn values, or answers the same sample in two ways.
func batchDiff(ctx context.Context, eng engine.Engine, c *graph.Chain, v values) (float64, error) {
	cpu, err := selectDevice(eng, "cpu")
	if err != nil {
		return 0, err
	}
	whole := c.Whole()
	blk, err := (place{eng: eng, dev: cpu}).loadSlice(ctx, whole, 0, whole.Len(), graph.SliceOptions{})
	if err != nil {
		return 0, ctx.Err() // measuring says why
	}
	defer blk.Close()
	one, err := blk.Bind(engine.BindOptions{Batch: 1})
	if err != nil {
		return 0, ctx.Err()
	}
	defer one.Close()
	two, err := blk.Bind(engine.BindOptions{Batch: 2})
	if err != nil {
		return 0, ctx.Err()
	}
	defer two.Close()
	alone := make([][]byte, len(one.Outputs())) // the answers side by side
	feeds := make([][]byte, len(one.Inputs()))
	var again []byte
	for k, sample := range []int{0, 1, 1} {
		if err := v.fillAll(one.Inputs(), sample); err != nil {
			return 0, nil // a value that does not fit: measuring says so
		}
		if err := one.Run(ctx); err != nil {
			return 0, ctx.Err()
		}
		for i, t := range one.Inputs() {
			data := make([]byte, t.Spec().BytesAt(1))
			if err := t.Read(data); err != nil {
				return 0, err
			}
			if k < 2 {
				feeds[i] = append(feeds[i], data...)
			}
		}
		for i, t := range one.Outputs() {
			data := make([]byte, t.Spec().BytesAt(1))
			if err := t.Read(data); err != nil {
				return 0, err
			}
			if k < 2 {
				alone[i] = append(alone[i], data...)
				continue
			}
			if again = alone[i][len(data):]; relativeDiff(t.Spec().Type, data, again) > 0 {
				return 0, nil // it draws random numbers
			}
		}
	}
	for i, t := range two.Inputs() {
		if err := t.Write(feeds[i]); err != nil {
			return 0, err
		}
	}
	if err := two.Run(ctx); err != nil {
		return math.Inf(1), ctx.Err()
	}
	worst := 0.0
	for i, t := range two.Outputs() {
		data := make([]byte, t.Spec().BytesAt(2))
		if err := t.Read(data); err != nil {
			return 0, err
		}
		worst = max(worst, relativeDiff(t.Spec().Type, data, alone[i]))
	}
	return worst, nil
}

// errNoBatch says that what looks like a free batch is none.
var errNoBatch = errors.New("samples change each other's answers")

// holdsBatch returns an error where the samples of a batch change each other's answers:
// the first dimension is a time, or something is computed over it. A note says where they
// do so a little, as in models that quantise a batch as a whole.
func holdsBatch(ctx context.Context, eng engine.Engine, c *graph.Chain, v values) (note string, err error) {
	d, err := batchDiff(ctx, eng, c, v)
	switch {
	case err != nil:
		return "", err
	case d > mostQuantisedDiff, d > mostBatchDiff && !c.Model.QuantisesAsItComes():
		return "", fmt.Errorf("%w: in a batch of two they lie up to %.2g apart from those alone, so the first dimension of its inputs is no batch", errNoBatch, d)
	case d > mostBatchDiff:
		return fmt.Sprintf("it quantises a batch as a whole: in a batch of two, answers lie up to %.2g apart from those alone (--batches 1 keeps them the same)", d), nil
	}
	return "", nil
}
