package oip

import (
	"encoding/binary"
	"math"
)

// Element is the i-th element of a tensor's bytes: a bool, an int64 or a float64.
// Numbers beyond int64 are floats. nil: elements of this datatype have no value here.
func Element(dt Datatype, data []byte, i int) any {
	b := data[i*dt.Size():]
	switch dt {
	case Bool:
		return b[0] != 0
	case Uint8:
		return int64(b[0])
	case Int8:
		return int64(int8(b[0]))
	case Uint16:
		return int64(binary.LittleEndian.Uint16(b))
	case Int16:
		return int64(int16(binary.LittleEndian.Uint16(b)))
	case Uint32:
		return int64(binary.LittleEndian.Uint32(b))
	case Int32:
		return int64(int32(binary.LittleEndian.Uint32(b)))
	case Uint64:
		if v := binary.LittleEndian.Uint64(b); v > math.MaxInt64 {
			return float64(v)
		}
		return int64(binary.LittleEndian.Uint64(b))
	case Int64:
		return int64(binary.LittleEndian.Uint64(b))
	case FP16:
		return float64(fromHalf(binary.LittleEndian.Uint16(b)))
	case FP32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case FP64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
	return nil
}

// AppendElement appends an element as a tensor has it; false: the datatype cannot
// hold the value.
func AppendElement(data []byte, dt Datatype, v float64) ([]byte, bool) {
	low, high := 0.0, 0.0
	switch dt {
	case FP16:
		h, ok := toHalf(v)
		return binary.LittleEndian.AppendUint16(data, h), ok
	case FP32:
		return binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(v))), math.Abs(v) <= math.MaxFloat32
	case FP64:
		return binary.LittleEndian.AppendUint64(data, math.Float64bits(v)), true
	case Bool:
		high = 1
	case Uint8, Uint16, Uint32:
		high = math.Ldexp(1, 8*dt.Size()) - 1
	case Int8, Int16, Int32:
		high = math.Ldexp(1, 8*dt.Size()-1) - 1
		low = -high - 1
	case Int64, Uint64: // what a float64 has exactly
		high = 1 << 53
		if dt == Int64 {
			low = -high
		}
	default:
		return data, false
	}
	if !(v >= low && v <= high) || v != math.Trunc(v) {
		return data, false
	}
	return appendUint(data, dt.Size(), uint64(int64(v))), true
}
