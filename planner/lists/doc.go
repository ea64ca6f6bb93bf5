// Package lists computes sums, extremes, counts and lists over the numbers from 0 to n-1, such as the indexes of a list. Loops that do only
// that are written with it, so that the code says what they compute.
package lists
