// Package sizing asks the planner's search for fleets of A100s, and holds what it finds against other fleets and policies.
//
// How many GPUs keep 99 % of interactive and 99 % of batch requests in time (QLM, "One Queue Is All You Need", section 8):
// with one trace, several seeds pooled, and A100s that run one model at a time. And what a batch of requests does to interactive
// ones on a fleet that is not enlarged for it: how long interactive answers take then against alone, and whether the batch ends
// within its window (llm-d-batch-gateway, issue 491, has that experiment on real servers).
//
//	problem.go  what both ask of the planner, and layouts in words
//	count.go    the cases: models, popularity, rates; the fewest GPUs of a competitor, by the planner's own search
//	central.go  baselines: requests of a pool in one queue, also that of a gateway
//	batch.go    a batch beside interactive requests: the fleet, the rates, the requests of a run
//	beside.go   competitors beside the batch, and one run
//
// Interactive requests beside a batch are the rows of Azure's conversations of 2023 in their own rhythm, at a rate that is a part
// of what the fleet can do. The batch is a file of lines that comes with the first of them, and all of its lines are due when the
// window ends. The planner chooses on one stretch of the trace. All are measured on others. Above eight A100s several parts of the
// trace come at once, so that stretches share rows, but not which come together.
package sizing
