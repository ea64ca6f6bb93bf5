// Package natstest starts NATS servers for tests and instruments: one, or a cluster of three
// whose nodes can be killed. Each is a process of the program that go.mod names as a tool, so
// that no test links it. All sync every write.
package natstest
