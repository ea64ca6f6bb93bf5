// Command plan decides how to serve machine-learning models on the devices a
// team really has: it profiles models, solves for the best deployment under a
// latency SLO, simulates and serves it, and gates it in CI.
//
// One file per verb, each an options struct with a thin RunE: this package
// knows flags, tables, progress and exit codes, not decisions.
package main
