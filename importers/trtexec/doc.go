// Package trtexec imports the files that trtexec, the benchmark of TensorRT, exports into a profile: the times of every inference
// (--exportTimes) and the time of every layer (--exportProfile). Both are JSON, plain or packed with gzip. Their shapes are
// those of samples/common/sampleReporting.cpp of TensorRT 8.0.1 to 11.1, in all releases that its repository tags (exportJSONTrace, exportJSONProfile):
//
//	[{"startEnqMs": 0.1, "endEnqMs": 0.2, "startH2dMs": …, "endH2dMs": …, "startComputeMs": …, "endComputeMs": …,
//	  "startD2hMs": …, "endD2hMs": …, "h2dMs": 0.03, "computeMs": 1.25, "d2hMs": 0.01, "latencyMs": 1.29}, …]
//
//	[{"count": 625}, {"name": "conv1 + relu1", "timeMs": 36.6, "averageMs": 0.0586, "medianMs": 0.0583, "percentage": 1.2}, …]
//
// computeMs, h2dMs, d2hMs (inMs and outMs in TensorRT 7.0.0 to 7.2.1), name, count, timeMs, averageMs and medianMs are read; releases
// before 8.4.1 write no medianMs. Layers stand in the order in which the engine runs them; timeMs is the sum over the
// iterations. Fields that no version has are skipped and named.
//
//	importer.go   the verb: files and what their names tell, into runs
//	times.go      a file of times
//	layers.go     a file of layers
//	benchmark.go  what the profiler asks of a benchmark: how it measured, and the operators of a layer
package trtexec
