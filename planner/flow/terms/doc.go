// Package terms holds what graphs of modules and workflows have in common when they are planned: the prices of devices,
// the weights and SLOs of applications, the bound of all plans, and how a model is written into a plan.
//
// Vocabulary:
//
//   - Weight: the rate of an application at the rate factor 1.
//   - Margin: the part of an SLO that is kept back.
//   - Bound of all plans: a value that no plan exceeds, whatever its margin. It leaves out queueing.
//
// The order in which to read the files:
//
//	targets.go  prices, weights, SLOs and margins, from the documents; a model on devices as a part of a plan
//	bound.go    programs without a solution, and the bound of all plans in an outcome
package terms
