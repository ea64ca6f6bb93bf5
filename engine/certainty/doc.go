// Package certainty turns a classifier's scores into its answer, and a number that says how certain the answer is.
//
// Profiles record certainties with it, and the executor decides with it while it serves a cascade. The thresholds
// of a plan mean the same in both only because both use this package. A plan's records name the score that they
// were made with (formats.Records.Score), and a server uses the score of that name.
//
// Scores may be logits or probabilities. If they lie in [0, 1] and sum to 1, they are taken as probabilities.
// Otherwise softmax is applied to them.
package certainty
