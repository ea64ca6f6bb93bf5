package graph

import (
	"encoding/binary"

	"google.golang.org/protobuf/proto"

	"inferplan/engine"
	"inferplan/engine/graph/onnxpb"
)

// checkTensor returns an error if a tensor's data is in another file, or if its length differs from what its
// dimensions need. label names the tensor in the error.
func checkTensor(t *onnxpb.Tensor, label string) error {
	if isOutside(t) {
		return modelErrorf("%s keeps its values in another file, which only initialisers may: save the model again with onnx.save", label)
	}
	n := elementCount(t.Dims)
	if n < 0 || n > maxElements {
		return modelErrorf("%s has impossible dimensions %v", label, t.Dims)
	}
	dt := engine.DType(t.GetDataType())
	if t.RawData != nil && dt.Size() > 0 {
		if foundBytes, wantedBytes := int64(len(t.RawData)), n*int64(dt.Size()); foundBytes != wantedBytes {
			return modelErrorf("%s holds %d bytes, %d are expected for %s%v: the file is truncated or was written wrongly", label, foundBytes, wantedBytes, dt, t.Dims)
		}
	}

	// Without raw bytes, the values are in the list of the tensor's type.
	if t.RawData == nil {
		for _, list := range []struct {
			isOfType bool // the values of the tensor's type are in this list
			len      int
		}{
			{dt == engine.F32, len(t.FloatData)}, {dt == engine.F64, len(t.DoubleData)}, {dt == engine.I64, len(t.Int64Data)},
			{dt == engine.U64 || dt == engine.U32, len(t.Uint64Data)},
			{dt == engine.I32 || dt == engine.I16 || dt == engine.I8 || dt == engine.U16 || dt == engine.U8 || dt == engine.Bool ||
				dt == engine.F16 || dt == engine.BF16, len(t.Int32Data)},
		} {
			if list.isOfType && int64(list.len) != n {
				return modelErrorf("%s holds %d values, %d are expected for %s%v: the file is truncated or was written wrongly", label, list.len, n, dt, t.Dims)
			}
		}
	}
	return nil
}

// tensorBytes returns the size of a tensor's values.
func tensorBytes(t *onnxpb.Tensor) int64 {
	if s := engine.DType(t.GetDataType()).Size(); s > 0 {
		return elementCount(t.Dims) * int64(s)
	}
	return int64(proto.Size(t))
}

// integersOf returns the values of an int32 or int64 tensor. It returns false for other types, and for more than
// 65536 values: the small ones are shapes and axes, which the analysis follows.
func integersOf(t *onnxpb.Tensor) ([]int64, bool) {
	if n := elementCount(t.Dims); n < 0 || n > 1<<16 {
		return nil, false
	}
	switch engine.DType(t.GetDataType()) {
	case engine.I64:
		if t.RawData == nil {
			return t.Int64Data, true
		}
		out := make([]int64, len(t.RawData)/8)
		for i := range out {
			out[i] = int64(binary.LittleEndian.Uint64(t.RawData[8*i:]))
		}
		return out, true
	case engine.I32:
		if t.RawData != nil {
			out := make([]int64, len(t.RawData)/4)
			for i := range out {
				out[i] = int64(int32(binary.LittleEndian.Uint32(t.RawData[4*i:])))
			}
			return out, true
		}
		out := make([]int64, len(t.Int32Data))
		for i, v := range t.Int32Data {
			out[i] = int64(v)
		}
		return out, true
	}
	return nil, false
}

// constTensor returns the value of a constant, which is an initialiser or the output of a Constant node. It returns
// nil if the tensor is computed otherwise.
func (n *sortedGraph) constTensor(name string) *onnxpb.Tensor {
	if t := n.inits[name]; t != nil {
		return t
	}
	i, ok := n.producer[name]
	if !ok || n.nodes[i].GetOpType() != "Constant" {
		return nil
	}
	for _, a := range n.nodes[i].Attribute {
		switch a.GetName() {
		case "value":
			return a.T
		case "value_ints":
			return int64Tensor("", a.Ints, []int64{int64(len(a.Ints))})
		case "value_int":
			return int64Tensor("", []int64{a.GetI()}, nil)
		}
	}
	return nil
}

// constInts returns the values of a constant of integers, or false if the tensor is none.
func (n *sortedGraph) constInts(name string) ([]int64, bool) {
	t := n.constTensor(name)
	if t == nil {
		return nil, false
	}
	return integersOf(t)
}

// int64Tensor makes an initialiser of int64 values.
func int64Tensor(name string, v []int64, dims []int64) *onnxpb.Tensor {
	raw := make([]byte, 0, 8*len(v))
	for _, x := range v {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(x))
	}
	return &onnxpb.Tensor{Name: proto.String(name), DataType: proto.Int32(int32(engine.I64)), Dims: dims, RawData: raw}
}

// attrInt returns a node's integer attribute of a name, or 0 if the node does not set it.
func attrInt(nd *onnxpb.Node, name string) int64 {
	for _, a := range nd.Attribute {
		if a.GetName() == name {
			return a.GetI()
		}
	}
	return 0
}
