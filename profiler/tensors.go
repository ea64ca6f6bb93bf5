package profiler

import (
	"encoding/binary"
	"math"
	"strconv"

	"inferplan/engine"
	"inferplan/formats"
	"inferplan/formats/seeded"
)

// oipNames are the Open Inference Protocol's names of element types.
var oipNames = map[engine.DType]string{
	engine.F32: "FP32", engine.F16: "FP16", engine.F64: "FP64", engine.I64: "INT64", engine.I32: "INT32",
	engine.I8: "INT8", engine.U8: "UINT8", engine.Bool: "BOOL",
}

func tensorInfos(specs []engine.Spec) []formats.TensorInfo {
	out := make([]formats.TensorInfo, len(specs))
	for i, s := range specs {
		out[i] = formats.TensorInfo{Name: s.Name, DType: oipNames[s.Type], Shape: append([]int64{}, s.Shape...)}
	}
	return out
}

// fillSeeded writes seeded values into a tensor: floats uniform in [-1, 1),
// integers and booleans 0 or 1, which every vocabulary and mask accepts.
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
			// 0 or 1: 0x3c00 is 1.
			binary.LittleEndian.PutUint16(b, uint16(rng.Uint32()&1)*0x3c00)
		default:
			b[0] = byte(rng.Uint32() & 1)
		}
	}
	return t.Write(data)
}
