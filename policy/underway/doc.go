// Package underway keeps the dispatched batches for the policies of pooled pipelines: the requests of a batch, its hops,
// and how far it has got (underway.go). It also has their timers, drops and losses, and what
// baselines share (baseline.go).
//
// Vocabulary: a slot is the number of a batch, which is used again. A hop is a stage of a batch's pipeline on a device.
// A batch has reached a hop when its tensors are there, and finished it when the device has run it.
package underway
