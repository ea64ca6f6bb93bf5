// Package kernel is the event queue of the simulator: an indexed heap with the key (time, kind,
// sequence number). Instances of language models have it, too: with the priority of a sequence or
// the number of an iteration for the time.
//
// Events of one instant come out in the order of their kinds and, within a kind, of the
// sequence number that the caller gave. Every pending event has a handle by which it can be
// moved or removed. Pushing and popping allocate nothing once the queue has reached its
// largest size.
package kernel
