// Package calls runs workflows as code (formats/calls) in the simulator's virtual
// time.
//
// A Control runs the program of every request as a coroutine. It runs until it
// waits for tasks that have not ended. What it has enqueued until then is revealed
// at once. When the last task that it waits for has ended, it goes on. Nothing runs
// side by side, so that a run of a seed is always the same.
//
// What tasks put out is made by a function of the caller, with a stream of the
// request's own.
package calls
