package oip

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"inferplan/executor/httplimit"
	"inferplan/executor/jsonscan"
)

// The messages of ModelInfer are read and written directly in their protobuf wire format, so that tensors alias the
// received message and need not be copied out of it. Package oippb has the same messages, generated; the tests
// compare this codec with it.

// Field numbers of ModelInferRequest and ModelInferResponse. Where the two differ, the names say which one is meant.
const (
	fieldModelName    = 1
	fieldModelVersion = 2
	fieldID           = 3
	fieldParameters   = 4
	requestInputs     = 5
	requestOutputs    = 6
	requestRaw        = 7
	responseOutputs   = 5
	responseRaw       = 6

	tensorName       = 1
	tensorDatatype   = 2
	tensorShape      = 3
	tensorParameters = 4
	tensorContents   = 5
)

// contentsField is the field of InferTensorContents that holds a datatype, or 0 if there is none.
var contentsField = [...]protowire.Number{
	Bool: 1, Int8: 2, Int16: 2, Int32: 2, Int64: 3, Uint8: 4, Uint16: 4, Uint32: 4, Uint64: 5, FP32: 6, FP64: 7, Bytes: 8, BF16: 0,
}

var contentsNames = [...]string{1: "bool_contents", 2: "int_contents", 3: "int64_contents", 4: "uint_contents", 5: "uint64_contents", 6: "fp32_contents", 7: "fp64_contents", 8: "bytes_contents"}

func wireError(n int) *Error { return httplimit.Invalid("", "protobuf: %v", protowire.ParseError(n)) }

// forEachField calls f for each field of a protobuf message. val is the content of a length-delimited field, and
// num the value of any other one. p is told of the bytes read and can stop it.
func forEachField(b []byte, p *jsonscan.Progress, f func(field protowire.Number, typ protowire.Type, val []byte, num uint64) *Error) *Error {
	for len(b) > 0 {
		before := len(b)
		field, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return wireError(n)
		}
		if field > protowire.MaxValidNumber {
			return httplimit.Invalid("", "protobuf: field number %d", field)
		}
		b = b[n:]

		// Read its value by the type on the wire.
		var val []byte
		var num uint64
		switch typ {
		case protowire.BytesType:
			val, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			num, n = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			var v uint32
			v, n = protowire.ConsumeFixed32(b)
			num = uint64(v)
		case protowire.Fixed64Type:
			num, n = protowire.ConsumeFixed64(b)
		default:
			n = protowire.ConsumeFieldValue(field, typ, b)
		}
		if n < 0 {
			return wireError(n)
		}
		b = b[n:]
		if err := p.AddBytes(before - len(b)); err != nil {
			return err
		}
		if err := f(field, typ, val, num); err != nil {
			return err
		}
	}
	return nil
}

// checkUTF8 returns an error if a string field is not UTF-8, as proto3 demands.
func checkUTF8(field string, val []byte) *Error {
	if !utf8.Valid(val) {
		return httplimit.Invalid(field, "is not UTF-8")
	}
	return nil
}

// wireTensor holds the contents of a tensor while its message is read.
type wireTensor struct {
	contents []byte // InferTensorContents, all pieces in order
	present  bool
	copied   bool // contents does not alias the message any more
}

// add adds a piece of a tensor's typed contents. In protobuf, a message field that occurs several times is merged,
// which means concatenated: the first piece aliases the message, and further ones are appended to a copy.
func (t *wireTensor) add(val []byte) {
	switch {
	case !t.present:
		t.contents = val
	case !t.copied:
		t.contents, t.copied = append(slices.Clip(t.contents), val...), true
	default:
		t.contents = append(t.contents, val...)
	}
	t.present = true
}

// maxEntries bounds the tensors and raw contents of one message while it is read: an entry takes two bytes on the
// wire but a hundred in memory.
const maxEntries = 1 << 12

func tooMany(list string) *Error { return httplimit.TooLarge(list, "more than %d entries", maxEntries) }

