// Package methodspage holds the worked examples of docs/methods to the planner: a test computes the numbers of an example
// with the code that the page describes, and fails if the page states others.
//
// The file:
//
//	statements.go  Require: the statements that a section of a page must hold
package methodspage
