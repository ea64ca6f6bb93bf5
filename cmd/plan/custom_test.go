package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/protobuf/proto"

	"inferplan/engine/graph/onnxpb"
)

// operators FILE [TIMES] compiles testdata/operators.c.
func operators(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: operators FILE [TIMES]")
	}
	times := "2"
	if len(args) > 1 {
		times = args[1]
	}
	ts.Check(os.MkdirAll(filepath.Dir(ts.MkAbs(args[0])), 0o755))
	root := ts.Getenv("ROOT")
	out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-DTIMES="+times, "-I", filepath.Join(root, "third_party", "ort", "include"),
		"-o", ts.MkAbs(args[0]), filepath.Join(root, "cmd", "plan", "testdata", "operators.c")).CombinedOutput()
	if err != nil {
		ts.Fatalf("cc: %v\n%s", err, out)
	}
}

// custom FILE [DOMAIN] writes y = Affine(Relu(x)) · W, with x of four values, and W of which has two
// columns: ones, and 0 1 2 3.
func custom(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: custom FILE [DOMAIN]")
	}
	domain := strings.Join(append(args[1:], "test.operators")[:1], "")
	node := func(op, domain, out string, in ...string) *onnxpb.Node {
		return &onnxpb.Node{OpType: proto.String(op), Domain: proto.String(domain), Name: proto.String("node_" + out), Input: in, Output: []string{out}}
	}
	g := &onnxpb.Graph{
		Name:   proto.String("custom"),
		Input:  []*onnxpb.ValueInfo{onnxValue("x", 1, "batch", "4")},
		Output: []*onnxpb.ValueInfo{onnxValue("y", 1, "batch", "2")},
		Node:   []*onnxpb.Node{node("Relu", "", "r", "x"), node("Affine", domain, "a", "r"), node("MatMul", "", "y", "a", "W")},
		Initializer: []*onnxpb.Tensor{{Name: proto.String("W"), DataType: proto.Int32(1), Dims: []int64{4, 2},
			FloatData: []float32{1, 0, 1, 1, 1, 2, 1, 3}}},
	}
	data, err := proto.Marshal(&onnxpb.Model{IrVersion: proto.Int64(8), Graph: g,
		OpsetImport: []*onnxpb.OperatorSet{{Version: proto.Int64(13)}, {Domain: proto.String(domain), Version: proto.Int64(1)}}})
	ts.Check(err)
	ts.Check(os.MkdirAll(filepath.Dir(ts.MkAbs(args[0])), 0o755))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), data, 0o644))
}
