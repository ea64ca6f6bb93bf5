// Package instance has the runs of servers and the queues that the data holds, for the measurements of the model of a
// language-model instance (packages profiler/llmrun and sim/llm).
//
//	bundle.go     the runs of the data
//	drain.go      queues that are drained, to calibrate estimators on
package instance
