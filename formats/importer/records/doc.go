// Package records reads per-sample answers of a family of models from a CSV
// file, plain or gzip, into the records of a profile:
//
//	sample_id,model,correct,certainty
//
// Every sample has one row per model, in any order. Samples are shuffled by a
// seed, because files are often ordered by label, and split: the first part is
// planned on, the rest is held out to judge the plan by.
//
// Certainties of different sources are not comparable: thresholds are set per
// model, on quantiles. Calibrate replaces a certainty by the share of right
// answers at it, which changes no order and makes it a probability.
package records
