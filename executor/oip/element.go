package oip

import (
	"bytes"
	"encoding/binary"
	"math"

	"inferplan/engine"
	"inferplan/executor/httplimit"
	"inferplan/executor/jsonscan"
)

// Element returns the first element of a tensor's bytes as a bool, an int64 or a float64. Integers beyond int64 become
// floats. If the datatype has no such value, it returns nil.
func Element(dt Datatype, b []byte) any {
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
		return float64(engine.FromFP16(binary.LittleEndian.Uint16(b)))
	case FP32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case FP64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
	return nil
}

// ReadSample returns the bytes of one sample of a tensor, read from a JSON value: an element, or lists of elements in
// any nesting, which are read in order. If they are not `size` bytes in all, or no elements of type dt, it returns an
// error.
func ReadSample(text []byte, dt Datatype, size int) ([]byte, *Error) {
	d := decoder{Cursor: jsonscan.Cursor{B: text}}
	data, err := d.sample(dt, make([]byte, 0, size), 0)
	if err == nil {
		err = d.CheckEnd()
	}
	if err == nil && len(data) != size {
		err = httplimit.Invalid("", "found %d elements, expected %d of %s", len(data)/dt.Size(), size/dt.Size(), dt)
	}
	return data, err
}

// sample appends the elements of a JSON value, an element or nested lists, to data, whose capacity is the size of
// the sample in bytes. depth counts the lists around the value.
func (d *decoder) sample(dt Datatype, data []byte, depth int) ([]byte, *Error) {
	if d.Peek() != '[' {
		if len(data)+dt.Size() > cap(data) {
			return data, httplimit.Invalid("", "found more than %d elements", cap(data)/dt.Size())
		}
		start := d.I
		extended, err := d.element(dt, data)
		if err != nil {
			d.I = start
			return data, httplimit.Invalid("", "found %s, expected a number that %s holds", d.nextText(), dt)
		}
		return extended, nil
	}
	if depth == maxRank {
		return data, httplimit.Invalid("", "found lists nested deeper than %d", maxRank)
	}
	err := d.Array(func(int) (err *Error) {
		data, err = d.sample(dt, data, depth+1)
		return err
	})
	return data, err
}

// nextText returns the next value of the JSON text, shortened for error messages.
func (d *decoder) nextText() string {
	remaining := d.B[d.I:]
	if end := bytes.IndexAny(remaining, ",]"); end >= 0 {
		remaining = remaining[:end]
	}
	return httplimit.Clip(string(remaining))
}
