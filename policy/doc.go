// Package policy holds the contract between run-time decisions and the two
// things that interpret them: the simulator in virtual time and the executor in
// real time. Both feed the same events to the same policy, so what was promised
// offline is what is served.
//
// A policy is a state machine without I/O. Handle takes the time, one event and
// a buffer for actions; it never sleeps, reads a clock, logs or, in steady
// state, allocates. One goroutine calls it.
//
// Indexes in events and actions point into Tables, which Compile makes from a
// plan. Requests are named by slots that the interpreter chooses and may use
// again once the request has been dropped or its batch has finished its last
// stage; batches are named by slots that the policy chooses and may use again
// after the same moment (or after it aborted them).
//
// Sub-packages hold one policy each: reserve (PPipe §5.4, Algorithms 1 and 2),
// its yardsticks artifact and reactive, and gear; waiting and underway are what
// they share, policies makes one by name.
package policy
