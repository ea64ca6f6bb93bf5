// Package losses proves a bound on all plans by sums of losses against the bound of the relaxation: a knapsack over
// configurations. It finds the plan of the best such sum, too.
//
// Vocabulary:
//
//   - Configuration: whole replicas of one template, at the rate that they carry. Losses of configurations add up, and the
//     best sums of them are found by labels, as in a knapsack.
//   - Label: a sum of configurations of one model with the devices that it takes, its rate and its loss.
//   - Device set: the devices that a label takes, with the rate that it carries.
//
// The files, in the order of the step:
//
//	lossknapsack.go  the budget of loss, the configurations of a model, and how a use of devices is written
//	labels.go        the labels of one model
//	leftover.go      the least loss on the devices that a label leaves
//	setjoiner.go     one device set of each model, so that all fit together
package losses
