// Package load sends requests to a server of the Open Inference Protocol as its clients would, and reports the
// outcomes. It is an open-loop generator: each request is sent at its scheduled time, whatever happens to earlier
// ones.
//
// Vocabulary:
//
//   - Schedule: the arrivals, from a source of package formats/arrivals (Poisson, gamma, trace).
//   - Target: the server behind one protocol.
//   - Payload: a request of a model that is encoded except for its id and timeout.
//   - Lag: how long after its scheduled time a request was sent, because of this machine.
//   - Warm-up: the first part of the schedule, whose requests are not counted.
//
// Steps of a run:
//
//  1. Run asks the server for the inputs of the models and encodes a few random but valid requests per model, once.
//     Sending one changes only its id and its timeout.
//  2. Each request is sent at its time, with the rest of its SLO as the parameter "timeout". Latency counts from the
//     scheduled time, so a server that stalls is charged for every request that falls due meanwhile (no coordinated
//     omission).
//  3. Every scheduled request has exactly one outcome: completed, late or not, or dropped with a reason. Reasons that
//     are not the server's start with "error." (a failure, or an answer that does not belong to the request), or are
//     "client_overload" (too many requests open here) and "unanswered" (still open when the run ended).
//
// A server of language models is sent streamed completions instead, with the lengths and sessions of the schedule.
// The report then also has the time to the first token and the time per token.
//
// The lag of the generator is measured and reported. If it is large, the report has a warning.
//
// Order of reading: config.go, run.go, target.go and result.go; http.go, grpc.go and text.go (the targets); inputs.go
// and samples.go (what is sent); pacer_linux.go (timers).
package load
