#!/bin/sh
# Regenerates the Go file beside model_config.proto, and keeps the digest of what it was generated from. Needs protoc
# 3.21 or later on PATH; the plug-in comes from go.mod. Builds do not need it: the result is committed.
set -eu
cd "$(dirname "$0")/../../.."
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin" google.golang.org/protobuf/cmd/protoc-gen-go
package=formats/triton/configpb
PATH="$bin:$PATH" protoc --go_out=. --go_opt=paths=source_relative \
	--go_opt="M$package/model_config.proto=inferplan/$package" "$package/model_config.proto"
sha256sum "$package/model_config.proto" >"$package/model_config.proto.sha256"
