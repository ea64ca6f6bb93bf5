// Package ways reads which ways requests of workflows took, from what others
// recorded: OpenTelemetry spans (OTLP as JSON) and request traces of agents with
// session ids (CSV). A Recorder gathers equal ways into one document.
//
// What a task reads is rarely recorded. It is taken to read those tasks that had
// ended when it began, but for those that another one of them has read already. A
// request's first tasks are those that began before any had ended.
//
//	recorder.go  calls of a request as a way, and ways as a document
//	spans.go     OpenTelemetry
//	sessions.go  traces with sessions
package ways
