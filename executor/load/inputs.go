package load

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"inferplan/executor/oip"
	"inferplan/formats/seeded"
)

// Inputs are the tensors of one request.
type Inputs []oip.Tensor

// maxInputBytes bounds an input, so that a shape from the server's metadata cannot take all memory.
const maxInputBytes = 1 << 30

// randomInputs returns random inputs that fit the model's description by the server. The same seed, model and
// variant give the same bytes.
func randomInputs(info *oip.ModelInfo, m *Model, seed uint64, variant int) (Inputs, error) {
	rng := seeded.New(seed, fmt.Sprintf("load/%s/%d", m.Name, variant))
	var out Inputs
	for i := range info.Inputs {
		in := &info.Inputs[i]
		shape, n, err := concreteShape(in, m)
		if err != nil {
			return nil, fmt.Errorf("model %q, input %q: %w", m.Name, in.Name, err)
		}
		out = append(out, oip.Tensor{Name: in.Name, Datatype: in.Datatype, Shape: shape, Data: randomData(rng, in.Datatype, n)})
	}
	return out, nil
}

// hasInput reports whether the model has an input with a name.
func hasInput(info *oip.ModelInfo, name string) bool {
	for i := range info.Inputs {
		if info.Inputs[i].Name == name {
			return true
		}
	}
	return false
}

// concreteShape returns the shape to send for an input, and its number of elements. Open dimensions, negative in
// the server's description, take the batch size (the first) or 1.
func concreteShape(in *oip.TensorInfo, m *Model) (shape []int64, n int64, err error) {
	n = 1
	for k, d := range in.Shape {
		switch {
		case d < 0 && k == 0:
			d = int64(max(m.Batch, 1))
		case d < 0:
			d = 1
		}
		shape = append(shape, d)
		if d > 0 && n > maxInputBytes/8/d {
			return nil, 0, fmt.Errorf("shape %v is too large to be sent", in.Shape)
		}
		n *= d
	}
	return shape, n, nil
}

// randomData returns the bytes of n random elements of a data type. Numbers are small, because such inputs are
// often indexes into a vocabulary.
func randomData(rng *rand.Rand, dt oip.Datatype, n int64) []byte {
	data := make([]byte, 0, int(n)*max(dt.Size(), 4))
	le := binary.LittleEndian
	for range n {
		switch dt {
		case oip.Bool:
			data = append(data, byte(rng.IntN(2)))
		case oip.Uint8, oip.Int8:
			data = append(data, byte(rng.IntN(100)))
		case oip.Uint16, oip.Int16:
			data = le.AppendUint16(data, uint16(rng.IntN(100)))
		case oip.Uint32, oip.Int32:
			data = le.AppendUint32(data, uint32(rng.IntN(100)))
		case oip.Uint64, oip.Int64:
			data = le.AppendUint64(data, uint64(rng.IntN(100)))
		case oip.FP16:
			// From 0.5 to 1 in steps of 2^-11: the exponent of 0.5, and a random mantissa.
			data = le.AppendUint16(data, 0x3800|uint16(rng.IntN(1<<10)))
		case oip.BF16:
			data = le.AppendUint16(data, 0x3F00|uint16(rng.IntN(1<<7)))
		case oip.FP32:
			data = le.AppendUint32(data, math.Float32bits(rng.Float32()))
		case oip.FP64:
			data = le.AppendUint64(data, math.Float64bits(rng.Float64()))
		case oip.Bytes:
			word := make([]byte, 4+rng.IntN(12))
			for i := range word {
				word[i] = byte('a' + rng.IntN(26))
			}
			data = append(le.AppendUint32(data, uint32(len(word))), word...)
		}
	}
	return data
}
