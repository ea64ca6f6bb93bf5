// Package ranges makes a plan more accurate where ranges of rates need not each hold their upper edge forever: if all
// requests together keep the SLO, or measured rates stay below the edges. The vocabulary is that of planner/gear.
//
// Order of reading:
//
//	late.go    ranges that are late if others are in time (solver/knapsack)
//	single.go  one cascade for all ranges
//	climb.go   climbing, on a sample of the measured rates if there are many
package ranges
