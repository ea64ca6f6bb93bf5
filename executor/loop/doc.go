// Package loop is a combining event loop around a policy, on the wall clock.
//
// Whoever brings news runs a round if nobody is at it, or else leaves the news
// to whoever is: the caller's own goroutine decides about its request, which
// wakes no other goroutine for it. One goroutine at a time has the turn, so a
// Host and the policy need no locks.
//
// A round is the host's: it takes what has come, tells the policy with Tell and
// does what that answers. The loop keeps the clock, the policy's wake-ups with an
// alarm that is not late, calls from other goroutines, and searches: a Replan runs
// what the policy's Search returns on a goroutine of its own, and its result comes
// as an event in a later round. An event log records all that the policy is told.
//
// The loop knows nothing of what executes batches or of how requests become
// answers. It imports policy and formats only.
//
// loop.go has turns and rounds, wakes.go the wake-ups, timer_linux.go the alarm,
// search.go the searches.
package loop
