// Package load drives a server of the Open Inference Protocol as its clients
// would: open loop, each request at its scheduled time whatever became of the
// earlier ones.
//
// Typical steps:
//
//  1. A schedule: a source of package formats/arrivals (Poisson, gamma, trace).
//  2. Run asks the server for the models' inputs and encodes a few random but
//     valid requests per model, once; sending one only changes id and budget.
//  3. Each request is sent at its time, with what is left of its SLO as the
//     parameter "timeout". Latency counts from the scheduled time, so a server
//     that stalls is charged for every request that fell due meanwhile
//     (no coordinated omission).
//  4. Every scheduled request ends in exactly one way: completed (late or not)
//     or dropped with a reason. Reasons that are not the server's own word
//     start with "error." (a failure, or an answer that is not to this
//     request), or are "client_overload" (too many in flight here) and
//     "unanswered" (still open when the run ended).
//
// A server of language models is asked for streamed completions instead, with the
// lengths and sessions of the schedule (text.go): time to the first token and per
// token are reported beside the whole.
//
// How late the generator itself sent is measured and reported; a run whose
// generator lagged carries a warning.
package load
