package oip

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"inferplan/engine"
	"inferplan/executor/httplimit"
	"inferplan/formats/jsontext"
)

// EncodeRequest appends the JSON of an infer request to dst. For binary tensors it contains only the sizes; the
// caller sends their Data after the JSON, in the order of the inputs, with the header
// Inference-Header-Content-Length.
func EncodeRequest(dst []byte, r *Request, binaryInputs, binaryOutputs bool) ([]byte, error) {
	e := encoder{dst: append(dst, '{')}
	if r.ID != "" {
		e.key("id")
		e.str(r.ID)
	}
	if r.Timeout > 0 || r.Priority > 0 || r.Class != "" || binaryOutputs || len(r.Params) > 0 {
		e.key("parameters")
		e.open('{')
		if binaryOutputs {
			e.key("binary_data_output")
			e.raw("true")
		}
		if r.Timeout > 0 {
			e.key("timeout")
			e.dst = strconv.AppendInt(e.dst, max(r.Timeout.Microseconds(), 1), 10)
		}
		if r.Priority > 0 {
			e.key("priority")
			e.dst = strconv.AppendUint(e.dst, r.Priority, 10)
		}
		if r.Class != "" {
			e.key("class")
			e.str(r.Class)
		}
		e.params(r.Params)
		e.close('}')
	}

	// The inputs, and the outputs that are wanted.
	e.key("inputs")
	e.tensors(r.Inputs, func(int) bool { return binaryInputs })
	if len(r.Outputs) > 0 {
		e.key("outputs")
		e.open('[')
		for i := range r.Outputs {
			e.comma()
			e.open('{')
			e.key("name")
			e.str(r.Outputs[i].Name)
			if r.Outputs[i].Binary != binaryOutputs {
				e.key("parameters")
				e.open('{')
				e.key("binary_data")
				e.dst = strconv.AppendBool(e.dst, r.Outputs[i].Binary)
				e.close('}')
			}
			e.close('}')
		}
		e.close(']')
	}
	e.close('}')
	return e.dst, e.result()
}

// encodeResponse appends the JSON of an infer response to dst and returns it. binary(i) is true if the i-th output
// follows the JSON as raw bytes; the caller writes these. A value that JSON cannot carry is an error.
func encodeResponse(dst []byte, resp *Response, binary func(i int) bool) ([]byte, *Error) {
	e := encoder{dst: append(dst, '{')}
	if resp.ID != "" {
		e.key("id")
		e.str(resp.ID)
	}
	e.key("model_name")
	e.str(resp.Model)
	e.key("model_version")
	e.str(resp.Version)
	if len(resp.Params) > 0 {
		e.key("parameters")
		e.open('{')
		e.params(resp.Params)
		e.close('}')
	}
	e.key("outputs")
	e.tensors(resp.Outputs, binary)
	e.close('}')
	return e.dst, e.err
}

// encoder appends JSON to dst. It keeps the first error.
type encoder struct {
	dst []byte
	err *Error
}

// result returns the first error of the encoding, or nil.
func (e *encoder) result() error {
	if e.err != nil {
		return e.err
	}
	return nil
}

func (e *encoder) raw(s string)   { e.dst = append(e.dst, s...) }
func (e *encoder) open(ch byte)   { e.dst = append(e.dst, ch) }
func (e *encoder) close(ch byte)  { e.dst = append(e.dst, ch) }
func (e *encoder) key(k string)   { e.comma(); e.str(k); e.dst = append(e.dst, ':') }
func (e *encoder) bytes(s []byte) { e.dst = jsontext.AppendQuoted(e.dst, s) }
func (e *encoder) str(s string)   { e.dst = jsontext.AppendQuoted(e.dst, s) }

// comma appends a comma, unless the value is the first in its object or array.
func (e *encoder) comma() {
	if last := e.dst[len(e.dst)-1]; last != '{' && last != '[' {
		e.dst = append(e.dst, ',')
	}
}

// params appends parameters as members of a JSON object, sorted by name. For a value that JSON cannot carry it sets the
// encoder's error.
func (e *encoder) params(params map[string]Param) {
	names := make([]string, 0, len(params))
	for name := range params {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		e.key(name)
		switch v := params[name].(type) {
		case bool:
			e.dst = strconv.AppendBool(e.dst, v)
		case int64:
			e.dst = strconv.AppendInt(e.dst, v, 10)
		case uint64:
			e.dst = strconv.AppendUint(e.dst, v, 10)
		case string:
			e.str(v)
		case float64:
			if math.IsNaN(v) || math.IsInf(v, 0) {
				e.fail("parameter %q is %v, which JSON cannot carry", name, v)
				v = 0
			}
			e.dst = strconv.AppendFloat(e.dst, v, 'g', -1, 64)
		default:
			e.fail("parameter %q has type %T", name, v)
			e.raw("null")
		}
	}
}

