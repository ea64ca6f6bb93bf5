// Package tracing makes OpenTelemetry spans of what happens to requests, and sends them over OTLP.
//
// A request has five kinds of spans. The door is the request as its client sees it; its parent is the span that the
// client names in the header traceparent (W3C Trace Context). Below the door stand the queue (a wait for a batch), the
// batch, and the answer (its way back). A request that runs several times has a queue and a batch for each time. Below
// the batch stands a device for each device on which the batch ran.
//
// A nil Tracer makes no spans and costs nothing. The goroutine that has a core's turn notes times alone; spans are made
// by the goroutine of the client, in Request.End.
package tracing
