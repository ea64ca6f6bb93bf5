// Package configpb is the configuration of a model of Triton Inference Server as Go types, generated from Triton's own
// model_config.proto (triton-inference-server/common, commit 83adf7cf, BSD 3-Clause: the text is at its head). The
// generated file is committed so that a build needs no protoc.
package configpb