// unmarshalRequest reads a ModelInferRequest of the gRPC protocol into r. Tensors alias b. lookup returns the
// model with a name, whose tensor names need no allocation then; it may return nil.
func unmarshalRequest(ctx context.Context, b []byte, r *Request, lookup func(model string) *ModelInfo) *Error {
	p := jsonscan.Progress{Ctx: ctx, MemoryHold: &r.memoryHold}
	var m *ModelInfo
	var rawRoom [2][]byte
	var wireRoom [2]wireTensor
	raw, parts := rawRoom[:0], wireRoom[:0]
	r.Inputs = r.inputBuf[:0]
	err := forEachField(b, &p, func(field protowire.Number, typ protowire.Type, val []byte, _ uint64) *Error {
		if typ != protowire.BytesType {
			return nil
		}
		switch field {
		case fieldModelName:
			if m = lookup(jsonscan.Alias(val)); m != nil {
				r.Model = m.Name
				return nil
			}
			r.Model = string(val)
			return checkUTF8("model_name", val)
		case fieldModelVersion:
			r.Version = string(val)
			return checkUTF8("model_version", val)
		case fieldID:
			r.ID = string(val)
			return checkUTF8("id", val)
		case fieldParameters:
			return wireParam("parameters", val, &p, func(name string, v Param) *Error { return r.setParam(name, v) })
		case requestInputs:
			if len(parts) == maxEntries {
				return tooMany("inputs")
			}
			r.Inputs = append(r.Inputs, Tensor{})
			parts = append(parts, wireTensor{})
			i := len(r.Inputs) - 1
			return prefixIndex("inputs", i, unmarshalTensor(val, &p, &r.Inputs[i], &parts[i], m, r.shape))
		case requestOutputs:
			if len(r.Outputs) == maxEntries {
				return tooMany("outputs")
			}
			o, err := unmarshalOutputRequest(val, &p, m)
			r.Outputs = append(r.Outputs, o)
			return prefixIndex("outputs", len(r.Outputs)-1, err)
		case requestRaw:
			if len(raw) == maxEntries {
				return tooMany("raw_input_contents")
			}
			raw = append(raw, val)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return joinContents("inputs", "raw_input_contents", r.Inputs, parts, raw, &p)
}

// prefixIndex puts an index of a list in front of the path of an error.
func prefixIndex(list string, i int, err *Error) *Error {
	if err == nil {
		return nil
	}
	return prefixField(fmt.Sprintf("%s[%d]", list, i), err)
}

// joinContents sets the data of each tensor: from the raw contents, one entry per tensor, or from the typed
// contents collected in parts, but not from both. list and rawList name the fields, for errors.
func joinContents(list, rawList string, ts []Tensor, parts []wireTensor, raw [][]byte, p *jsonscan.Progress) *Error {
	if len(raw) > 0 {
		if len(raw) != len(ts) {
			return httplimit.Invalid(rawList, "%d entries for %d %s", len(raw), len(ts), list)
		}
		for i := range ts {
			if parts[i].present {
				return httplimit.Invalid(fmt.Sprintf("%s[%d].contents", list, i), "given together with %s", rawList)
			}
			ts[i].Data = raw[i]
		}
		return nil
	}
	for i := range ts {
		if !parts[i].present {
			continue
		}
		data, err := unmarshalContents(ts[i].Datatype, parts[i].contents, p)
		if err != nil {
			return prefixIndex(list, i, prefixField(".contents", err))
		}
		ts[i].Data = data
	}
	return nil
}

// unmarshalTensor reads name, datatype and shape of a tensor from the protobuf message b into t, and collects its typed
// contents (lists of numbers) in part; they are converted later, when it is known whether raw contents came instead. p
// ends the work when the client is gone. m, which may be nil, has the names of tensors.
func unmarshalTensor(b []byte, p *jsonscan.Progress, t *Tensor, part *wireTensor, m *ModelInfo, newShape func(int) []int64) *Error {
	var dimRoom [maxRank]int64
	dims := dimRoom[:0]
	var datatype []byte
	err := forEachField(b, p, func(field protowire.Number, typ protowire.Type, val []byte, num uint64) *Error {
		switch {
		case field == tensorName && typ == protowire.BytesType:
			t.Name = m.intern(val)
			return checkUTF8(".name", val)
		case field == tensorDatatype && typ == protowire.BytesType:
			datatype = val
		case field == tensorShape && typ == protowire.VarintType:
			if len(dims) > maxRank {
				return httplimit.Invalid(".shape", "more than %d dimensions", maxRank)
			}
			dims = append(dims, int64(num))
		case field == tensorShape && typ == protowire.BytesType:
			for len(val) > 0 {
				v, n := protowire.ConsumeVarint(val)
				if n < 0 {
					return prefixField(".shape", wireError(n))
				}
				if len(dims) == maxRank {
					break
				}
				dims = append(dims, int64(v))
				val = val[n:]
			}
			if len(val) > 0 {
				return httplimit.Invalid(".shape", "more than %d dimensions", maxRank)
			}
		case field == tensorParameters && typ == protowire.BytesType:
			return wireParam(".parameters", val, p, func(name string, _ Param) *Error { return outputParam(name) })
		case field == tensorContents && typ == protowire.BytesType:
			part.add(val)
		}
		return nil
	})
	if err != nil {
		return err
	}

	// Set datatype and shape.
	if len(dims) > maxRank {
		return httplimit.Invalid(".shape", "more than %d dimensions", maxRank)
	}
	var ok bool
	if t.Datatype, ok = parseDatatype(datatype); !ok {
		return httplimit.Invalid(".datatype", "unknown datatype %q", httplimit.Clip(string(datatype)))
	}
	t.Shape = newShape(len(dims))
	copy(t.Shape, dims)
	return nil
}

// unmarshalOutputRequest reads an output that a request wants from the protobuf message b. Its parameters have no
// meaning over gRPC and are only checked.
func unmarshalOutputRequest(b []byte, p *jsonscan.Progress, m *ModelInfo) (o OutputRequest, err *Error) {
	err = forEachField(b, p, func(field protowire.Number, typ protowire.Type, val []byte, _ uint64) *Error {
		switch {
		case field == 1 && typ == protowire.BytesType:
			o.Name = m.intern(val)
			return checkUTF8(".name", val)
		case field == 2 && typ == protowire.BytesType:
			return wireParam(".parameters", val, p, func(name string, _ Param) *Error { return outputParam(name) })
		}
		return nil
	})
	return o, err
}

// wireParam reads one named parameter of a request (an entry of map<string, InferParameter>) and calls set with
// it. path names the list, for errors.
func wireParam(path string, b []byte, p *jsonscan.Progress, set func(name string, v Param) *Error) *Error {
	var name string
	var value Param
	err := forEachField(b, p, func(field protowire.Number, typ protowire.Type, val []byte, _ uint64) *Error {
		switch {
		case field == 1 && typ == protowire.BytesType:
			name = string(val)
			return checkUTF8(path, val)
		case field == 2 && typ == protowire.BytesType:
			return forEachField(val, p, func(choice protowire.Number, typ protowire.Type, val []byte, num uint64) *Error {
				switch {
				case choice == 1 && typ == protowire.VarintType:
					value = num != 0
				case choice == 2 && typ == protowire.VarintType:
					value = int64(num)
				case choice == 3 && typ == protowire.BytesType:
					value = string(val)
					return checkUTF8(path, val)
				case choice == 4 && typ == protowire.Fixed64Type:
					value = math.Float64frombits(num)
				case choice == 5 && typ == protowire.VarintType:
					value = num
				}
				return nil
			})
		}
		return nil
	})
	if err == nil && value == nil {
		err = httplimit.Invalid(path+"."+httplimit.Clip(name), "has no value")
	}
	if err != nil {
		return err
	}
	return set(name, value)
}

// unmarshalContents returns the typed contents of a tensor, the protobuf message b (one list for each group of data
// types), as raw little-endian bytes. p ends the work when the client is gone, and books the memory. It returns an error
// if a list other than that of dt has elements, or one is out of range.
func unmarshalContents(dt Datatype, b []byte, p *jsonscan.Progress) ([]byte, *Error) {
	expectedField := contentsField[dt]
	data := []byte{}
	n := 0

	// appendValue appends one integer after a check of its range.
	appendValue := func(num uint64) *Error {
		switch dt {
		case Bool:
			if num != 0 {
				num = 1
			}
		case Int8, Int16:
			if v := int64(int32(num)); v>>(8*dt.Size()-1) != v>>63 {
				return httplimit.Invalid("."+contentsNames[expectedField], "element %d: %d is out of range for %s", n, v, dt)
			}
		case Uint8, Uint16:
			if v := uint64(uint32(num)); v>>(8*dt.Size()) != 0 {
				return httplimit.Invalid("."+contentsNames[expectedField], "element %d: %d is out of range for %s", n, v, dt)
			}
		}
		data = appendUint(data, dt.Size(), num)
		n++
		return nil
	}

	// Read the field of the datatype; other fields must be empty.
	err := forEachField(b, p, func(field protowire.Number, typ protowire.Type, val []byte, num uint64) *Error {
		if field < 1 || int(field) >= len(contentsNames) {
			return nil
		}
		if field != expectedField {
			if typ == protowire.BytesType && len(val) == 0 && field != 8 {
				return nil // a packed field without elements
			}
			if expectedField == 0 {
				return httplimit.Invalid("."+contentsNames[field], "%s travels in raw contents only", dt)
			}
			return httplimit.Invalid("."+contentsNames[field], "does not hold %s; use %s", dt, contentsNames[expectedField])
		}

		// Strings and fixed-size numbers are copied.
		if dt == Bytes {
			if typ == protowire.BytesType {
				data = binary.LittleEndian.AppendUint32(data, uint32(len(val)))
				data = append(data, val...)
			}
			return nil
		}
		scalar := protowire.VarintType
		switch dt {
		case FP32:
			scalar = protowire.Fixed32Type
		case FP64:
			scalar = protowire.Fixed64Type
		}
		if typ == scalar {
			return appendValue(num)
		}
		if typ != protowire.BytesType {
			return nil
		}
		if size := dt.Size(); scalar != protowire.VarintType {
			if len(val)%size != 0 {
				return httplimit.Invalid("."+contentsNames[expectedField], "%d bytes are not a whole number of elements", len(val))
			}
			data = append(data, val...) // the wire is little endian too
			return nil
		}

		// Packed varints.
		if err := p.BookMemory(len(val) * dt.Size()); err != nil {
			return err
		}
		data = slices.Grow(data, len(val)*min(dt.Size(), 4))
		for len(val) > 0 {
			v, k := protowire.ConsumeVarint(val)
			if k < 0 {
				return prefixField("."+contentsNames[expectedField], wireError(k))
			}
			val = val[k:]
			if err := appendValue(v); err != nil {
				return err
			}
		}
		return nil
	})
	return data, err
}
