// Package durable is the contract of a store of accepted requests. A server that accepts a request must not lose it:
// what a Store has stored survives the end of the process, and a loss of the machine's power.
//
// Vocabulary:
//
//   - Record: a request as it was accepted. A record is open until its result is stored.
//   - Claim: a process that claims a record is the only one that serves it, until the record ends, is released, or
//     the process is gone.
//   - Result: how a record ended, in bytes that the store does not interpret.
//   - Value: data that a front end stores besides requests, such as files and batches.
//   - Location: the key under which data is stored. Sealed data can be opened only at its location.
//
// A store is a log of requests and not a queue with an order of its own. Records are claimed in the order of their
// acceptance; the order of service is decided elsewhere. There is one copy of each record. A record that was claimed
// and has not ended can be claimed again after a restart, or when its holder is gone.
//
// The stores are durable/bolt, a file of one process, and durable/jetstream, a cluster that several processes share.
// Package durabletest tests both against this contract.
//
// Order of reading: store.go (Store), shared.go (Shared: a store of several processes), seal.go (encryption).
package durable
