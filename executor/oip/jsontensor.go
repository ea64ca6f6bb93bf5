package oip

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"inferplan/engine"
	"inferplan/executor/httplimit"
	"inferplan/executor/jsonscan"
)

// tensors reads a JSON array of tensors and appends them to ts. An error names the index of its tensor in the array.
func (d *decoder) tensors(list string, ts []Tensor) ([]Tensor, *Error) {
	err := d.Array(func(i int) *Error {
		ts = append(ts, Tensor{})
		if err := d.tensor(&ts[i]); err != nil {
			return prefixField(fmt.Sprintf("[%d]", i), err)
		}
		return nil
	})
	return ts, err
}

// tensor reads one tensor from JSON into t. Its data is in the JSON, or is the next binary_data_size bytes of the tail
// behind the JSON. Data that comes before shape and datatype is skipped and read at the end.
func (d *decoder) tensor(t *Tensor) *Error {
	var seenFields fieldSet
	// size is binary_data_size; -1 stands for none.
	var size int64 = -1
	dataStart := -1 // position of data that came before its shape or datatype; -1 if there is none
	err := d.Object(func(key []byte) *Error {
		switch string(key) {
		case "name":
			return d.readOnce(&seenFields, 0, ".name", func() *Error {
				s, err := d.Str()
				t.Name = d.model.intern(s)
				return err
			})
		case "shape":
			return d.readOnce(&seenFields, 1, ".shape", func() *Error { return d.shape(t) })
		case "datatype":
			return d.readOnce(&seenFields, 2, ".datatype", func() *Error {
				s, err := d.Str()
				if err != nil {
					return err
				}
				var ok bool
				if t.Datatype, ok = parseDatatype(s); !ok {
					return httplimit.Invalid(".datatype", "unknown datatype %q", httplimit.Clip(string(s)))
				}
				return nil
			})
		case "parameters":
			return d.readOnce(&seenFields, 3, ".parameters", func() *Error { return d.tensorParams(&size) })
		case "data":
			return d.readOnce(&seenFields, 4, ".data", func() *Error {
				if seenFields.contains(1) && seenFields.contains(2) {
					return d.data(t)
				}
				d.Peek()
				dataStart = d.I
				return d.SkipArray(1)
			})
		}
		return unknownField(".", key, "name, shape, datatype, parameters, data")
	})

	// Check what only all members together show, and assign the data.
	switch {
	case err != nil:
		return err
	case !seenFields.contains(0):
		return httplimit.Invalid(".name", "missing")
	case !seenFields.contains(1):
		return httplimit.Invalid(".shape", "missing")
	case !seenFields.contains(2):
		return httplimit.Invalid(".datatype", "missing")
	case seenFields.contains(4) && size >= 0:
		return httplimit.Invalid(".data", "given together with parameters.binary_data_size")
	case size >= 0:
		if size > int64(len(d.tail)-d.tailUsed) {
			return httplimit.Invalid(".parameters.binary_data_size", "%d bytes, but %d are left in the body behind the JSON", size, len(d.tail)-d.tailUsed)
		}
		t.Data = d.tail[d.tailUsed : d.tailUsed+int(size) : d.tailUsed+int(size)]
		d.tailUsed += int(size)
	case !seenFields.contains(4):
		return httplimit.Invalid(".data", "missing, and no parameters.binary_data_size")
	case dataStart >= 0:
		end := d.I
		d.I = dataStart
		if err := prefixField(".data", d.data(t)); err != nil {
			return err
		}
		d.I = end
	}
	return nil
}

// tensorParams reads the parameters of a tensor, and sets size to binary_data_size, the bytes of its data behind
// the JSON, if it is there.
func (d *decoder) tensorParams(size *int64) *Error {
	// It does not use params, because this object is in every binary request.
	sizeSeen := false
	return d.Object(func(key []byte) *Error {
		if string(key) != "binary_data_size" {
			name := string(key)
			if _, err := d.Param(); err != nil {
				return err
			}
			return outputParam(name)
		}
		if sizeSeen {
			return httplimit.Invalid(".parameters.binary_data_size", "given twice")
		}
		sizeSeen = true
		n, err := d.Integer()
		if err == nil && n < 0 {
			err = httplimit.Invalid("", "got %d, expected a size in bytes", n)
		}
		*size = n
		return prefixField(".parameters.binary_data_size", err)
	})
}

