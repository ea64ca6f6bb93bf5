// Package httplimit is the entrance of every server of this program: what all protocols check before a request
// reaches its handler. A test fails if a handler is not behind it.
//
// Vocabulary:
//
//   - Door: the checks that every request passes: key, caller, sizes and times (Door).
//   - Key, holder: a bearer token with its limits, and the sender of a request with it (Holder). AnyClient is the
//     holder if no key is required.
//   - Budget: the memory for requests, shared fairly among clients. A hold is the part of it that one request has booked
//     (MemoryHold).
//   - Sender: a request that is being received. It may be cut off (evicted) if its memory is needed for others.
//   - Gate: counts the requests that run, and lets none in once the server drains.
//
// Order of reading: door.go (the checks; the only maker of HTTP servers), keys.go (keys and their limits), caller.go
// (pages of other sites, content types), body.go (the only reader of bodies), budget.go, buffer.go (pooled bytes),
// gate.go, error.go (refusals and failures, and their status), events.go (server-sent events), access.go (the log of
// accesses).
package httplimit
