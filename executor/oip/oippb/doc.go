// Package oippb holds the protobuf messages and the gRPC service of the Open
// Inference Protocol, generated from oip.proto. Package oip serves it; clients
// in any language may be generated from the same file.
package oippb

//go:generate ./generate.sh
