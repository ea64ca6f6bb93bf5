// Package transitions reads the paths of workflow requests from others' recordings: OpenTelemetry spans (OTLP as JSON),
// and request traces of agents with session ids (CSV). A Recorder collects equal paths into one document.
//
// Recordings rarely say which tasks a task reads. It is assumed to read the tasks that had ended when it began,
// except those that another one of them has read already. The first tasks of a request are those that began before
// any had ended.
//
// The JSON form of OTLP is that of opentelemetry-proto 1.11.0 (ac2c4b5, docs/specification.md and examples/trace.json): times are texts. What
// plan serve sends in its binary form, a collector writes so.
//
//	recorder.go  the calls of a request as a path, and paths as a document
//	spans.go     OpenTelemetry
//	sessions.go  traces with sessions
package transitions
