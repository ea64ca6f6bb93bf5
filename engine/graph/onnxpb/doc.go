// Package onnxpb is the ONNX file format as Go types, generated from our own
// onnx.proto (field numbers are the public ones). The generated file is
// committed so that a build needs no protoc.
package onnxpb

//go:generate sh -c "go build -o protoc-gen-go.tool google.golang.org/protobuf/cmd/protoc-gen-go && protoc --plugin=protoc-gen-go=./protoc-gen-go.tool --go_out=. --go_opt=paths=source_relative onnx.proto; rm -f protoc-gen-go.tool"
