package main

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/protobuf/proto"

	"inferplan/engine/graph/onnxpb"
)

// outsideWidth is the width of an embedding in the model that outside writes.
const outsideWidth = 256

// outside FILE writes a model of 8 MiB, or with INFERPLAN_LONG 3 GiB, of weights in FILE.data, which is
// sparse: the mean of four embeddings, times a matrix, and of that the largest value. $LAST is the last id.
// The first values of the embeddings 1, 2 and $LAST are 4, 8 and 20, the matrix has a 3 in its corner, and
// the other weights are zero.
func outside(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: outside FILE")
	}
	rows, columns := int64(4096), int64(4096)
	if os.Getenv("INFERPLAN_LONG") != "" {
		rows, columns = 5<<29/(4*outsideWidth), 1<<29/(4*outsideWidth)
	}
	path := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(filepath.Dir(path), 0o755))
	f, err := os.Create(path + ".data")
	ts.Check(err)
	defer f.Close()
	value := func(at int64, v float32) {
		_, err := f.WriteAt(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)), 4*at)
		ts.Check(err)
	}
	ts.Check(f.Truncate(4 * outsideWidth * (rows + columns)))
	value(1*outsideWidth, 4)
	value(2*outsideWidth, 8)
	value((rows-1)*outsideWidth, 20)
	value(rows*outsideWidth+columns-1, 3)
	ts.Setenv("LAST", strconv.FormatInt(rows-1, 10))

	lies := func(name string, offset int64, dims ...int64) *onnxpb.Tensor {
		property := func(k, v string) *onnxpb.Property {
			return &onnxpb.Property{Key: proto.String(k), Value: proto.String(v)}
		}
		return &onnxpb.Tensor{Name: proto.String(name), DataType: proto.Int32(1), Dims: dims, DataLocation: onnxpb.Tensor_EXTERNAL.Enum(),
			ExternalData: []*onnxpb.Property{property("location", filepath.Base(path)+".data"), property("offset", strconv.FormatInt(offset, 10)),
				property("length", strconv.FormatInt(4*dims[0]*dims[1], 10))}}
	}
	reduce := func(op, in, out string, keep int64) *onnxpb.Node {
		return &onnxpb.Node{OpType: proto.String(op), Input: []string{in}, Output: []string{out}, Attribute: []*onnxpb.Attribute{
			{Name: proto.String("axes"), Type: onnxpb.Attribute_INTS.Enum(), Ints: []int64{1}},
			{Name: proto.String("keepdims"), Type: onnxpb.Attribute_INT.Enum(), I: proto.Int64(keep)}}}
	}
	g := &onnxpb.Graph{
		Name:   proto.String("outside"),
		Input:  []*onnxpb.ValueInfo{onnxValue("ids", 7, "batch", "4")},
		Output: []*onnxpb.ValueInfo{onnxValue("y", 1, "batch", "1")},
		Node: []*onnxpb.Node{
			{OpType: proto.String("Gather"), Input: []string{"E", "ids"}, Output: []string{"embedded"}},
			reduce("ReduceMean", "embedded", "mean", 0),
			{OpType: proto.String("MatMul"), Input: []string{"mean", "W"}, Output: []string{"product"}},
			reduce("ReduceMax", "product", "y", 1),
		},
		Initializer: []*onnxpb.Tensor{lies("E", 0, rows, outsideWidth), lies("W", 4*outsideWidth*rows, outsideWidth, columns)},
	}
	data, err := proto.Marshal(&onnxpb.Model{IrVersion: proto.Int64(8), OpsetImport: []*onnxpb.OperatorSet{{Version: proto.Int64(13)}}, Graph: g})
	ts.Check(err)
	ts.Check(os.WriteFile(path, data, 0o644))
}