// shape reads the dimensions of a tensor, none negative and at most maxRank, into t.Shape, in memory from newShape.
func (d *decoder) shape(t *Tensor) *Error {
	dims := d.shapeBuf[:0]
	err := d.Array(func(int) *Error {
		v, err := d.Integer()
		if err != nil {
			return err
		}
		if v < 0 {
			return httplimit.Invalid("", "dimension %d is negative", v)
		}
		if len(dims) == maxRank {
			return httplimit.Invalid("", "more than %d dimensions", maxRank)
		}
		dims = append(dims, v)
		return nil
	})
	if err != nil {
		return err
	}
	t.Shape = d.newShape(len(dims))
	copy(t.Shape, dims)
	return nil
}

// checkEnd returns an error unless the JSON text and the binary data behind it were used completely.
func (d *decoder) checkEnd(list string, ts []Tensor) *Error {
	if err := d.CheckEnd(); err != nil {
		return prefixField("body", err)
	}
	if d.tailUsed != len(d.tail) {
		return httplimit.Invalid("body", "%d bytes of binary data behind the JSON, the %s account for %d", len(d.tail), list, d.tailUsed)
	}
	return nil
}

// data reads a tensor's elements from JSON into t.Data, as little-endian bytes. They may be flat or nested exactly like
// t.Shape. It books the memory before it takes it.
func (d *decoder) data(t *Tensor) *Error {
	n, ok := elementCount(t.Shape)
	if !ok {
		return httplimit.Invalid(".shape", "%v is not a shape that fits in memory", t.Shape)
	}
	if t.Datatype == BF16 {
		return httplimit.Invalid("", "BF16 travels as binary data only")
	}
	// Make room for all elements. An element and its comma take at least two bytes of text, so a shape alone cannot make the server allocate.
	if limit := int64(len(d.B)-d.I)/2 + 1; n <= limit {
		size := int(n) * max(t.Datatype.Size(), 4)
		if err := d.BookMemory(size); err != nil {
			return err
		}
		t.Data = make([]byte, 0, size)
	}

	// Find out whether the elements are nested.
	if d.Peek() != '[' {
		return d.Syntax("found %s where an array is expected", d.DescribeNext())
	}
	start := d.I
	d.I++
	isNested := d.Peek() == '['
	d.I = start
	if isNested {
		return d.nestedData(t, t.Shape)
	}
	count, err := d.flatData(t)
	if err == nil && count != n {
		err = httplimit.Invalid("", "got %d elements, shape %v has %d", count, t.Shape, n)
	}
	return err
}

// nestedData reads the elements of a tensor from JSON arrays that are nested like shape, the rest of the tensor's
// shape from this level on.
func (d *decoder) nestedData(t *Tensor, shape []int64) *Error {
	if d.Peek() != '[' {
		return d.Syntax("found %s where shape %v wants an array", d.DescribeNext(), t.Shape)
	}
	var count int64
	var err *Error
	if len(shape) <= 1 {
		count, err = d.flatData(t)
	} else {
		err = d.Array(func(int) *Error { count++; return d.nestedData(t, shape[1:]) })
	}
	if err == nil && (len(shape) == 0 || count != shape[0]) {
		err = httplimit.Invalid("", "an array of %d elements where shape %v wants another count; flat data is taken too", count, t.Shape)
	}
	return err
}

