// Package queuetest makes problems of request groups and virtual queues for tests
// and benchmarks: every program and search is measured on the same ones.
package queuetest
