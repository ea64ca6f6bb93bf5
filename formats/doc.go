// Package formats defines the documents that the parts of inferplan exchange: profile, cluster, workload, plan,
// report and transitions. It decodes them strictly and validates them.
//
// Every document is JSON (YAML too if a person writes it) and starts with `format: inferplan.<kind>/v<version>`.
// Numbers written by machines name their unit in the key: _us (microseconds, at most three decimals, held exactly
// as integer nanoseconds), _bytes, _rps, _gbps, _usd_per_hour, _watts. People may write "200ms", "24GiB" or "5x".
//
// A field with a `default` tag is left out if it has that default. An explicit zero in it is an error, because it
// would silently mean the default.
//
// The typical steps are: Decode a file into its type (unknown fields are errors with file, line and path),
// Validate the rules that no type can express, use it, and Write it completely or not at all.
//
// Vocabulary:
//
//   - Section: the part of a plan or workload that depends on its kind.
//   - Served: something that requests can ask for, with its promise (SLO, percentile, rate).
//   - Deployed: a model, or one SLO class of it, with its pipelines and their placement.
//   - Promise: the SLO, percentile and rate that a plan assures for a model.
//   - Way: the path of a workflow's request, as recorded; transitions are many of them.
//   - Segment: a part of a workflow whose tasks are revealed at once.
//   - Bucket: a model at one size of its inputs.
//   - Figure: the latency that an SLO bounds: e2e, ttft or tpot.
//
// Read decode.go, sections.go and rules.go first, then workload.go and plan.go. Each kind of plan has files of its own:
// pool.go; gear.go and gear_workload.go; queue.go and queue_workload.go; flow.go, flow_workload.go and
// flow_segments.go. profile.go, cluster.go and report.go are the other documents, validate.go and validate_plan.go
// the common checks. layout.go says what a plan runs on which devices, held.go
// what these hold at its start, renumber.go gives them other numbers.
//
// Package document reads and writes documents of any kind: their nodes with positions, checks, units and options.
// Other sub-packages work on documents: arrivals makes request streams, report accumulates results, diff compares
// two plans. No package of this folder imports a package of another folder.
package formats
