#!/bin/sh
# Regenerates the Go files beside oip.proto, and keeps the digest of what they were
# generated from. Needs protoc 3.21 or later on PATH; the plug-ins come from go.mod.
# Builds do not need it: the result is committed.
set -eu
cd "$(dirname "$0")/../../.."
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin" google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
PATH="$bin:$PATH" protoc --go_out=. --go_opt=paths=source_relative \
	--go-grpc_out=. --go-grpc_opt=paths=source_relative,require_unimplemented_servers=false executor/oip/oippb/oip.proto
sha256sum executor/oip/oippb/oip.proto >executor/oip/oippb/oip.proto.sha256
