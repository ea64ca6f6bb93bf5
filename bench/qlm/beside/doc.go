// Package beside puts a batch of requests beside interactive ones, on one fleet that is
// not enlarged for it: how long interactive answers take then against alone, and whether
// the batch ends within its window (llm-d-batch-gateway, issue 491, has that experiment
// on real servers).
//
//	case.go  the fleet, the rates, the requests of a run; what the planner is asked
//	run.go   competitors, and one run
//
// Interactive requests are the rows of Azure's conversations of 2023 in their own
// rhythm, at a rate that is a part of what the fleet can do. The batch is a file of lines
// that comes with the first of them, and all of its lines are due when the window ends.
// The planner chooses on one stretch of the trace. All are measured on others. Above
// eight A100s several parts of the trace come at once, so that stretches share rows, but
// not which come together.
package beside
