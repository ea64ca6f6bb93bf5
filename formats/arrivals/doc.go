// Package arrivals makes streams of requests: from random processes, from
// recorded traces, gaps and counts, and from several of these at once.
//
// A Source yields requests in order of time. Processes draw from a random
// stream that the caller names (see package seeded) and allocate nothing per
// request; readers stream their file, tell file, line and column of what is
// wrong with it, and report it through Err after Next returned false.
//
// The typical steps: one Source per model (Process for a workload's arrivals,
// OpenTrace, OpenGaps or OpenCounts for files), Merge them, and pull requests
// with Next until it returns false; then ask Err(source).
//
// Recorded counts (requests per second or minute) say nothing about the times
// within an interval: OpenCounts draws them, and how is the caller's choice.
package arrivals
