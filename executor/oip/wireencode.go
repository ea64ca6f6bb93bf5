package oip

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"inferplan/executor/jsonscan"
)

// MarshalRequest appends a ModelInferRequest with raw contents to dst. Two such messages in a row are one message
// with the fields of both, so the part that all requests share can be encoded once.
func MarshalRequest(dst []byte, r *Request) []byte {
	dst = appendText(dst, fieldModelName, r.Model)
	dst = appendText(dst, fieldModelVersion, r.Version)
	dst = appendText(dst, fieldID, r.ID)
	if r.Timeout > 0 {
		dst = appendParam(dst, "timeout", max(r.Timeout.Microseconds(), 1))
	}
	if r.Priority > 0 {
		dst = appendParam(dst, "priority", r.Priority)
	}
	if r.Class != "" {
		dst = appendParam(dst, "class", r.Class)
	}
	for name, v := range r.Params {
		dst = appendParam(dst, name, v)
	}

	// The inputs, the outputs that are wanted, and the data of the inputs.
	for i := range r.Inputs {
		dst = appendTensor(dst, requestInputs, &r.Inputs[i])
	}
	for i := range r.Outputs {
		dst = protowire.AppendTag(dst, requestOutputs, protowire.BytesType)
		dst = protowire.AppendBytes(dst, appendText(nil, 1, r.Outputs[i].Name))
	}
	for i := range r.Inputs {
		dst = protowire.AppendTag(dst, requestRaw, protowire.BytesType)
		dst = protowire.AppendBytes(dst, r.Inputs[i].Data)
	}
	return dst
}

// appendText appends a string field, unless it is empty.
func appendText(dst []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return dst
	}
	return protowire.AppendString(protowire.AppendTag(dst, field, protowire.BytesType), s)
}

// appendParam appends a named parameter of a request or response as a field of a protobuf message.
func appendParam(dst []byte, name string, v Param) []byte {
	var buf [64]byte
	value := buf[:0]
	switch v := v.(type) {
	case bool:
		value = protowire.AppendVarint(protowire.AppendTag(value, 1, protowire.VarintType), protowire.EncodeBool(v))
	case int64:
		value = protowire.AppendVarint(protowire.AppendTag(value, 2, protowire.VarintType), uint64(v))
	case string:
		value = protowire.AppendString(protowire.AppendTag(value, 3, protowire.BytesType), v)
	case float64:
		value = protowire.AppendFixed64(protowire.AppendTag(value, 4, protowire.Fixed64Type), math.Float64bits(v))
	case uint64:
		value = protowire.AppendVarint(protowire.AppendTag(value, 5, protowire.VarintType), v)
	}
	dst = protowire.AppendTag(dst, fieldParameters, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(1+protowire.SizeBytes(len(name))+1+protowire.SizeBytes(len(value))))
	dst = protowire.AppendString(protowire.AppendTag(dst, 1, protowire.BytesType), name)
	return protowire.AppendBytes(protowire.AppendTag(dst, 2, protowire.BytesType), value)
}

// appendTensor appends name, datatype and shape of a tensor to dst, as a field of a protobuf message. Its data is sent
// as raw contents, in another field.
func appendTensor(dst []byte, field protowire.Number, t *Tensor) []byte {
	var buf [192]byte
	sub := appendText(buf[:0], tensorName, t.Name)
	sub = appendText(sub, tensorDatatype, t.Datatype.String())
	if len(t.Shape) > 0 {
		var dimRoom [96]byte
		dims := dimRoom[:0]
		for _, d := range t.Shape {
			dims = protowire.AppendVarint(dims, uint64(d))
		}
		sub = protowire.AppendBytes(protowire.AppendTag(sub, tensorShape, protowire.BytesType), dims)
	}
	return protowire.AppendBytes(protowire.AppendTag(dst, field, protowire.BytesType), sub)
}

// maxResponseBytes returns an upper bound of the size of a response in protobuf, for its buffer.
func maxResponseBytes(resp *Response) int {
	n := 64 + len(resp.Model) + len(resp.Version) + len(resp.ID)
	for i := range resp.Outputs {
		t := &resp.Outputs[i]
		n += 64 + len(t.Name) + 10*len(t.Shape) + len(t.Data)
	}
	for name, v := range resp.Params {
		n += 64 + len(name)
		if s, ok := v.(string); ok {
			n += len(s)
		}
	}
	return n
}

// marshalResponse appends a ModelInferResponse with raw contents to dst.
func marshalResponse(dst []byte, resp *Response) []byte {
	dst = appendText(dst, fieldModelName, resp.Model)
	dst = appendText(dst, fieldModelVersion, resp.Version)
	dst = appendText(dst, fieldID, resp.ID)
	for name, v := range resp.Params {
		dst = appendParam(dst, name, v)
	}
	for i := range resp.Outputs {
		dst = appendTensor(dst, responseOutputs, &resp.Outputs[i])
	}
	for i := range resp.Outputs {
		dst = protowire.AppendBytes(protowire.AppendTag(dst, responseRaw, protowire.BytesType), resp.Outputs[i].Data)
	}
	return dst
}

// UnmarshalResponse reads a ModelInferResponse. Outputs may alias b.
func UnmarshalResponse(b []byte, resp *Response) error {
	if err := unmarshalResponse(b, resp); err != nil {
		return err
	}
	return nil
}

// unmarshalResponse reads a ModelInferResponse from protobuf into resp, for clients. Raw contents alias b. Errors name
// the field.
func unmarshalResponse(b []byte, resp *Response) *Error {
	var rawRoom [2][]byte
	var wireRoom [2]wireTensor
	raw, parts := rawRoom[:0], wireRoom[:0]
	resp.Outputs = resp.Outputs[:0]
	var p jsonscan.Progress
	// Collect the outputs, and their data, which is in other fields and may come first.
	err := forEachField(b, &p, func(field protowire.Number, typ protowire.Type, val []byte, _ uint64) *Error {
		if typ != protowire.BytesType {
			return nil
		}
		switch field {
		case fieldModelName:
			resp.Model = string(val)
		case fieldModelVersion:
			resp.Version = string(val)
		case fieldID:
			resp.ID = string(val)
		case fieldParameters:
			return wireParam("parameters", val, &p, func(name string, v Param) *Error {
				if resp.Params == nil {
					resp.Params = map[string]Param{}
				}
				resp.Params[name] = v
				return nil
			})
		case responseOutputs:
			resp.Outputs = append(resp.Outputs, Tensor{})
			parts = append(parts, wireTensor{})
			i := len(resp.Outputs) - 1
			return prefixIndex("outputs", i, unmarshalTensor(val, &p, &resp.Outputs[i], &parts[i], nil, func(n int) []int64 { return make([]int64, n) }))
		case responseRaw:
			raw = append(raw, val)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return joinContents("outputs", "raw_output_contents", resp.Outputs, parts, raw, &p)
}
