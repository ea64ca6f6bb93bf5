// Package drawn draws problems of every kind by seed: pools, applications, cascades and queues from one
// device to 100, with profiles and samples that are drawn as well. Instruments solve them.
//
//	pipelines.go  pools and applications
//	simulated.go  cascades and queues, whose plans are decided by trials
package drawn
