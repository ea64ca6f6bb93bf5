package engine

import (
	"fmt"
	"strconv"
	"strings"
)

// DType is an element type. The values are those of ONNX's TensorProto.DataType.
type DType int32

// The element types that may cross a block boundary.
const (
	F32  DType = 1
	U8   DType = 2
	I8   DType = 3
	U16  DType = 4
	I16  DType = 5
	I32  DType = 6
	I64  DType = 7
	Bool DType = 9
	F16  DType = 10
	F64  DType = 11
	U32  DType = 12
	U64  DType = 13
	BF16 DType = 16
)

// String is the type of texts, which have no size of their own and cannot cross.
const String DType = 8

var dtypes = map[DType]struct {
	name string
	size int // 0 for types that cannot cross
}{
	F32: {"float32", 4}, U8: {"uint8", 1}, I8: {"int8", 1}, U16: {"uint16", 2}, I16: {"int16", 2}, I32: {"int32", 4}, I64: {"int64", 8},
	Bool: {"bool", 1}, F16: {"float16", 2}, F64: {"float64", 8}, U32: {"uint32", 4}, U64: {"uint64", 8}, BF16: {"bfloat16", 2},
	String: {"string", 0}, 14: {"complex64", 0}, 15: {"complex128", 0}, 17: {"float8e4m3fn", 0}, 18: {"float8e4m3fnuz", 0}, 19: {"float8e5m2", 0},
	20: {"float8e5m2fnuz", 0}, 21: {"uint4", 0}, 22: {"int4", 0}, 23: {"float4e2m1", 0},
}

// Size returns the bytes of one element, 0 for a type that cannot cross.
func (d DType) Size() int { return dtypes[d].size }

// String returns the type's name, such as float32.
func (d DType) String() string {
	if t, ok := dtypes[d]; ok {
		return t.name
	}
	return "unknown"
}

// BatchDim stands for the batch size in Spec.Shape.
const BatchDim int64 = -1

// Spec describes a tensor at a boundary. If the tensor grows with the batch, its first dimension is BatchDim.
// Every tensor at a cut does.
type Spec struct {
	Name  string
	Type  DType
	Shape []int64
}

// ShapeAt returns the shape at a batch size: BatchDim is replaced by that number.
func (s Spec) ShapeAt(batch int) []int64 {
	out := make([]int64, len(s.Shape))
	for i, d := range s.Shape {
		if d == BatchDim {
			d = int64(batch)
		}
		out[i] = d
	}
	return out
}

// BytesAt returns the size of the tensor's memory in bytes at a batch size.
func (s Spec) BytesAt(batch int) int64 {
	n := int64(s.Type.Size())
	for _, d := range s.Shape {
		if d == BatchDim {
			d = int64(batch)
		}
		n *= d
	}
	return n
}

// String describes the tensor for users, with N for the batch: "image float32[N,3,224,224]".
func (s Spec) String() string {
	d := make([]string, len(s.Shape))
	for i, v := range s.Shape {
		d[i] = strconv.FormatInt(v, 10)
		if v == BatchDim {
			d[i] = "N"
		}
	}
	return fmt.Sprintf("%s %s[%s]", s.Name, s.Type, strings.Join(d, ","))
}

// Tensor is memory of one batch size with its type and shape. Whoever
// allocated it owns it (see the package comment).
type Tensor interface {
	Spec() Spec
	Batch() int
	// Bytes returns the tensor's memory if it is host memory, and nil on a GPU. It stays valid, at the same
	// address, until the owner frees it.
	Bytes() []byte
	// Write copies from host memory, Read to host memory, whole tensors only.
	Write(src []byte) error
	Read(dst []byte) error
}

// HostTensor is a tensor over host memory that the caller owns: a Go slice, or
// memory mapped from a file that two processes share.
type HostTensor struct {
	spec  Spec
	batch int
	data  []byte
}

// NewHostTensor wraps data as a tensor; a nil data allocates. The length must
// be the size of the tensor at that batch. Memory handed to engine/ort must
// be aligned to 4 bytes (8 for 8-byte types); 64 is best.
func NewHostTensor(spec Spec, batch int, data []byte) (*HostTensor, error) {
	if batch < 1 {
		return nil, fmt.Errorf("tensor %s: batch %d: expected at least 1", spec.Name, batch)
	}
	wantedBytes := spec.BytesAt(batch)
	if spec.Type.Size() == 0 || wantedBytes < 0 {
		return nil, fmt.Errorf("tensor %s: %s cannot be held", spec.Name, spec)
	}
	if data == nil {
		data = make([]byte, wantedBytes)
	}
	if int64(len(data)) != wantedBytes {
		return nil, fmt.Errorf("tensor %s: %w: %d bytes, expected %d for %s at batch %d", spec.Name, ErrShape, len(data), wantedBytes, spec, batch)
	}
	return &HostTensor{spec, batch, data}, nil
}

// Spec returns the tensor's description.
func (t *HostTensor) Spec() Spec { return t.spec }

// Batch returns the batch size the memory is for.
func (t *HostTensor) Batch() int { return t.batch }

// Bytes returns the memory itself.
func (t *HostTensor) Bytes() []byte { return t.data }

// Write copies src into the tensor.
func (t *HostTensor) Write(src []byte) error {
	if err := CheckLen(t.spec, len(t.data), len(src)); err != nil {
		return err
	}
	copy(t.data, src)
	return nil
}

// Read copies the tensor into dst.
func (t *HostTensor) Read(dst []byte) error {
	if err := CheckLen(t.spec, len(t.data), len(dst)); err != nil {
		return err
	}
	copy(dst, t.data)
	return nil
}

// CheckLen returns an error if a copy from or to a tensor has another length than the tensor. wanted is the tensor's
// size in bytes, given the length of the caller's slice.
func CheckLen(s Spec, wanted, given int) error {
	if wanted != given {
		return fmt.Errorf("tensor %s: %w: %d bytes, expected %d", s.Name, ErrShape, given, wanted)
	}
	return nil
}

// CheckFits returns an error if a tensor is not what a block declares at a batch size. Names are not compared,
// because one block's output is the next one's input. wanted is the declaration.
func CheckFits(t Tensor, wanted Spec, batch int) error {
	spec := t.Spec()
	ok := spec.Type == wanted.Type && len(spec.Shape) == len(wanted.Shape) && t.Batch() == batch
	for i := 0; ok && i < len(wanted.Shape); i++ {
		ok = spec.Shape[i] == wanted.Shape[i]
	}
	if !ok {
		return fmt.Errorf("%w: %s at batch %d, expected %s at batch %d", ErrShape, spec, t.Batch(), wanted, batch)
	}
	return nil
}
