package graph

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"inferplan/engine"
)

// Literal holds a tensor's values as a person types them, before its element type is known. Booleans are 0 and 1.
type Literal struct {
	Shape  []int64
	Values []float64
}

// exactWhole is the number up to which a float64 can hold all whole numbers.
const exactWhole = 1 << 53

// Bytes returns the values in an element type, little endian, one after the
// other. A value that the type cannot hold is an error.
func (l Literal) Bytes(t engine.DType) ([]byte, error) {
	out := make([]byte, 0, len(l.Values)*t.Size())
	le := binary.LittleEndian

	// integer returns a value as a whole number, or an error if it is none, or beyond the range [lo,hi].
	integer := func(v, lo, hi float64) (int64, error) {
		lo, hi = max(lo, -exactWhole), min(hi, exactWhole)
		if v != math.Trunc(v) || v < lo || v > hi {
			return 0, fmt.Errorf("%v is no %s: expected a whole number from %.0f to %.0f", v, t, lo, hi)
		}
		return int64(v), nil
	}

	// Append every value in the type's little-endian form.
	for _, v := range l.Values {
		var n int64
		var err error
		switch t {
		case engine.F32:
			if math.Abs(v) > math.MaxFloat32 {
				return nil, fmt.Errorf("%v is beyond %s", v, t)
			}
			out = le.AppendUint32(out, math.Float32bits(float32(v)))
		case engine.F64:
			out = le.AppendUint64(out, math.Float64bits(v))
		case engine.F16:
			out = le.AppendUint16(out, engine.ToFP16(float32(v)))
		case engine.BF16:
			// Round to nearest, ties to even.
			b := math.Float32bits(float32(v))
			out = le.AppendUint16(out, uint16((b+0x7fff+b>>16&1)>>16))
		case engine.Bool:
			n, err = integer(v, 0, 1)
			out = append(out, byte(n))
		case engine.U8:
			n, err = integer(v, 0, math.MaxUint8)
			out = append(out, byte(n))
		case engine.I8:
			n, err = integer(v, math.MinInt8, math.MaxInt8)
			out = append(out, byte(n))
		case engine.U16:
			n, err = integer(v, 0, math.MaxUint16)
			out = le.AppendUint16(out, uint16(n))
		case engine.I16:
			n, err = integer(v, math.MinInt16, math.MaxInt16)
			out = le.AppendUint16(out, uint16(n))
		case engine.U32:
			n, err = integer(v, 0, math.MaxUint32)
			out = le.AppendUint32(out, uint32(n))
		case engine.I32:
			n, err = integer(v, math.MinInt32, math.MaxInt32)
			out = le.AppendUint32(out, uint32(n))
		case engine.U64:
			n, err = integer(v, 0, exactWhole)
			out = le.AppendUint64(out, uint64(n))
		case engine.I64:
			n, err = integer(v, -exactWhole, exactWhole)
			out = le.AppendUint64(out, uint64(n))
		default:
			err = fmt.Errorf("values of %s cannot be given", t)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Fill returns the bytes of a tensor of n elements with these values. perSample is the number of elements of one
// sample. A single value is used for all elements. Otherwise the values are those of one or more samples, and are
// repeated until the tensor is full.
func (l Literal) Fill(t engine.DType, n, perSample int64) ([]byte, error) {
	given := int64(len(l.Values))
	if given != 1 && (given == 0 || perSample == 0 || given%perSample != 0) {
		return nil, fmt.Errorf("%d values of shape %v, expected one, or %d for a sample", given, l.Shape, perSample)
	}
	values, err := l.Bytes(t)
	if err != nil {
		return nil, err
	}
	size := int(n) * t.Size()
	out := slices.Grow(values[:len(values):len(values)], max(0, size-len(values)))
	for len(out) < size {
		out = append(out, values...)
	}
	return out[:size], nil
}
