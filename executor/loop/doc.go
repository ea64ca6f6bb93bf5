// Package loop is a combining event loop around a policy, on the wall clock. A goroutine that brings something runs a
// round itself if no other one is at it, and otherwise leaves it to the one that is. So a request is decided on the
// caller's own goroutine, and wakes no other one. One goroutine at a time has the turn, so neither the Host nor the
// policy needs locks.
//
// Words: the turn is the right to call the policy. A round is one turn, in which the host takes what has arrived and
// tells the policy. A search is a computation of the policy beside the loop; its result is an event in a later round. A
// timer wakes the policy or the host at a time; the alarm wakes the loop for the next timer, and is not late.
//
// The loop keeps the clock, the timers, calls from other goroutines, and searches. An event log records all that the
// policy is told. The loop knows nothing of what executes batches or of how requests become answers. It imports only
// policy and formats.
//
// Order of reading: loop.go (turns and rounds), wakes.go (timers), timer_linux.go (the alarm), search.go (searches).
package loop
