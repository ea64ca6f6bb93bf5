// Package natstest starts NATS servers for tests and instruments: one in this process, or
// a cluster of three processes whose nodes can be killed. All sync every write.
package natstest
