#!/bin/sh
# Regenerates the Go file beside onnx.proto, and keeps the digest of what it was
# generated from. Needs protoc 3.21 or later on PATH; the plug-in comes from
# go.mod. Builds do not need it: the result is committed.
set -eu
cd "$(dirname "$0")"
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin" google.golang.org/protobuf/cmd/protoc-gen-go
PATH="$bin:$PATH" protoc --go_out=. --go_opt=paths=source_relative onnx.proto
sha256sum onnx.proto >onnx.proto.sha256
