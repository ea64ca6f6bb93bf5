// Package queueing computes the share of requests that a server loses if requests do not wait
// forever: the M/D/1 queue that turns a request away if too much work is in front of it (J. W.
// Cohen, The Single Server Queue, 1982, part III; queueing.go derives the solution step by step).
//
// Load: arrival rate times service time. Place: work of one request that may wait.
package queueing
