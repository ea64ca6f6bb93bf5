// Package oip serves the Open Inference Protocol, version 2, over HTTP (JSON and binary tensors) and gRPC, in front
// of anything that implements Backend. It also has the client's side of the codec, which package executor/load uses.
//
// Vocabulary:
//
//   - Catalog: the immutable set of the models that are served. A new plan has a new catalog.
//   - Core: what both transports share: validation, the call of the backend, checks of the answer.
//   - Raw contents, tail: the bytes of tensors in binary form: behind the JSON of an HTTP body (tail), or in a field
//     of a gRPC message (raw contents).
//   - Hold: the memory that is booked for a request (package httplimit).
//   - Door: what every request passes first (package httplimit): keys, limits, the log of accesses.
//
// How a request is handled:
//
//  1. A Backend names its models in a Catalog: inputs and outputs with datatype and shape.
//  2. NewHTTPServer and NewGRPCServer decode requests into a Request whose tensors are little-endian raw bytes,
//     usually slices of the received body.
//  3. Both hand it to the same core: lookup of model and version, validation against the Catalog, Backend.Infer under
//     a recover, checks of the answer. So both refuse the same requests with the same words.
//  4. A Backend refuses a request by returning an *Error: Dropped, Unavailable, Deadline…. The transport answers at
//     once with 429, RESOURCE_EXHAUSTED and so on.
//  5. Drain refuses new inferences as unavailable while the accepted ones finish.
//
// Request bodies lie in pooled buffers. Tensor data is valid until Infer returns.
//
// Order of reading: backend.go, model.go, datatype.go and core.go; rest.go, restinfer.go, restmodels.go and
// generate.go (HTTP); jsondecode.go, jsontensor.go, jsonencode.go, element.go (JSON); exactfloat.go and fastfloat.go
// (numbers); grpc.go, grpcleave.go, grpcinfer.go and grpchealth.go; wire.go and wireencode.go (protobuf); watch.go (slow
// and large gRPC messages); statistics.go, options.go, errors.go, guard.go.
package oip
