// Package knapsack picks one choice of every list so that they are worth the most and fit
// into the room together: the multiple-choice knapsack (Kellerer, Pferschy and Pisinger,
// Knapsack Problems, 2004, chapter 11).
//
// Weights are counted in units, rounded up, and a dynamic program runs over them: room, in
// units, times choices. What it picks fits, and is the best for the rounded weights.
package knapsack
