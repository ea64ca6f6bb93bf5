// Package certainty turns a classifier's scores into its answer and a number
// that says how sure it is of it.
//
// Profiles record certainties with it and the executor decides with it while it
// serves a cascade: the thresholds of a plan mean the same in both only because
// both use this package. What a plan's records were made with is named in them
// (formats.Records.Score), and a server takes the score of that name.
//
// Scores may be logits or probabilities. Those that lie in [0, 1] and sum to 1
// are taken as probabilities, anything else goes through a softmax.
package certainty
