package programs

import (
	"encoding/json"
	"fmt"
	"math"

	"inferplan/executor/oip"
	"inferplan/executor/turn"
	"inferplan/formats/calls"
)

// taskOutputs returns a task's tensors as programs see them. They become JSON when they are written, on the goroutine of
// the caller.
func taskOutputs(list []turn.Tensor, outputs []byte) calls.Outputs {
	out := calls.Outputs{}
	for i := range list {
		out[list[i].Name] = sampleValue{&list[i], outputs[:list[i].Bytes]}
		outputs = outputs[list[i].Bytes:]
	}
	return out
}

// sampleValue is a sample of a tensor as a JSON value: nested lists, or a plain value. Numbers that JSON lacks are null.
type sampleValue struct {
	*turn.Tensor
	data []byte
}

// MarshalJSON writes one sample of a tensor as nested JSON lists, without the batch dimension. It implements
// json.Marshaler.
func (v sampleValue) MarshalJSON() ([]byte, error) {
	out, err := json.Marshal(v.nestedValue(v.Shape[1:], v.data))
	if err != nil {
		return nil, fmt.Errorf("writing the tensor %s: %w", v.Name, err)
	}
	return out, nil
}

// nestedValue returns the elements of a tensor (or, in the recursion, of a part of one) for an answer in JSON, as nested
// lists, one level for each dimension of shape. data has their bytes in row-major order. Floats that JSON cannot hold
// (NaN, infinity) become null.
func (v sampleValue) nestedValue(shape []int64, data []byte) any {
	if len(shape) == 0 {
		x := oip.Element(v.Datatype, data)
		if f, ok := x.(float64); ok && (math.IsNaN(f) || math.IsInf(f, 0)) {
			return nil
		}
		return x
	}
	list := make([]any, shape[0])
	part := len(data) / max(1, int(shape[0]))
	for i := range list {
		list[i] = v.nestedValue(shape[1:], data[i*part:][:part])
	}
	return list
}

// parseSample returns the bytes of a sample of tensor t from a program's value: a number, or nested lists of numbers,
// whose elements are taken one after the other. A value that is not JSON text yet is turned into it first. It returns an
// error if type or number of elements do not fit.
func parseSample(t *turn.Tensor, value any) ([]byte, error) {
	raw, ok := value.(json.RawMessage)
	if !ok {
		var err error
		if raw, err = json.Marshal(value); err != nil {
			return nil, fmt.Errorf("found %.40v: %w", value, err)
		}
	}
	data, err := oip.ReadSample(raw, t.Datatype, t.Bytes)
	if err != nil {
		return nil, err
	}
	return data, nil
}
