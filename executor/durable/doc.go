// Package durable says what a store of accepted requests does. Whoever accepts a
// request must not lose it: what a Store has taken survives the process, and the
// machine losing its power.
//
// A store is a log of requests, not a queue with an order of its own. Who serves takes
// each request over once (Claim), in the order of acceptance, and decides about the
// order of service elsewhere. There is one copy of each request. What was taken over
// and not finished comes again after a restart, or when its holder is gone.
//
//	store.go  Store: requests, their text so far, how they ended; values beside them
//	seal.go   Sealer: encryption of what is stored
//
// The stores are durable/bolt, a file of this process, and durable/jetstream, a cluster
// that several processes share. Package durabletest holds both against this contract.
package durable