// fail sets the error of an answer that must not occur.
func (e *encoder) fail(format string, args ...any) {
	if e.err == nil {
		e.err = &Error{Code: httplimit.CodeInternal, Reason: "internal", Msg: fmt.Sprintf(format, args...)}
	}
}

// failNotJSON sets the error of an answer that JSON cannot represent. It is the client's, who has to ask for binary
// data.
func (e *encoder) failNotJSON(format string, args ...any) {
	if e.err == nil {
		e.err = &Error{Code: httplimit.CodeInvalid, Reason: "not_json", Field: "outputs", Msg: fmt.Sprintf(format, args...)}
	}
}

// tensors appends a JSON list of tensors. If binary(i) is true, the i-th has only the size of its data, which the caller
// sends as raw bytes behind the JSON.
func (e *encoder) tensors(ts []Tensor, binary func(i int) bool) {
	e.open('[')
	for i := range ts {
		t := &ts[i]
		e.comma()
		e.open('{')
		e.key("name")
		e.str(t.Name)
		e.key("datatype")
		e.str(t.Datatype.String())
		e.key("shape")
		e.open('[')
		for _, d := range t.Shape {
			e.comma()
			e.dst = strconv.AppendInt(e.dst, d, 10)
		}
		e.close(']')
		if binary(i) {
			e.key("parameters")
			e.open('{')
			e.key("binary_data_size")
			e.dst = strconv.AppendInt(e.dst, int64(len(t.Data)), 10)
			e.close('}')
		} else {
			e.key("data")
			e.data(t)
		}
		e.close('}')
	}
	e.close(']')
}

// data appends the elements of a tensor as one flat JSON array. For values that JSON cannot carry (NaN, bytes that are
// no UTF-8, BF16) it sets the encoder's error, which tells the client to ask for binary data.
func (e *encoder) data(t *Tensor) {
	e.open('[')
	size := t.Datatype.Size()
	switch t.Datatype {
	case Bytes:
		for data := t.Data; len(data) >= 4; {
			n := 4 + int(binary.LittleEndian.Uint32(data))
			if n > len(data) {
				e.fail("tensor %q: faulty BYTES", t.Name)
				break
			}
			if !utf8.Valid(data[4:n]) {
				e.failNotJSON("tensor %q holds bytes that are not UTF-8, which JSON cannot carry; ask for binary_data", t.Name)
				break
			}
			e.comma()
			e.bytes(data[4:n])
			data = data[n:]
		}
	case BF16:
		e.failNotJSON("tensor %q is BF16, which travels as binary data only; ask for binary_data", t.Name)
	default:
		for data := t.Data; len(data) >= size; data = data[size:] {
			if len(data) < len(t.Data) {
				e.dst = append(e.dst, ',')
			}
			if !e.element(t.Datatype, data) {
				e.failNotJSON("tensor %q holds NaN or infinity, which JSON cannot carry; ask for binary_data", t.Name)
				break
			}
		}
	}
	e.close(']')
}

// element appends the first element of type dt in the little-endian bytes b as JSON. If JSON cannot represent it (NaN,
// infinity), it returns false.
func (e *encoder) element(dt Datatype, b []byte) bool {
	le := binary.LittleEndian
	switch dt {
	case Bool:
		e.dst = strconv.AppendBool(e.dst, b[0] != 0)
	case Uint8:
		e.dst = strconv.AppendUint(e.dst, uint64(b[0]), 10)
	case Uint16:
		e.dst = strconv.AppendUint(e.dst, uint64(le.Uint16(b)), 10)
	case Uint32:
		e.dst = strconv.AppendUint(e.dst, uint64(le.Uint32(b)), 10)
	case Uint64:
		e.dst = strconv.AppendUint(e.dst, le.Uint64(b), 10)
	case Int8:
		e.dst = strconv.AppendInt(e.dst, int64(int8(b[0])), 10)
	case Int16:
		e.dst = strconv.AppendInt(e.dst, int64(int16(le.Uint16(b))), 10)
	case Int32:
		e.dst = strconv.AppendInt(e.dst, int64(int32(le.Uint32(b))), 10)
	case Int64:
		e.dst = strconv.AppendInt(e.dst, int64(le.Uint64(b)), 10)
	case FP16:
		return e.float(float64(engine.FromFP16(le.Uint16(b))), 32)
	case FP32:
		return e.float(float64(math.Float32frombits(le.Uint32(b))), 32)
	case FP64:
		return e.float(math.Float64frombits(le.Uint64(b)), 64)
	}
	return true
}

// float appends a float. It returns false for NaN and infinity.
func (e *encoder) float(v float64, bits int) bool {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return false
	}
	e.dst = strconv.AppendFloat(e.dst, v, 'g', -1, bits)
	return true
}
