package profiler

import (
	"encoding/binary"
	"math"
	"strconv"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
)

// oipNames are the Open Inference Protocol's names of element types.
var oipNames = map[engine.DType]string{
	engine.F32: "FP32", engine.F16: "FP16", engine.F64: "FP64", engine.I64: "INT64", engine.I32: "INT32",
	engine.I16: "INT16", engine.I8: "INT8", engine.U64: "UINT64", engine.U32: "UINT32", engine.U16: "UINT16", engine.U8: "UINT8",
	engine.Bool: "BOOL", engine.BF16: "BF16",
}

// inputInfos returns the profile's entries for a model's inputs, with the values that they are measured with.
func inputInfos(model *modelInfo) []formats.TensorInfo {
	out := tensorInfos(model.inputs)
	for i := range out {
		if model.inputAxes != nil {
			out[i].DynamicAxes = model.inputAxes[i]
		}
		if v := model.values[out[i].Name].Values; len(v) <= maxStoredValues {
			out[i].Value = v
		}
	}
	return out
}

// outputInfos returns the profile's entries for a model's outputs.
func outputInfos(model *modelInfo) []formats.TensorInfo {
	out := tensorInfos(model.outputs)
	for i := range out {
		if model.outputAxes != nil {
			out[i].DynamicAxes = model.outputAxes[i]
		}
	}
	return out
}

// maxStoredValues is the largest number of values of an input that a profile stores.
const maxStoredValues = 1 << 16

// constantInfos returns the profile's entries for the inputs that became constants.
func constantInfos(list []graph.Constant) []formats.TensorInfo {
	return document.Map(list, func(c *graph.Constant) formats.TensorInfo {
		return formats.TensorInfo{Name: c.Name, DType: oipNames[c.Type], Shape: []int64{}, Value: c.Value.Values}
	})
}

// tensorInfos returns the profile's entries for tensors, without values.
func tensorInfos(specs []engine.Spec) []formats.TensorInfo {
	out := make([]formats.TensorInfo, len(specs))
	for i, s := range specs {
		out[i] = formats.TensorInfo{Name: s.Name, DType: oipNames[s.Type], Shape: append([]int64{}, s.Shape...)}
	}
	return out
}

// inputValues are the values that inputs are measured with in place of seeded ones, by the inputs' names.
type inputValues map[string]graph.Literal

// fill writes the values that an input is measured with: those that the user gives or, if there are none, seeded
// ones, which differ from sample to sample. sample is the sample's number.
func (v inputValues) fill(t engine.Tensor, sample int) error {
	spec := t.Spec()
	value, ok := v[spec.Name]
	if !ok {
		return fillSeeded(t, sample)
	}
	size := int64(spec.Type.Size())
	elements, perSample := spec.BytesAt(t.Batch())/size, spec.BytesAt(1)/size
	data, err := value.Fill(spec.Type, elements, perSample)
	if err != nil {
		return inputError("input %q: %v", spec.Name, err)
	}
	return t.Write(data)
}

// fillAll fills all inputs of a model for a sample, with the given values or seeded ones.
func (v inputValues) fillAll(inputs []engine.Tensor, sample int) error {
	for _, t := range inputs {
		if err := v.fill(t, sample); err != nil {
			return err
		}
	}
	return nil
}

// fillSeeded writes values into an input that follow from its name and the sample's number: float32 and float64 are
// uniform in [-1, 1). All other types are 0 or 1, which every vocabulary and mask accepts.
func fillSeeded(t engine.Tensor, sample int) error {
	spec := t.Spec()
	rng := seeded.New(1, "profiler/input/"+spec.Name+"/"+strconv.Itoa(sample))
	data := make([]byte, spec.BytesAt(t.Batch()))
	size := spec.Type.Size()
	for i := 0; i+size <= len(data); i += size {
		b := data[i : i+size]
		switch spec.Type {
		case engine.F32:
			binary.LittleEndian.PutUint32(b, math.Float32bits(2*rng.Float32()-1))
		case engine.F64:
			binary.LittleEndian.PutUint64(b, math.Float64bits(2*rng.Float64()-1))
		case engine.F16:
			// This is 0 or 1, because 0x3c00 is 1 in float16.
			binary.LittleEndian.PutUint16(b, uint16(rng.Uint32()&1)*0x3c00)
		case engine.BF16: // 0x3f80 is 1
			binary.LittleEndian.PutUint16(b, uint16(rng.Uint32()&1)*0x3f80)
		default: // the lowest byte of an integer or boolean comes first, and the others stay 0
			b[0] = byte(rng.Uint32() & 1)
		}
	}
	return t.Write(data)
}
