package oip

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/executor/httplimit"
	"inferplan/executor/jsonscan"
)

// DecodeRequest reads an infer request of the REST protocol into r. text is the JSON and tail the binary tensors
// behind it. m may be nil; if it is not, tensor names that it has need no allocation. Tensors may alias text and
// tail. Names, datatypes and shapes are not checked against the model.
func DecodeRequest(text, tail []byte, m *ModelInfo, r *Request) error {
	if err := decodeRequest(context.Background(), text, tail, m, r); err != nil {
		return err
	}
	return nil
}

// decodeRequest reads an infer request of the REST protocol into r. text is the JSON, tail the bytes behind it, where
// tensors may have their data; the inputs alias tail. m is the model, for its names; r is not checked against it. It
// returns an error that names the field, or if ctx ends.
func decodeRequest(ctx context.Context, text, tail []byte, m *ModelInfo, r *Request) *Error {
	d := decoder{Cursor: jsonscan.Cursor{B: text, Progress: jsonscan.Progress{Ctx: ctx, MemoryHold: &r.memoryHold}}, model: m, tail: tail, newShape: r.shape}
	var seenFields fieldSet
	r.Inputs = r.inputBuf[:0]
	err := d.Object(func(key []byte) *Error {
		switch string(key) {
		case "id":
			return d.readOnce(&seenFields, 0, "id", func() (err *Error) { r.ID, err = d.text(); return })
		case "model_name":
			return d.readOnce(&seenFields, 1, "model_name", func() *Error { return d.requireSame("model_name", r.Model) })
		case "model_version":
			return d.readOnce(&seenFields, 2, "model_version", func() *Error { return d.requireSame("model_version", r.Version) })
		case "parameters":
			return d.readOnce(&seenFields, 3, "parameters", func() *Error { return d.requestParams(r) })
		case "inputs":
			return d.readOnce(&seenFields, 4, "inputs", func() (err *Error) { r.Inputs, err = d.tensors("inputs", r.Inputs); return })
		case "outputs":
			return d.readOnce(&seenFields, 5, "outputs", func() *Error { return d.outputRequests(r) })
		}
		return unknownField("", key, "id, parameters, inputs, outputs")
	})
	if err != nil {
		return err
	}
	if err := d.checkEnd("inputs", r.Inputs); err != nil {
		return err
	}
	if !seenFields.contains(4) {
		return httplimit.Invalid("inputs", "missing")
	}
	// The parameter binary_data_output may come after the outputs.
	for i := range r.Outputs {
		if !d.explicitBinary[i] {
			r.Outputs[i].Binary = r.binaryDefault
		}
	}
	return nil
}

// DecodeResponse reads an infer response of the REST protocol. Outputs may alias text and tail.
func DecodeResponse(text, tail []byte, resp *Response) error {
	if err := decodeResponse(text, tail, resp); err != nil {
		return err
	}
	return nil
}

// decodeResponse reads an infer response of the REST protocol into resp, for clients. text is the JSON, tail the bytes
// behind it, which the outputs may alias. Errors name the field.
func decodeResponse(text, tail []byte, resp *Response) *Error {
	d := decoder{Cursor: jsonscan.Cursor{B: text}, tail: tail, newShape: func(n int) []int64 { return make([]int64, n) }}
	var seenFields fieldSet
	err := d.Object(func(key []byte) *Error {
		switch string(key) {
		case "id":
			return d.readOnce(&seenFields, 0, "id", func() (err *Error) { resp.ID, err = d.text(); return })
		case "model_name":
			return d.readOnce(&seenFields, 1, "model_name", func() (err *Error) { resp.Model, err = d.text(); return })
		case "model_version":
			return d.readOnce(&seenFields, 2, "model_version", func() (err *Error) { resp.Version, err = d.text(); return })
		case "parameters":
			return d.readOnce(&seenFields, 3, "parameters", func() *Error {
				return d.params("parameters", func(name []byte, v Param) *Error {
					if resp.Params == nil {
						resp.Params = map[string]Param{}
					}
					resp.Params[string(name)] = v
					return nil
				})
			})
		case "outputs":
			return d.readOnce(&seenFields, 4, "outputs", func() (err *Error) { resp.Outputs, err = d.tensors("outputs", resp.Outputs[:0]); return })
		}
		return unknownField("", key, "model_name, model_version, id, parameters, outputs")
	})
	if err != nil {
		return err
	}
	return d.checkEnd("outputs", resp.Outputs)
}

