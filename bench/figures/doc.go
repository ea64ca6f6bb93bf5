// Package figures keeps what the benches have measured: bench/NAME/figures.json,
// a list of figures, each with the claim that it answers, what was asked, the
// command that measures it, and the commit and machine that it was measured on.
//
// A bench calls Put with all that a run has measured with a command, and Command says
// how that is: a run replaces the figures of its command, and the others stay. Table is
// the list as a table for the docs, and Show puts it between the marks in a document. Render
// makes all tables, chosen rows (rows.go) and single figures of a document, so that documents say what the files say. Tests hold the two against each other, and the
// commands against scripts/bench.sh. A figure that falls short of what was asked has to stand in a document.
//
// figures.json in this folder has figures that were read from what a command printed, for commands that write no file.
package figures