// flatData reads a JSON array of elements, appends them to t.Data, and returns their number. The cursor is at the
// opening bracket.
func (d *decoder) flatData(t *Tensor) (int64, *Error) {
	d.I++ // the caller has seen the bracket
	if d.Peek() == ']' {
		d.I++
		return 0, nil
	}
	dt, data := t.Datatype, t.Data
	// data has room for the elements of the shape. More are an error, which the caller reports: they are counted and
	// not kept.
	lastRoom := cap(data) - dt.Size()
	if dt == Bytes {
		lastRoom = math.MaxInt
	}
	var n int64
	readFrom := d.I
	for {
		if len(data) > lastRoom {
			data = data[:0]
		}
		var err *Error
		if data, err = d.element(dt, data); err != nil {
			if err.Field == "" {
				err.Msg = fmt.Sprintf("element %d: %s", n, err.Msg)
			}
			return n, err
		}

		// Report the progress from time to time.
		if n++; n%1024 == 0 {
			if err := d.AddBytes(d.I - readFrom); err != nil {
				return n, err
			}
			readFrom = d.I
		}
		hasMore, err := d.ReadSeparator(']')
		if err != nil {
			return n, err
		}
		if !hasMore {
			t.Data = data
			return n, nil
		}
	}
}

// element reads one element of type dt from JSON, appends its little-endian bytes to data, and returns data. A number
// that does not fit dt is an error. BYTES get their length in front, in four bytes.
func (d *decoder) element(dt Datatype, data []byte) ([]byte, *Error) {
	switch dt {
	case Bool:
		v, err := d.Boolean()
		if v {
			return append(data, 1), err
		}
		return append(data, 0), err
	case Bytes:
		s, err := d.Str()
		if err != nil {
			return data, err
		}
		data = binary.LittleEndian.AppendUint32(data, uint32(len(s)))
		return append(data, s...), nil

	// Most floats are read fast.
	case FP32:
		d.Peek()
		if v, n, ok := fastFloat(d.B[d.I:]); ok && roundsToFP32(v) {
			d.I += n
			return binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(v))), nil
		}
	case FP64:
		d.Peek()
		if v, n, ok := fastFloat(d.B[d.I:]); ok {
			d.I += n
			return binary.LittleEndian.AppendUint64(data, math.Float64bits(v)), nil
		}
	}

	// All other numbers are parsed from their text.
	text, isInteger, err := d.Number()
	if err != nil {
		return data, err
	}
	var parseErr error
	switch dt {
	case FP32:
		var v float64
		v, parseErr = parseFloat(text, 32)
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(v)))
	case FP64:
		var v float64
		v, parseErr = parseFloat(text, 64)
		data = binary.LittleEndian.AppendUint64(data, math.Float64bits(v))
	case FP16:
		var v float64
		v, parseErr = parseFloat(text, 64)
		if math.Abs(v) >= 65520 { // rounds to infinity
			parseErr = strconv.ErrRange
		}
		data = binary.LittleEndian.AppendUint16(data, engine.ToFP16(v))
	case Int8, Int16, Int32, Int64:
		var v int64
		v, parseErr = strconv.ParseInt(jsonscan.Alias(text), 10, 8*dt.Size())
		data = appendUint(data, dt.Size(), uint64(v))
	default:
		var v uint64
		v, parseErr = strconv.ParseUint(jsonscan.Alias(text), 10, 8*dt.Size())
		data = appendUint(data, dt.Size(), v)
	}
	if parseErr != nil {
		problem := "is out of range for"
		if dt < FP16 && !isInteger {
			problem = "is not an integer, as needed for"
		}
		return data, httplimit.Invalid("", "%s %s %s", httplimit.Clip(string(text)), problem, dt)
	}
	return data, nil
}

// appendUint appends the size lowest bytes of a number, little-endian.
func appendUint(data []byte, size int, v uint64) []byte {
	switch size {
	case 1:
		return append(data, byte(v))
	case 2:
		return binary.LittleEndian.AppendUint16(data, uint16(v))
	case 4:
		return binary.LittleEndian.AppendUint32(data, uint32(v))
	}
	return binary.LittleEndian.AppendUint64(data, v)
}