// fieldSet is the set of the members of an object that were read, by number.
type fieldSet uint8

func (s fieldSet) contains(i int) bool { return s&(1<<i) != 0 }

// decoder reads the objects of the protocol.
type decoder struct {
	jsonscan.Cursor
	model          *ModelInfo
	tail           []byte
	tailUsed       int                 // bytes of the tail that were assigned to tensors
	newShape       func(n int) []int64 // allocates a shape
	shapeBuf       [maxRank]int64
	explicitBinary []bool // by output: the client gave "binary_data" for it
}

// unknownField returns the error for a member that is not known.
func unknownField(prefix string, key []byte, knownNames string) *Error {
	return httplimit.Invalid(prefix+httplimit.Clip(string(key)), "unknown field; known: %s", knownNames)
}

// readOnce reads the value of an object's member by readValue and notes the member's number i in seenFields. It
// returns an error if the member was read before. field is the member's path, for errors.
func (d *decoder) readOnce(seenFields *fieldSet, i int, field string, readValue func() *Error) *Error {
	if seenFields.contains(i) {
		return httplimit.Invalid(field, "given twice")
	}
	*seenFields |= 1 << i
	err := readValue()
	// An error that names a member of this object already is not changed.
	if err != nil && (err.Field == "" || err.Field[0] == '[') {
		err.Field = field + err.Field
	}
	return err
}

// prefixField puts the path of a field in front of an error's path if that is empty or relative (it begins with "[" or
// "."), and returns the error; nil stays nil. A complete path stays as it is.
func prefixField(field string, err *Error) *Error {
	switch {
	case err == nil:
		return nil
	case err.Field == "":
		err.Field = field
	case strings.HasPrefix(err.Field, "[") || strings.HasPrefix(err.Field, "."):
		err.Field = field + err.Field
	}
	return err
}

// text reads a string and copies it.
func (d *decoder) text() (string, *Error) {
	s, err := d.Str()
	return string(s), err
}

// requireSame reads a string and returns an error if it differs from the one in the URL.
func (d *decoder) requireSame(field, expected string) *Error {
	s, err := d.Str()
	if err == nil && expected != "" && string(s) != expected {
		return httplimit.Invalid(field, "the body says %q, the address %q", httplimit.Clip(string(s)), expected)
	}
	return err
}

// maxParams bounds the parameters of one object: one may take only six bytes of text but some two hundred of memory.
const maxParams = 256

// params reads a JSON object of parameters and calls set with each. field is the object's path, for errors. A name that
// comes twice is an error, and so are more than maxParams. The first eight names need no allocation, because most
// requests have fewer.
func (d *decoder) params(field string, set func(name []byte, v Param) *Error) *Error {
	var nameBuf [8][]byte
	names := nameBuf[:0]
	var furtherNames map[string]struct{} // names after the eighth
	return d.Object(func(name []byte) *Error {
		_, repeated := furtherNames[string(name)]
		if repeated || slices.ContainsFunc(names, func(n []byte) bool { return bytes.Equal(n, name) }) {
			return httplimit.Invalid(field+"."+httplimit.Clip(string(name)), "given twice")
		}
		switch {
		case len(names) < len(nameBuf):
			names = append(names, name)
		case len(furtherNames) == maxParams-len(nameBuf):
			return httplimit.TooLarge(field, "more than %d parameters", maxParams)
		default:
			if furtherNames == nil {
				furtherNames = map[string]struct{}{}
			}
			furtherNames[string(name)] = struct{}{}
		}
		v, err := d.Param()
		if err == nil {
			err = set(name, v)
		}
		if err != nil && err.Field == "" {
			err.Field = field + "." + httplimit.Clip(string(name))
		}
		return err
	})
}

// requestParams reads the parameters of a request.
func (d *decoder) requestParams(r *Request) *Error {
	return d.params("parameters", func(name []byte, v Param) *Error { return r.setParam(string(name), v) })
}

