// Package arrivals makes streams of requests: from random processes, from recorded traces, gaps and counts, and
// from several of these at once.
//
// A Source yields requests in order of time. Processes draw from a random stream that the caller names (see
// package seeded) and allocate nothing per request. Readers stream their file. After Next has returned false, Err
// returns an error with file, line and column, if there is one.
//
// The typical steps are: make one Source per model (Process for a workload's arrivals; OpenTrace, OpenGaps or
// OpenCounts for files), Merge them, pull requests with Next until it returns false, and then check Err(source).
//
// Recorded counts (requests per second or minute) do not say when in an interval requests arrive. OpenCounts draws
// these times, in a way that the caller chooses.
//
// Read source.go first; then process.go, trace.go, gaps.go and counts.go (sources), merge.go, sessions.go and
// lengths.go (sources made from sources), and write.go.
package arrivals
