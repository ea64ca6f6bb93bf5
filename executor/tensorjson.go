package executor

import (
	"encoding/json"
	"fmt"
	"math"

	"inferplan/executor/oip"
	"inferplan/formats/calls"
)

// outputsOf are a task's tensors as programs see them. They become JSON when they are
// written, on the goroutine of whoever asks.
func outputsOf(list []tensor, made []byte) calls.Outputs {
	out := calls.Outputs{}
	for i := range list {
		out[list[i].name] = sampleValue{&list[i], made[:list[i].bytes]}
		made = made[list[i].bytes:]
	}
	return out
}

// sampleValue is a sample of a tensor as a value: nested lists, or a plain value.
// Numbers that JSON lacks are null.
type sampleValue struct {
	*tensor
	data []byte
}

// MarshalJSON implements json.Marshaler.
func (v sampleValue) MarshalJSON() ([]byte, error) {
	out, err := json.Marshal(v.nested(v.shape[1:], v.data))
	if err != nil {
		return nil, fmt.Errorf("writing the tensor %s: %w", v.name, err)
	}
	return out, nil
}

func (v sampleValue) nested(shape []int64, data []byte) any {
	if len(shape) == 0 {
		x := oip.Element(v.datatype, data, 0)
		if f, ok := x.(float64); ok && (math.IsNaN(f) || math.IsInf(f, 0)) {
			return nil
		}
		return x
	}
	list := make([]any, shape[0])
	part := len(data) / max(1, int(shape[0]))
	for i := range list {
		list[i] = v.nested(shape[1:], data[i*part:][:part])
	}
	return list
}

// sampleOf is a tensor's sample made of a JSON value: a number, or lists of numbers
// whose elements are taken one after the other.
func (t *tensor) sampleOf(value any) ([]byte, error) {
	data, err := t.append(make([]byte, 0, t.bytes), value)
	if err == nil && len(data) != t.bytes {
		err = fmt.Errorf("found %d elements, expected %d of %s", len(data)/t.datatype.Size(), t.bytes/t.datatype.Size(), t.datatype)
	}
	return data, err
}

func (t *tensor) append(data []byte, value any) (_ []byte, err error) {
	number, ok := 0.0, true
	switch v := value.(type) {
	case []any:
		for i := range v {
			if data, err = t.append(data, v[i]); err != nil {
				return nil, err
			}
		}
		return data, nil
	case bool:
		if v {
			number = 1
		}
	case float64:
		number = v
	default:
		ok = false
	}
	if ok && len(data) < t.bytes {
		data, ok = oip.AppendElement(data, t.datatype, number)
	} else if ok {
		return nil, fmt.Errorf("found more than %d elements", t.bytes/t.datatype.Size())
	}
	if !ok {
		return nil, fmt.Errorf("found %.40v, expected a number that %s holds", value, t.datatype)
	}
	return data, nil
}
