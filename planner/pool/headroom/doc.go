// Package headroom chooses, by simulation, how much a plan keeps back of every model: a margin of its SLO, and a part of
// what its replicas carry. The plan then promises what simulation shows it to sustain.
//
// Vocabulary:
//
//   - Setting: what a plan keeps back of every model (margin and utilisation), and limits on batches and stages. An
//     attempt is the plan of a setting with what simulation showed of it. A sketch is a plan that was solved and not
//     simulated.
//
// The files, in the order of the step:
//
//	tune.go     searches the setting whose plan sustains most
//	mixture.go  a margin of its own for each model
//	sustain.go  the loads that simulation shows a plan to sustain
//	promise.go  lowers what a plan promises
package headroom
