// Package bundles plans many models, for which the integer program over replica counts is too large: it makes, for each
// model, sets of pipelines that carry the rate it needs, and picks one for each model. It also bounds all plans by what
// the rates of all models cost at least, and by the whole devices that each model takes.
//
// Vocabulary:
//
//   - Cover: the cheapest sum of configurations (whole replicas of one template) of one model that carries a rate, at
//     given prices.
//   - Bundle: pipelines of one model that carry the rate it needs at a given throughput. A plan is one bundle of each.
//   - Allotment: the amount of each pool that a model takes. A minimal allotment carries the model's rate, and holds no
//     smaller one that does.
//
// The files, in the order of the step:
//
//	covers.go         the covers of a model: a covering knapsack
//	coverbound.go     the covers of all models, the bound that they prove, and the templates that they need
//	bundle.go         bisects the largest throughput that bundles reach
//	bundleprogram.go  picks one bundle per model by a linear or integer program
//	bundlerounder.go  rounds that choice by swaps of bundles
//	allotments.go     the bound that whole devices per model prove
package bundles
