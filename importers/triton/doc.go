// Package triton reads what runs on Triton Inference Server from its model repositories: which models, or parts of
// models, have how many instances on which devices of a cluster, at which batch size. The result is a deployment with
// places alone, from which a plan is made.
//
// Defaults are those of Triton (triton-inference-server/core, src/model_config_utils.cc, and the README of
// onnxruntime_backend, both of 2026): without instance groups one instance on each GPU, two instances of ONNX models
// on CPUs, and batches of up to max_batch_size wherever that is set.
//
// The files, in the order of reading:
//
//	importer.go   the verb plan import triton
//	read.go       repositories to a deployment
//	instances.go  the instances of a model, and the devices that they are on
//	identity.go   which part of which model a configuration is: by its parameters, an ensemble, or its name
//	pipelines.go  parts and instances as pipelines with places
package triton
