// Package queueing says what a server loses at which requests do not wait for ever: the M/D/1 queue that turns a request
// away if too much work is before it (J. W. Cohen, The Single Server Queue, 1982, part III; the solution in steps of
// one service is worked out in queueing.go).
package queueing
