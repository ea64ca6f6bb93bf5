// Package mutant draws documents that are near to good ones, for tests: parts left
// out, doubled, unused or renamed, and other numbers.
//
//	mutant.go  Draw, and the small problems of every kind below testdata/kinds
//	odd.go     DrawOdd: problems that are tiny, huge, equal or one too many
package mutant
