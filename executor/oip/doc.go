// Package oip serves the Open Inference Protocol, version 2, over HTTP (JSON
// and binary tensors) and gRPC, in front of anything that implements Backend.
//
// How the pieces fit:
//
//  1. A Backend names its models in a Catalog: inputs and outputs with datatype
//     and shape. Catalogs are immutable; a new plan is a new Catalog.
//  2. NewHTTPServer and NewGRPCServer each turn wire bytes into a Request whose
//     tensors are little-endian raw bytes, most often slices of the received
//     body itself.
//  3. Both hand it to the same core: lookup of model and version, validation
//     against the Catalog, Backend.Infer under a recover, checks of the answer.
//     What is refused, and with which words, is therefore the same on both.
//  4. A Backend refuses by returning an *Error: Dropped, Unavailable, Deadline…
//     The transport turns it into 429 or RESOURCE_EXHAUSTED and so on, at once.
//  5. Drain refuses new inferences as unavailable while the accepted ones finish.
//
// The codec has both directions: EncodeRequest and DecodeResponse are what the
// load generator in executor/load speaks.
//
// Request bodies live in pooled buffers. Tensor data is valid until Infer
// returns; a Backend that reads it later calls Request.Retain first and the
// function that Retain gave back when done.
package oip
