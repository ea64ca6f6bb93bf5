// Package kept is a file of JSON lines to which a bench adds every result as soon
// as it has it, so that a bench that was interrupted goes on where it was.
//
//	kept.go   the file
//	plan.go   plans within results
package kept
