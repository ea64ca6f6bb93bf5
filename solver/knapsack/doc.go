// Package knapsack chooses one item of every list, such that their values sum to the most and
// their weights to no more than a capacity: the multiple-choice knapsack (Kellerer, Pferschy and
// Pisinger, Knapsack Problems, 2004, chapter 11).
//
// Weights are rounded up to units, and a dynamic program runs over them. Its time is the capacity,
// in units, times the number of items. The choice fits, and is the best for the rounded weights.
package knapsack
