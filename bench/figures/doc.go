// Package figures keeps what the benches have measured: bench/NAME/figures.json,
// a list of figures, each with the claim that it answers, what was asked, the
// command that measures it, and the commit and machine that it was measured on.
//
// A bench calls Put with what a run has measured. A figure takes the place of the
// earlier one with the same claim; the others stay. Table is the list as a table for
// the docs, and Show puts it between the marks in a document, so that documents
// say what the files say. A test holds the two against each other.
package figures
