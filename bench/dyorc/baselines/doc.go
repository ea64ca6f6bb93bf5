// Package baselines has what bench/dyorc compares the policies of workflows with: DyOrc as published,
// ablations, reactive loading, and queues by other deadlines. Each registers by name for plans of workflows.
// names.go lists them, replicas.go has reactive loading.
package baselines