// setParam sets a parameter of a request, which came in JSON or over gRPC. Those that the server has a meaning for
// (timeout in us, priority, binary_data_output, SLO class) go to fields of their own, others to r.Params, for the
// backend.
func (r *Request) setParam(name string, v Param) *Error {
	switch name {
	case "timeout":
		micros, ok := paramInt(v)
		if !ok || micros > math.MaxInt64/int64(time.Microsecond) {
			return httplimit.Invalid("parameters.timeout", "got %s, expected microseconds as a non-negative integer", httplimit.Clip(fmt.Sprint(v)))
		}
		r.Timeout = time.Duration(micros) * time.Microsecond
	case "priority":
		p, ok := paramInt(v)
		if !ok {
			return httplimit.Invalid("parameters.priority", "got %s, expected a non-negative integer", httplimit.Clip(fmt.Sprint(v)))
		}
		r.Priority = uint64(p)
	case "binary_data_output":
		b, ok := v.(bool)
		if !ok {
			return httplimit.Invalid("parameters.binary_data_output", "got %s, expected a boolean", httplimit.Clip(fmt.Sprint(v)))
		}
		r.binaryDefault = b
	case "class":
		c, ok := v.(string)
		if !ok {
			return httplimit.Invalid("parameters.class", "got %s, expected the name of an SLO class", httplimit.Clip(fmt.Sprint(v)))
		}
		return r.setClass("parameters.class", c)
	default:
		if r.Params == nil {
			r.Params = map[string]Param{}
		}
		if r.Params[name] = v; len(r.Params) > maxParams {
			return httplimit.TooLarge("parameters", "more than %d parameters", maxParams)
		}
	}
	return nil
}

// setClass sets the SLO class of a request from a parameter or a header. If both name one, they must agree.
func (r *Request) setClass(field, class string) *Error {
	if r.Class != "" && class != "" && class != r.Class {
		return httplimit.Invalid(field, "got %q, and %q elsewhere: parameter and %s must agree", httplimit.Clip(class), httplimit.Clip(r.Class), HeaderClass)
	}
	if class != "" {
		r.Class = class
	}
	return nil
}

// paramInt returns a parameter as a non-negative integer, in any of the forms in which clients write one, and
// whether it is one.
func paramInt(v Param) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, v >= 0
	case uint64:
		return int64(v), v <= math.MaxInt64
	case float64:
		return int64(v), v >= 0 && v < 1<<53 && v == math.Trunc(v)
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		return n, err == nil && n >= 0
	}
	return 0, false
}

// outputRequests reads the JSON array of the outputs that a request wants into r.Outputs. For each it notes in
// d.explicitBinary whether the client said if it wants it as binary data; for the others the request's default holds.
func (d *decoder) outputRequests(r *Request) *Error {
	return d.Array(func(i int) *Error {
		var o OutputRequest
		var seenFields fieldSet
		explicit := false
		err := d.Object(func(key []byte) *Error {
			switch string(key) {
			case "name":
				return d.readOnce(&seenFields, 0, ".name", func() *Error {
					s, err := d.Str()
					o.Name = d.model.intern(s)
					return err
				})
			case "parameters":
				return d.readOnce(&seenFields, 1, ".parameters", func() *Error {
					return d.params(".parameters", func(name []byte, v Param) *Error {
						if string(name) == "binary_data" {
							b, ok := v.(bool)
							if !ok {
								return httplimit.Invalid(".parameters.binary_data", "got %s, expected a boolean", httplimit.Clip(fmt.Sprint(v)))
							}
							o.Binary, explicit = b, true
							return nil
						}
						return outputParam(string(name))
					})
				})
			}
			return unknownField(".", key, "name, parameters")
		})
		if err == nil && !seenFields.contains(0) {
			err = httplimit.Invalid(".name", "missing")
		}
		if err != nil {
			return prefixField(fmt.Sprintf("[%d]", i), err)
		}
		r.Outputs = append(r.Outputs, o)
		d.explicitBinary = append(d.explicitBinary, explicit)
		return nil
	})
}

// outputParam returns an error for parameters that would change the answer in a way that is not offered. Other
// parameters are ignored.
func outputParam(name string) *Error {
	switch name {
	case "classification":
		return httplimit.Invalid(".parameters.classification", "the classification extension is not offered")
	case "shared_memory_region", "shared_memory_byte_size", "shared_memory_offset":
		return httplimit.Invalid(".parameters."+name, "the shared-memory extensions are not offered")
	}
	return nil
}
